"""Arguments of ``server ACTION``."""

from __future__ import annotations

import argparse

from eagle3_console.arguments import bench, log, options, stack
from eagle3_console.arguments.commands import Commands
from eagle3_console.arguments.kinds import positive


def add(sub: Commands, *parents: argparse.ArgumentParser) -> None:
    """Add them to the parser."""
    link, output, plan = parents
    server = sub.add_parser("server", help="start, stop, restart, status, stack, log, bench").add_subparsers(
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
        options.watch(command)
        command.add_argument("--no-wait", action="store_true", help="return at once, do not wait until it is ready")
    restart.add_argument("--yes", action="store_true", help="restart though an extraction runs on it (it waits)")
    stop = server.add_parser("stop", parents=[link, output], help="stop it and prove that nothing is left")
    stop.add_argument(
        "--foreign",
        metavar="PID",
        type=positive,
        help="a server that somebody else started, as 'status --all' shows it",
    )
    stop.add_argument("--confirm", metavar="NAME", default="", help="with --foreign: the box's own name, typed")
    status = server.add_parser("status", parents=[link, output], help="what it is doing")
    status.add_argument("--all", action="store_true", help="also the SGLang servers that somebody else started")
    stack.add(server, link, output)
    bench.add(server, link, output)
    log.add(server, link, output)
