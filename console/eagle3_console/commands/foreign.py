"""SGLang servers on the box that somebody else started: listed, and, confirmed by hand, stopped."""

from __future__ import annotations

import argparse

from eagle3_console import units
from eagle3_console.commands.context import open_flow, print_stop, snapshot
from eagle3_console.errors import UsageError
from eagle3_console.exit_codes import ExitCode
from eagle3_console.flow import STOP_SECONDS
from eagle3_console.headless import print_json, print_text
from eagle3_remote.protocol import ForeignServer, StopReport

_LOOK_SECONDS = 60.0


async def status_all(args: argparse.Namespace) -> int:
    """Our server, and every other SGLang server on the box."""
    async with open_flow(args) as flow:
        server = (await snapshot(flow)).server
        hello = await flow.session.attach()
        found = await flow.session.call_list("server.foreign", {}, ForeignServer, wait=_LOOK_SECONDS)
        if args.json:
            print_json({"server": server, "foreign": found})
        else:
            lines = [f"ours: {server.phase.value}: {server.sentence}"]
            for one in found:
                lines += ["", *foreign_lines(one, args.host, hello.host)]
            if not found:
                lines.append("No other SGLang server was found on this box.")
            print_text("\n".join(lines))
        return ExitCode.GOOD


async def stop_foreign(args: argparse.Namespace) -> int:
    """Stop a server that ``server status --all`` has shown, where the box's name is typed."""
    if not args.confirm:
        raise UsageError(
            f"Pid {args.foreign} is not a server of ours: to stop it all the same, type the box's own name after --confirm "
            f"(it stands in 'eagle3-console server status {args.host} --all')."
        )
    async with open_flow(args) as flow:
        asked = {"pid": args.foreign, "confirm": args.confirm}
        stopped = await flow.change("server.stop_foreign", asked, StopReport, wait=STOP_SECONDS)
        return print_stop(stopped, args, ExitCode.SERVER_FAILED)


def foreign_lines(server: ForeignServer, host: str, name: str) -> list[str]:
    """One server for a person: who, what, with which settings, whether it can be extracted through, how to stop it."""
    lines = [f"pid {server.pid}: {server.sentence}", f"  runs for {units.duration(server.uptime)}"]
    if server.job:
        lines.append(f"  started from another eagle3-console folder: job {server.job}")
    if server.settings:
        lines.append("  " + ", ".join(settings_words(server)))
    if server.argv:
        lines.append("  " + " ".join(server.argv))
    if server.log_path:
        lines.append(f"  log {server.log_path}")
    if server.unfit:
        lines.append("  no extraction can go through it: " + " ".join(server.unfit))
    else:
        dump = "" if server.dump_dir else " --dump-dir DIR"
        keyed = " --extra-key" if server.settings.get("disable_radix_cache") == "False" else ""
        lines.append(
            f"  to extract through it: eagle3-console extract start {host} --server-url {server.url}{dump}{keyed} …"
        )
    lines.append(f"  to stop it: eagle3-console server stop {host} --foreign {server.pid} --confirm {name}")
    return lines


def settings_words(server: ForeignServer) -> list[str]:
    """The settings that matter: the radix cache always, the others where they are not off, unset or 1."""
    settings = dict(server.settings)
    radix = {"True": "off", "False": "ON"}.get(settings.pop("disable_radix_cache", ""), "unknown")
    parts = [
        f"{name} {value}" for name, value in settings.items() if value not in ("False", "None", "1", "", server.model)
    ]
    return [f"radix cache {radix}", *parts]
