"""From a host's name to its transport."""

from tui.config import HostEntry
from tui.core.transport import Asker, Transport


def open_transport(entry: HostEntry, asker: Asker) -> Transport:
    """The transport of a host, not yet connected.

    Args:
        entry: `local` is this machine, `demo` the simulated host, anything else goes through SSH.
        asker: answers what connecting may ask.
    """
    if entry.name == "local":
        from tui.core.local import LocalTransport

        return LocalTransport()
    # asyncssh takes a while to import: only those who need it pay.
    from tui.core.ssh import SshTransport

    if entry.name == "demo":
        from tui.demo.client import ensure_demo

        return SshTransport(entry.name, ensure_demo, asker)
    from tui.core.ssh_config import resolve

    return SshTransport(entry.name, lambda: resolve(entry.ssh, name=entry.name), asker)
