"""Every way a link can fail, each as a full sentence (what, where, why, what to do), as a tree.

`eagle3_console.link.failures` makes them from what asyncssh and the operating system raise.

::

    ConsoleError
    └── LinkError                  3
        ├── ConfigError            3    the SSH configuration cannot be read
        ├── NoConnection           3    the box was not reached
        │   ├── UnknownHost             no such name
        │   ├── RefusedPort             nothing listens there
        │   ├── Unreachable             no route
        │   └── HandshakeFailed         something answered, but no SSH came about
        ├── LinkTimeout            3    no answer in time
        ├── LinkLost               3    the connection broke later on
        ├── ChannelRefused         3    the box opens no further session, or forwards nothing
        ├── ChannelClosed          3    the program at the other end is gone
        ├── LoginRefused           4    no key and no password was accepted
        │   └── KeyUnusable             a key file that was named cannot be used
        ├── ShellRefused           4    logged in, but the login shell runs no programs
        └── HostKeyError           4    the box could not prove who it is
            ├── HostKeyUnknown          never seen before, and nobody said yes
            ├── HostKeyChanged          another key than the one stored or asked for
            └── HostKeyRevoked          the key is marked as revoked
"""

from __future__ import annotations

from eagle3_console.errors import ConsoleError
from eagle3_console.exit_codes import ExitCode


class LinkError(ConsoleError):
    """Base of all errors of a link; `exit_code` says whether it is about the way there (3) or about trust (4)."""

    exit_code = ExitCode.NO_CONNECTION


class ConfigError(LinkError):
    """The SSH configuration cannot be read."""


class NoConnection(LinkError):
    """The box was not reached."""


class UnknownHost(NoConnection):
    """The name lookup failed."""


class RefusedPort(NoConnection):
    """Nothing listens on that port."""


class Unreachable(NoConnection):
    """No route to the box."""


class HandshakeFailed(NoConnection):
    """Something answered, but no SSH connection came about."""


class LinkTimeout(LinkError):
    """No answer in time."""


class LinkLost(LinkError):
    """The connection broke after it stood."""


class ChannelRefused(LinkError):
    """The box opens no further session on this connection, or forwards nothing."""


class ChannelClosed(LinkError):
    """The program at the other end of a channel is gone, or the channel was closed here."""


class LoginRefused(LinkError):
    """The box accepted no key and no password."""

    exit_code = ExitCode.LOGIN


class KeyUnusable(LoginRefused):
    """A key or password file that was named cannot be used."""


class ShellRefused(LinkError):
    """The login worked, but the login shell runs no programs."""

    exit_code = ExitCode.LOGIN


class HostKeyError(LinkError):
    """The box could not prove who it is."""

    exit_code = ExitCode.LOGIN


class HostKeyUnknown(HostKeyError):
    """A box never seen before, and nobody said that its key is right."""


class HostKeyChanged(HostKeyError):
    """The box shows another key than the one that is stored or was asked for."""


class HostKeyRevoked(HostKeyError):
    """The box shows a key that is marked as revoked."""
