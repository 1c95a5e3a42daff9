"""From a host's name to its transport."""

from tui.core.config import HostEntry
from tui.core.link.transport import Asker, Transport


def open_transport(entry: HostEntry, asker: Asker) -> Transport:
    """The transport of a host, not yet connected.

    Args:
        entry: `local` is this machine, `demo` the simulated host, anything else goes through SSH.
        asker: answers what connecting may ask.
    """
    if entry.name == "local":
        from tui.core.link.local import LocalTransport

        return LocalTransport()
    # asyncssh takes a while to import: only those who need it pay.
    from tui.core.link.ssh import SshTransport

    if entry.name == "demo":
        from tui.demo.client import ensure_demo

        return SshTransport(entry.name, ensure_demo, asker)
    from tui.core.link.ssh_config import resolve

    return SshTransport(entry.name, lambda: resolve(entry.ssh, name=entry.name), asker)
