"""Arguments of ``extract ACTION``."""

from __future__ import annotations

import argparse

from eagle3_console.arguments.commands import Commands
from eagle3_console.arguments.kinds import natural, positive
from eagle3_console.arguments.options import extra_key, watch


def add(sub: Commands, *parents: argparse.ArgumentParser) -> None:
    """Add them to the parser."""
    link, output, plan = parents
    extract = sub.add_parser("extract", help="start, plan, pause, resume, budget, stop, status, submit").add_subparsers(
        dest="action", metavar="ACTION", required=True
    )
    start = extract.add_parser(
        "start", parents=[link, output, plan], help="start or resume an extraction on a ready server"
    )
    start.add_argument("--wait", action="store_true", help="watch until it ends (it goes on without us either way)")
    start.add_argument(
        "--server-url",
        metavar="URL",
        default="",
        help="through a patched server on the box that somebody else started, as 'server status --all' shows it",
    )
    start.add_argument(
        "--server",
        metavar="URL",
        action="append",
        default=[],
        help="one more patched server on the box for the same extraction, may be repeated",
    )
    start.add_argument(
        "--on-trouble",
        choices=("pause", "stop"),
        default="",
        help="three failures of one kind in a row (default: pause until 'extract resume'; with --wait: stop)",
    )
    extra_key(start)
    watch(start)
    forecast = extract.add_parser(
        "plan", parents=[link, output, plan], help="tokens, bytes, space and time, by 32 samples that are not kept"
    )
    extra_key(forecast)
    extract.add_parser(
        "pause", parents=[link, output], help="finish what is in flight, send nothing more until 'resume'"
    )
    extract.add_parser("resume", parents=[link, output], help="go on after a pause")
    budget = extract.add_parser(
        "budget", parents=[link, output], help="change how many tokens are in flight, while it runs"
    )
    budget.add_argument("tokens", metavar="N", type=natural, help="at each server; 0: as it was started with")
    stop = extract.add_parser("stop", parents=[link, output], help="finish what is in flight, then stop; resumable")
    status = extract.add_parser("status", parents=[link, output], help="how far it is")
    status.add_argument("--watch", action="store_true", help="of an array: tell until no task runs or waits any more")
    for command in (stop, status):
        command.add_argument(
            "--array",
            metavar="OUT",
            default="",
            help="of the Slurm array that extracts to OUT (default: the last start)",
        )
    submit = extract.add_parser(
        "submit",
        parents=[link, output, plan],
        help="as a Slurm job array from the login host HOST; goes on when it ended early",
    )
    submit.add_argument("--slurm", action="store_true", required=True, help="with Slurm, the only one there is")
    submit.add_argument(
        "--array", metavar="N", type=positive, default=1, help="so many tasks, each a server and a shard (default 1)"
    )
    submit.add_argument(
        "--at-once", metavar="N", type=natural, default=0, help="so many run at once (default: as many as can)"
    )
    submit.add_argument(
        "--sbatch-arg",
        metavar="ARG",
        action="append",
        default=[],
        help="one more argument of sbatch, may be repeated: --sbatch-arg=--gres=gpu:8",
    )
    submit.add_argument("--dry-run", action="store_true", help="print the batch script and submit nothing")
