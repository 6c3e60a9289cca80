"""From a command line to a connected link."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from eagle3_console.errors import UsageError
from eagle3_console.link.base import Link, Prompter
from eagle3_console.session import Dial

if TYPE_CHECKING:
    from eagle3_console.link.memory import RememberingPrompter
    from eagle3_console.link.route import SshOptions

LOCAL = "local"
_LEADING = ("ssh_config", "identity", "known_hosts", "host_key", "password_file", "box_dir")


def named(args: argparse.Namespace) -> str:
    """HOST as a person types it again behind ``eagle3-console`` and a command, for a shell: with the options that lead there."""
    return shlex.join([args.host, *leading(args)])


def leading(args: argparse.Namespace) -> list[str]:
    """The options without which the host's name would lead elsewhere, or nowhere."""
    words = []
    for name in _LEADING:
        given = getattr(args, name, "")
        for value in given if isinstance(given, list) else [given] if given else []:
            words += [f"--{name.replace('_', '-')}", value]
    return words


def dialler(args: argparse.Namespace, prompter: Prompter | None = None) -> Dial:
    """What `Session` calls to connect. Nothing is imported or opened before the first call.

    Args:
        args: the connection options of `cli`.
        prompter: who is asked for passwords and new host keys, until the first login worked; default: the terminal.

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

    memory: RememberingPrompter | None = None

    async def dial() -> Link:
        from eagle3_console.link.connect import connect
        from eagle3_console.link.memory import RememberingPrompter
        from eagle3_console.link.prompts import TerminalPrompter

        nonlocal memory
        memory = memory or RememberingPrompter(prompter or TerminalPrompter())
        memory.begin()
        link = await connect(target, _options(args), memory)
        memory.leave()
        return link

    return dial


def _options(args: argparse.Namespace) -> SshOptions:
    from eagle3_console.link.route import SshOptions

    return SshOptions(
        config_files=_config_files(args.ssh_config),
        identity_files=tuple(Path(name).expanduser() for name in args.identity),
        known_hosts=Path(args.known_hosts).expanduser() if args.known_hosts else None,
        host_key=args.host_key,
        accept_new=args.accept_new_host_key,
        connect_timeout=args.connect_timeout,
        password_file=Path(args.password_file).expanduser() if args.password_file else None,
    )


async def _local() -> Link:
    from eagle3_console.link.local import LocalLink

    return LocalLink()


def _config_files(option: str) -> tuple[Path, ...] | None:
    """`None`: the user's own; ``none``, as for ssh, is no file at all."""
    if not option:
        return None
    return () if option == "none" else (Path(option).expanduser(),)
