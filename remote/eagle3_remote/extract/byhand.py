"""The extraction without a console: options in place of a run directory, and what they leave open asked of the server itself."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from eagle3_patch import layout
from eagle3_remote.extract import dataset as ds
from eagle3_remote.extract import shards
from eagle3_remote.extract.errors import EXIT_SERVER, ExtractionError
from eagle3_remote.extract.progress import say
from eagle3_remote.protocol import ExtractServer, ExtractSpec, PatchMarker, encode
from eagle3_remote.rpc import ServerFault
from eagle3_remote.server import probe, serverinfo

_DESCRIPTION = """\
Extract hidden states from running, patched SGLang servers on this machine into a dataset directory.
Started again with the same options it goes on where it ended. Ctrl-C finishes what is in flight; a second one does not.
"""


def parser() -> argparse.ArgumentParser:
    """The options; those of a hand-made script have its names."""
    made = argparse.ArgumentParser(prog="python -m eagle3_remote.extract", description=_DESCRIPTION)
    made.formatter_class = argparse.RawDescriptionHelpFormatter
    add = made.add_argument
    add(
        "--server-url",
        "--server",
        metavar="URL",
        action="append",
        required=True,
        help="may be repeated, each with its --hs-dump-dir",
    )
    add("--prepared-data", metavar="FILE", required=True, help="tokenized_data.jsonl, an Arrow dataset or Parquet")
    add("--output-dir", metavar="DIR", required=True, help="the dataset; its parent must exist")
    add(
        "--hs-dump-dir",
        metavar="DIR",
        action="append",
        default=[],
        help=f"where the server dumps (default: ${layout.ENV_DUMP_DIR})",
    )
    add("--max-seq-len", metavar="N", type=int, default=0, help="cut samples here (default: never cut)")
    add("--model", metavar="DIR", default="", help="default: what the server serves")
    add("--boundaries", metavar="A,B,C", default="", help="default: what the server captures")
    add("--final", choices=("pre", "post"), default="", help="default: as the server dumps it")
    add("--samples", metavar="N", type=int, default=0, help="only the first N (default: all)")
    add("--tokens-in-flight", metavar="N", type=int, default=0, help="at each server (default: four prefill chunks)")
    add("--shuffle", metavar="SEED", type=int, help="another order than the file's")
    add("--shard", metavar="I/N", default="", help="this part alone (default: what Slurm, Kubernetes or torchrun say)")
    add("--on-bad", choices=("skip", "stop"), default="skip", help="a bad line: leave it out (default) or stop")
    add("--duplicates", choices=("keep", "skip"), default="keep", help="samples with the ids of an earlier one")
    add(
        "--on-trouble",
        choices=("pause", "stop"),
        default="stop",
        help="three failures of one kind in a row (default: stop)",
    )
    add("--no-probe", action="store_true", help="do not ask the server questions with known answers first")
    return made


def read(argv: Sequence[str]) -> tuple[str, ExtractSpec]:
    """(run directory, spec) of a command line; the run directory is the dataset's hidden folder, which is made.

    Raises:
        ExtractionError: the options do not fit each other, the output will not do or is in use, or no patched server answers.
        SystemExit: as argparse ends.
    """
    args = parser().parse_args(argv)
    dumps = args.hs_dump_dir or [os.environ.get(layout.ENV_DUMP_DIR) or os.environ.get(layout.ENV_DUMP_DIR_OLD) or ""]
    if len(dumps) != len(args.server_url) or not all(dumps):
        raise ExtractionError(
            f"{len(args.server_url)} servers and {len([one for one in dumps if one])} dump directories are named: "
            "each --server-url needs its --hs-dump-dir, in the same order."
        )
    if not args.shard:
        shard, names = shards.from_environment(os.environ)
        if names:
            args.shard, args.output_dir = (
                str(shard),
                f"{args.output_dir.rstrip('/')}-shard-{shard.index}-of-{shard.count}",
            )
            say(f"Shard {shard} of the input, by {names}: into {args.output_dir}.")
    out, data = os.path.abspath(args.output_dir), os.path.abspath(args.prepared_data)
    ds.check_place(out, args.model, data)
    urls = [url.rstrip("/") for url in args.server_url]
    dumps = [os.path.abspath(one) for one in dumps]
    info, why = serverinfo.ask_info(urls[0])
    if not info:
        raise ExtractionError(f"No SGLang server answers at {urls[0]}: {why}. Start it first.", EXIT_SERVER)
    model = os.path.abspath(args.model or str(info["model_path"]))
    dataset = ds.prepare(out, model, data)
    os.close(ds.take_lock(dataset, dataset.ours))  # refused here, before anything of the other run is overwritten
    marker = None if args.boundaries and args.final else _learn(urls[0], dumps[0])
    spec = ExtractSpec(
        data=data,
        out=dataset.root,
        server_url=urls[0],
        dump_dir=dumps[0],
        model=model,
        boundaries=_boundaries(args.boundaries, marker),
        final=args.final or (marker.final if marker else "pre"),
        max_seq_len=args.max_seq_len,
        limit=args.samples,
        tokens_in_flight=args.tokens_in_flight,
        on_bad=args.on_bad,
        extra_key=not info.get("disable_radix_cache", False) and _keyed(info),
        duplicates=args.duplicates,
        shuffle=args.shuffle,
        shard=args.shard,
        servers=tuple(ExtractServer(url, place) for url, place in zip(urls[1:], dumps[1:], strict=True)),
        on_trouble=args.on_trouble,
        probe=not args.no_probe,
    )
    with open(os.path.join(dataset.ours, "spec.json"), "w", encoding="utf-8") as file:
        json.dump({"message": encode(spec)}, file, indent=1)
    return dataset.ours, spec


def _keyed(info: dict[str, Any]) -> bool:
    """Whether requests under keys of their own are kept apart; where they are not, the cache itself is refused later."""
    return serverinfo.unfit_for_extra_key(info, str(info.get("version") or "")) is None


def _learn(url: str, dump_dir: str) -> PatchMarker:
    try:
        return probe.learn(url, Path(dump_dir), 1)
    except ServerFault as error:
        raise ExtractionError(str(error), EXIT_SERVER) from None


def _boundaries(text: str, marker: PatchMarker | None) -> tuple[int, ...]:
    if not text:
        return marker.boundaries if marker else ()
    try:
        return layout.parse_boundaries(text)
    except ValueError as error:
        raise ExtractionError(f"--boundaries: {error}.") from None
