"""The command line: what may be said. What is then done lies in `commands`, imported only when needed.

``--help`` and ``--version`` stay fast: nothing but argparse is imported here.
"""

from __future__ import annotations

import argparse
import os
import sys
import threading
from collections.abc import Sequence

from eagle3_console import __version__
from eagle3_console.exit_codes import ExitCode

_EPILOG = """\
HOST is what you would give to ssh: a name from ~/.ssh/config, user@host, host:port or ssh://user@host:port;
'local' is this machine without SSH. 'eagle3-console HOST' opens the screen.

exit codes: 0 good, 1 fault of this program, 2 usage, 3 no connection, 4 login or host key, 5 box not fit,
6 server failed, 7 finished with rejected or failed samples, 130 interrupted
"""


def entry() -> None:
    """The console script."""
    code = main(sys.argv[1:])
    if threading.active_count() > 1:
        # The screen's input thread reads a terminal that may be gone for ever: the program would never end.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


def main(argv: Sequence[str]) -> int:
    """Parse and run; the exit code as `ExitCode` documents it."""
    parser, commands = build_parser()
    words = list(argv)
    if not words:
        parser.print_help(sys.stderr)
        return ExitCode.USAGE
    if not words[0].startswith("-") and words[0] not in commands:
        words.insert(0, "open")
    args = parser.parse_args(words)
    from eagle3_console import commands as implementation

    return implementation.execute(args)


