"""From a command line to a connected link."""

from __future__ import annotations

import argparse

from eagle3_console.errors import UsageError
from eagle3_console.link.base import Link, Prompter
from eagle3_console.session import Dial

LOCAL = "local"


def dialler(args: argparse.Namespace, prompter: Prompter | None = None) -> Dial:
    """What `Session` calls to connect. Nothing is imported or opened before the first call.

    Args:
        args: the connection options of `cli`.
        prompter: who is asked for passwords and new host keys; default: the terminal.

    Raises:
        UsageError: HOST cannot be understood.
    """
    if args.host == LOCAL:
        return _local
    from eagle3_console.link.target import parse

    try:
        target = parse(args.host)
    except ValueError as error:
        raise UsageError(str(error)) from error

    async def dial() -> Link:
        from eagle3_console.link.connect import SshOptions, connect
        from eagle3_console.link.prompts import TerminalPrompter

        options = SshOptions(
            config_files=_config_files(args.ssh_config),
            identity_files=tuple(args.identity),
            known_hosts=args.known_hosts or None,
            host_key=args.host_key or None,
            accept_new=args.accept_new_host_key,
            connect_timeout=args.connect_timeout,
        )
        return await connect(target, options, prompter or TerminalPrompter())

    return dial


async def _local() -> Link:
    from eagle3_console.link.local import LocalLink

    return LocalLink()


def _config_files(option: str) -> tuple[str, ...] | None:
    """`None`: the user's own; ``none``, as for ssh, is no file at all."""
    if not option:
        return None
    return () if option == "none" else (option,)
