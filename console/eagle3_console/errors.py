"""Every error a person may see, each with a full sentence (what, where, why, what to do) and an exit code.

::

    ConsoleError
    ├── UsageError          2    the command line is wrong
    ├── LinkError           3/4  see `eagle3_console.link.errors`
    ├── BoxNotFit           5    the box lacks something the run needs
    ├── BoxRefused          5    the box will not do what was asked
    │   └── Stopped         5    an extraction ended because somebody asked for it
    ├── ServerFailed        6    the SGLang server did not come up, died or answered wrong
    │   └── ServerStopped   6    it was stopped while it came up, because somebody asked for it
    └── AgentFault          1    the agent and the console do not understand each other
        └── AgentSilent     3    the agent does not answer in time
"""

from __future__ import annotations

from eagle3_console.exit_codes import ExitCode


class ConsoleError(Exception):
    """Base of all errors that are printed as one sentence instead of a traceback."""

    exit_code: int = ExitCode.INTERNAL


class UsageError(ConsoleError):
    """The command line is wrong."""

    exit_code = ExitCode.USAGE


class BoxNotFit(ConsoleError):
    """The box lacks something the run needs."""

    exit_code = ExitCode.BOX_NOT_FIT


class BoxRefused(ConsoleError):
    """The box will not do what was asked."""

    exit_code = ExitCode.BOX_NOT_FIT


class Stopped(BoxRefused):
    """An extraction ended before it was finished because somebody asked for it."""


class ServerFailed(ConsoleError):
    """The SGLang server did not come up, died, or answered wrong."""

    exit_code = ExitCode.SERVER_FAILED


class ServerStopped(ServerFailed):
    """The server was stopped while it came up, because somebody asked for it."""


class AgentFault(ConsoleError):
    """The agent and the console do not understand each other."""

    exit_code = ExitCode.INTERNAL


class AgentSilent(AgentFault):
    """The agent does not answer in time: the link hangs, or the box is too busy to answer."""

    exit_code = ExitCode.NO_CONNECTION
