"""From a host's entry to its transport. How the simulated host is reached is handed in: it stands outside the core."""

import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tui.core.config import HostEntry, HostKind
from tui.core.link.transport import Asker, Transport

if TYPE_CHECKING:
    from tui.core.link.ssh_target import SshTarget


@dataclass(frozen=True)
class Simulated:
    """Hosts that are programs of ours.

    Attributes:
        find: where the SSH server of a host of this name is; starts it where it does not run. Raises HostError.
        launch_env: what a launch there passes on of our environment.
    """

    find: "Callable[[str], Awaitable[SshTarget]]"
    launch_env: Callable[[Mapping[str, str]], dict[str, str]]


_simulated: dict[HostKind, Simulated] = {}


def register(kind: HostKind, host: Simulated) -> None:
    """Makes a simulated host known; every program that may open one does so first."""
    _simulated[kind] = host


def open_transport(entry: HostEntry, asker: Asker) -> Transport:
    """The transport of a host, not yet connected.

    Args:
        asker: answers what connecting may ask.
    """
    if entry.kind is HostKind.LOCAL:
        from tui.core.link.local import LocalTransport

        return LocalTransport()
    # asyncssh takes a while to import: only those who need it pay.
    from tui.core.link.ssh import SshTransport

    if entry.kind is not HostKind.SSH:
        return SshTransport(entry.name, lambda: _simulated[entry.kind].find(entry.name), asker)
    from tui.core.link.ssh_config import resolve

    return SshTransport(entry.name, lambda: resolve(entry.ssh, name=entry.name), asker)


def launch_env(entry: HostEntry) -> dict[str, str]:
    """What every launch on a host gets of our environment: speed and seed of a simulated host, else nothing."""
    simulated = _simulated.get(entry.kind)
    return simulated.launch_env(os.environ) if simulated else {}
