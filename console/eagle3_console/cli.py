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
from eagle3_console.arguments import (
    boxes,
    config,
    demo,
    explain,
    export,
    extract,
    init,
    jobs,
    merge,
    options,
    profile,
    replay,
    server,
    space,
)
from eagle3_console.exit_codes import ExitCode

_EPILOG = """\
HOST is what you would give to ssh: a name from ~/.ssh/config, user@host, host:port or ssh://user@host:port;
'local' is this machine without SSH. 'eagle3-console HOST' opens the screen, with several HOSTs a line a box;
'eagle3-console open --help' lists the options of the connection, such as -F FILE and -i FILE.

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
    if not argv:
        build_parser()[0].print_help(sys.stderr)
        return ExitCode.USAGE
    args = parse(argv)
    from eagle3_console import commands as implementation

    return implementation.execute(args)


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """The command line as a namespace; exits with a usage message where it makes no sense."""
    parser, commands = build_parser()
    words = list(argv)
    if words[0] not in (*commands, "-h", "--help", "--version"):
        words.insert(0, "open")  # options may come before HOST, as with ssh
    args, rest = parser.parse_known_args(space.with_action(words))
    if words[0] == "open" and args.host in commands:
        parser.error(f"the command comes first: eagle3-console {args.host} HOST, and the options behind it")
    # argparse takes a list of paths or hosts only directly behind HOST; a person puts them last
    for name in ("paths", "more"):
        if rest and hasattr(args, name) and not any(word.startswith("-") for word in rest):
            setattr(args, name, [*getattr(args, name), *rest])
            rest = []
    if rest:
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    return args


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
    link, output, plan = options.link_options(), options.output_options(), options.plan_options()

    screen = sub.add_parser("open", parents=[link, plan], help="open the screen on HOST (also: eagle3-console HOST)")
    screen.add_argument("--readonly", action="store_true", help="watch only: no key changes anything on the box")
    boxes.more_hosts(screen)
    boxes.add(sub, link, output)
    run = sub.add_parser(
        "run", parents=[link, output, plan], help="the whole job: from connecting to a checked dataset"
    )
    run.add_argument(
        "--stop-server", action="store_true", help="stop the server afterwards (it is left running otherwise)"
    )
    options.extra_key(run)
    options.watch(run, default=True)
    sub.add_parser("doctor", parents=[link, output, plan], help="look at the box, change nothing")
    init.add(sub, link, output, plan)
    sub.add_parser("deploy", parents=[link, output], help="put this console's box side on the box")
    server.add(sub, link, output, plan)
    extract.add(sub, link, output, plan)
    verify = sub.add_parser("verify", parents=[link, output], help="check a dataset on the box against its manifest")
    verify.add_argument(
        "--out",
        metavar="DIR",
        default="",
        help="the dataset, a directory on the box (default: the newest extraction's)",
    )
    verify.add_argument(
        "--server",
        metavar="URL",
        nargs="?",
        const="running",
        default="",
        help="ask a live server too: its probes, and some rows again (without a URL: the server that runs)",
    )
    verify.add_argument("--dump-dir", metavar="DIR", default="", help="of a server that somebody else started")
    report = sub.add_parser("report", parents=[link, output], help="what was made, how, and what comes next")
    report.add_argument("--job", default="", help="an extraction by its job id (default: the newest)")
    export.add(sub, link, output)
    merge.add(sub, link, output)
    profile.add(sub, output)
    config.add(sub, output)
    space.add(sub, link, output)
    jobs.add(sub, link, output)
    explain.add(sub)
    demo.add(sub, output)
    replay.add(sub, output)
    return parser, frozenset(sub.choices)
