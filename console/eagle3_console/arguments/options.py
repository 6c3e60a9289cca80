"""Options that several commands share."""

from __future__ import annotations

import argparse

from eagle3_console.arguments import profile
from eagle3_console.arguments.kinds import boundaries, natural, pair, port, positive


def link_options() -> argparse.ArgumentParser:
    """HOST and how to reach it."""
    options = argparse.ArgumentParser(add_help=False)
    options.add_argument("host", metavar="HOST", help="as you would give it to ssh, or 'local'")
    group = options.add_argument_group("connection")
    group.add_argument(
        "-F", "--ssh-config", metavar="FILE", default="", help="instead of ~/.ssh/config ('none': no file)"
    )
    group.add_argument(
        "-i", "--identity", metavar="FILE", action="append", default=[], help="a private key, may be repeated"
    )
    group.add_argument("--known-hosts", metavar="FILE", default="", help="instead of ~/.ssh/known_hosts")
    group.add_argument("--host-key", metavar="SHA256:…", default="", help="the only host key to accept, by fingerprint")
    group.add_argument(
        "--accept-new-host-key", action="store_true", help="accept and store the key of a host never seen before"
    )
    group.add_argument("--password-file", metavar="FILE", default="", help="first line: the password, for machines")
    group.add_argument("--connect-timeout", metavar="SECONDS", type=float, default=10.0, help="default 10")
    group.add_argument(
        "--python", metavar="PATH", default="", help="the Python on the box that has SGLang (default: look for it)"
    )
    group.add_argument(
        "--box-dir", metavar="DIR", default="", help="where our files go on the box (default ~/.eagle3-console)"
    )
    group.add_argument(
        "--take-over",
        action="store_true",
        help="change the box though another console steers it; from then on this one does",
    )
    record(options)
    return options


def record(command: argparse.ArgumentParser) -> None:
    """Keep the session."""
    command.add_argument(
        "--record", metavar="FILE", default="", help="keep this session, without secrets; 'replay FILE' shows it again"
    )


def output_options() -> argparse.ArgumentParser:
    """What is printed."""
    options = argparse.ArgumentParser(add_help=False)
    options.add_argument("--json", action="store_true", help="the result on stdout as JSON; narration stays on stderr")
    options.add_argument("--quiet", action="store_true", help="no narration on stderr, errors only")
    return options


def plan_options() -> argparse.ArgumentParser:
    """The run: model, data, output and their settings. `None` where nothing is said: a profile may say it."""
    options = argparse.ArgumentParser(add_help=False)
    group = options.add_argument_group("run (all paths are on the box)")
    profile.option(group)
    group.add_argument("--model", metavar="DIR", default=None, help="the target model")
    group.add_argument(
        "--data", metavar="FILE", default=None, help="tokenized_data.jsonl: input_ids, optional loss_mask, a line"
    )
    group.add_argument("--out", metavar="DIR", default=None, help="where the dataset goes")
    group.add_argument("--tp", metavar="N", type=positive, default=None, help="tensor parallel size (default 1)")
    group.add_argument(
        "--port", metavar="N", type=port, default=None, help="of the SGLang server on the box (default 30000)"
    )
    group.add_argument(
        "--boundaries", metavar="A,B,C", type=boundaries, default=None, help="default 2,N//2,N-3 of N layers"
    )
    group.add_argument(
        "--final",
        choices=("pre", "post"),
        default=None,
        help="final state before or after the last norm (default: pre; of a running server: as it dumps)",
    )
    group.add_argument("--dump-dir", metavar="DIR", default=None, help="default /dev/shm/eagle3-console/<server>")
    group.add_argument(
        "--max-seq-len", metavar="N", type=natural, default=None, help="cut samples here (default: never cut)"
    )
    group.add_argument("--samples", metavar="N", type=natural, default=None, help="only the first N (default: all)")
    group.add_argument(
        "--tokens-in-flight",
        metavar="N",
        type=natural,
        default=None,
        help="default: four prefill chunks of the server; the server that is started for it gets chunks of a quarter",
    )
    group.add_argument(
        "--on-bad", choices=("skip", "stop"), default=None, help="a bad input line: skip it (default) or stop"
    )
    group.add_argument(
        "--duplicates",
        choices=("keep", "skip"),
        default="keep",
        help="samples with the ids of an earlier one: extract each (default) or refuse them",
    )
    group.add_argument(
        "--shuffle", metavar="SEED", type=natural, default=None, help="shuffle; the whole input is read first"
    )
    group.add_argument("--shard", metavar="I/N", default="", help="only part I (from 0) of N, for several extractions")
    group.add_argument(
        "--share-gpus", action="store_true", help="start the server though somebody else holds memory of its GPUs"
    )
    group.add_argument(
        "--api-key-file",
        metavar="FILE",
        default="",
        help="a file here: its first line is the key that the server asks for (SGLang's --api-key)",
    )
    group.add_argument(
        "--server-arg",
        metavar="ARG",
        action="append",
        default=[],
        help="one more SGLang argument, may be repeated: --server-arg=--device",
    )
    group.add_argument(
        "--server-env",
        metavar="K=V",
        action="append",
        type=pair,
        default=[],
        help="one more variable for the server, may be repeated",
    )
    return options


def watch(command: argparse.ArgumentParser, default: bool = False) -> None:
    """Whether a server that crashes is started again."""
    command.add_argument(
        "--watch",
        dest="watch_server",
        action=argparse.BooleanOptionalAction,
        default=default,
        help="while an extraction runs, the box itself starts a crashed server again, up to 3 times with growing pauses, "
        f"but not where a restart cannot help (default: {'yes' if default else 'no'})",
    )


def extra_key(command: argparse.ArgumentParser) -> None:
    """How a running server with the radix cache on is used."""
    command.add_argument(
        "--extra-key",
        action="store_true",
        help="where the running server has the radix cache on: do not restart it, but send every request under a cache "
        "key of its own, so that every row is computed (SGLang 0.5.11 and newer)",
    )