def build_parser() -> tuple[argparse.ArgumentParser, frozenset[str]]:
    """The parser, and the words that are commands and not hosts."""
    parser = argparse.ArgumentParser(
        prog="eagle3-console",
        description="Drive a GPU box through the extraction of hidden states for EAGLE-3 training.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"eagle3-console {__version__}")
    sub = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    link, output, plan = _link_options(), _output_options(), _plan_options()

    screen = sub.add_parser("open", parents=[link, plan], help="open the screen on HOST (also: eagle3-console HOST)")
    screen.add_argument("--readonly", action="store_true", help="watch only: no key changes anything on the box")
    run = sub.add_parser(
        "run", parents=[link, output, plan], help="the whole job: from connecting to a checked dataset"
    )
    run.add_argument(
        "--stop-server", action="store_true", help="stop the server afterwards (it is left running otherwise)"
    )
    sub.add_parser("doctor", parents=[link, output, plan], help="look at the box, change nothing")
    sub.add_parser("deploy", parents=[link, output], help="put this console's box side on the box")
    _server(sub, link, output, plan)
    _extract(sub, link, output, plan)
    verify = sub.add_parser("verify", parents=[link, output], help="check a dataset on the box against its manifest")
    verify.add_argument(
        "--out",
        metavar="DIR",
        default="",
        help="the dataset, a directory on the box (default: the newest extraction's)",
    )
    report = sub.add_parser("report", parents=[link, output], help="what was made, how, and what comes next")
    report.add_argument("--job", default="", help="an extraction by its job id (default: the newest)")
    _demo(sub, output)
    return parser, frozenset(sub.choices)


def _link_options() -> argparse.ArgumentParser:
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
    return options


def _output_options() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(add_help=False)
    options.add_argument("--json", action="store_true", help="the result on stdout as JSON; narration stays on stderr")
    options.add_argument("--quiet", action="store_true", help="no narration on stderr, errors only")
    return options


def _plan_options() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(add_help=False)
    group = options.add_argument_group("run (all paths are on the box)")
    group.add_argument("--model", metavar="DIR", default="", help="the target model")
    group.add_argument(
        "--data", metavar="FILE", default="", help="tokenized_data.jsonl: input_ids, optional loss_mask, a line"
    )
    group.add_argument("--out", metavar="DIR", default="", help="where the dataset goes")
    group.add_argument("--tp", metavar="N", type=_positive, default=1, help="tensor parallel size (default 1)")
    group.add_argument(
        "--port", metavar="N", type=_port, default=30000, help="of the SGLang server on the box (default 30000)"
    )
    group.add_argument(
        "--boundaries", metavar="A,B,C", type=_boundaries, default=(), help="default 2,N//2,N-3 of N layers"
    )
    group.add_argument(
        "--final",
        choices=("pre", "post"),
        default="",
        help="final state before or after the last norm (default: pre; of a running server: as it dumps)",
    )
    group.add_argument("--dump-dir", metavar="DIR", default="", help="default /dev/shm/eagle3-console/<server>")
    group.add_argument(
        "--max-seq-len", metavar="N", type=_natural, default=0, help="cut samples here (default: never cut)"
    )
    group.add_argument("--samples", metavar="N", type=_natural, default=0, help="only the first N (default: all)")
    group.add_argument("--tokens-in-flight", metavar="N", type=_natural, default=0, help="default: four prefill chunks")
    group.add_argument(
        "--on-bad", choices=("skip", "stop"), default="skip", help="a bad input line: skip it (default) or stop"
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
        type=_pair,
        default=[],
        help="one more variable for the server, may be repeated",
    )
    return options


def _server(sub: argparse._SubParsersAction[argparse.ArgumentParser], *parents: argparse.ArgumentParser) -> None:
    link, output, plan = parents
    server = sub.add_parser("server", help="start, stop, restart, status, log").add_subparsers(
        dest="action", metavar="ACTION", required=True
    )
    start = server.add_parser(
        "start", parents=[link, output, plan], help="start a patched server and wait until it is ready"
    )
    restart = server.add_parser(
        "restart", parents=[link, output, plan], help="stop and start it again, ready or the reason why not"
    )
    for command in (start, restart):
        command.add_argument(
            "--radix-cache", choices=("off", "on"), default="off", help="default off: with it on, rows go missing"
        )
        command.add_argument("--dry-run", action="store_true", help="print the exact line and start nothing")
        command.add_argument("--no-wait", action="store_true", help="return at once, do not wait until it is ready")
    server.add_parser("stop", parents=[link, output], help="stop it and prove that nothing is left")
    server.add_parser("status", parents=[link, output], help="what it is doing")
    log = server.add_parser("log", parents=[link, output], help="its log")
    log.add_argument("-f", "--follow", action="store_true", help="until interrupted; the server goes on")
    log.add_argument("-n", "--lines", type=_natural, default=50, help="the last N lines first (default 50, 0: all)")


def _extract(sub: argparse._SubParsersAction[argparse.ArgumentParser], *parents: argparse.ArgumentParser) -> None:
    link, output, plan = parents
    extract = sub.add_parser("extract", help="start, stop, status").add_subparsers(
        dest="action", metavar="ACTION", required=True
    )
    start = extract.add_parser(
        "start", parents=[link, output, plan], help="start or resume an extraction on a ready server"
    )
    start.add_argument("--wait", action="store_true", help="watch until it ends (it goes on without us either way)")
    extract.add_parser("stop", parents=[link, output], help="finish what is in flight, then stop; resumable")
    extract.add_parser("status", parents=[link, output], help="how far it is")


def _demo(sub: argparse._SubParsersAction[argparse.ArgumentParser], output: argparse.ArgumentParser) -> None:
    demo = sub.add_parser(
        "demo", parents=[output], help="the whole job on this machine: real SSH, real SGLang on the CPU, a tiny model"
    )
    demo.add_argument("--headless", action="store_true", help="no screen; print the report")
    demo.add_argument("--samples", type=_positive, default=64, help="default 64")
    demo.add_argument(
        "--arch", choices=("deepseek", "llama"), default="deepseek", help="deepseek (MLA and MoE, default) or llama"
    )
    demo.add_argument("--sglang", metavar="VERSION", default="", help="the test bed (default: the newest)")
    demo.add_argument(
        "--dtype", choices=("bfloat16", "float32"), default="bfloat16", help="float32 is exact (default bfloat16)"
    )
    demo.add_argument(
        "--keep", metavar="DIR", default="", help="leave model, tokenized_data.jsonl, dataset and report.json there"
    )
    demo.add_argument("--prepare", action="store_true", help="only set up the test bed")


def _positive(text: str) -> int:
    value = _natural(text)
    if value == 0:
        raise argparse.ArgumentTypeError("at least 1 is needed")
    return value


def _natural(text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        value = -1
    if value < 0:
        raise argparse.ArgumentTypeError(f"a whole number is needed, not {text!r}")
    return value


def _port(text: str) -> int:
    value = _natural(text)
    if not 1 <= value <= 65535:
        raise argparse.ArgumentTypeError(f"a port lies between 1 and 65535, not {text}")
    return value


def _boundaries(text: str) -> tuple[int, ...]:
    values = [_natural(part) for part in text.split(",")]
    if len(set(values)) != len(values):
        raise argparse.ArgumentTypeError(f"{text} names one boundary twice")
    return tuple(sorted(values))


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise argparse.ArgumentTypeError(f"NAME=VALUE is needed, not {text!r}")
    return key, value
