"""An sshd of our own on 127.0.0.1 and a home whose ~/.ssh/config names it `loopback`."""

import os
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Loopback:
    """Context manager: starts sshd (Debian's openssh-server), removes everything afterwards.

    Args:
        programs: a directory searched for programs there before the usual ones; the host then yields to the panel on
            this machine's cores, as one that is elsewhere would.
        alone: it sees no process of this machine but its own, where we may give it a PID namespace (root).
        environment: words `NAME=VALUE` for every command there.

    Attributes:
        home: HOME for the commands under test.
        port: where sshd listens.
        sshd: the process that is sshd, or what gives it its namespace.
    """

    def __init__(self, programs: Path | None = None, *, alone: bool = False, environment: str = "") -> None:
        self._before = ["nice", "-n", "19"] if programs else []
        if alone and os.geteuid() == 0 and shutil.which("unshare"):
            self._before += ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
        self._environment = (f" PATH={programs}:/usr/bin:/bin" if programs else "") + (
            environment and f" {environment}"
        )
        self.directory = Path(tempfile.mkdtemp(prefix="eagletui-bench-"))
        self.home = self.directory / "home"
        self.port = free_port()

    def ssh_config(self, port: int) -> None:
        """Writes ~/.ssh/config with `loopback` at this port (a proxy's, for instance)."""
        (self.home / ".ssh/config").write_text(
            f"Host loopback\n  HostName 127.0.0.1\n  Port {port}\n  IdentityFile {self.home}/.ssh/id_ed25519\n"
            f"  IdentitiesOnly yes\n  UserKnownHostsFile {self.home}/.ssh/known_hosts\n"
        )
        host_key = (self.directory / "host_key.pub").read_text().split()
        (self.home / ".ssh/known_hosts").write_text(f"[127.0.0.1]:{port} {host_key[0]} {host_key[1]}\n")

    def use(self) -> None:
        """Makes this process' own HOME the one that knows `loopback`."""
        os.environ["HOME"] = str(self.home)
        os.environ.pop("SSH_AUTH_SOCK", None)

    def __enter__(self) -> "Loopback":
        ssh = self.home / ".ssh"
        ssh.mkdir(mode=0o700, parents=True)
        for key in (self.directory / "host_key", ssh / "id_ed25519"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
        shutil.copy(ssh / "id_ed25519.pub", self.directory / "authorized_keys")
        (self.directory / "sshd_config").write_text(
            f"ListenAddress 127.0.0.1\nPort {self.port}\nHostKey {self.directory}/host_key\n"
            f"AuthorizedKeysFile {self.directory}/authorized_keys\nStrictModes no\nUsePAM no\nPidFile none\n"
            f"MaxStartups 100\nSetEnv HOME={self.home}{self._environment}\n"
        )
        self.ssh_config(self.port)
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(exist_ok=True)
        sshd = shutil.which("sshd", path="/usr/sbin:/usr/bin")
        if not sshd:
            raise SystemExit("no sshd: apt-get install openssh-server")
        self.sshd = subprocess.Popen(
            [*self._before, sshd, "-D", "-e", "-f", self.directory / "sshd_config"], stderr=subprocess.DEVNULL
        )
        end = time.monotonic() + 10
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
                return self
            except OSError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.05)

    def __exit__(self, *_: object) -> None:
        self.sshd.kill()  # unshare heeds no SIGTERM, and takes its sshd along
        self.sshd.wait()
        shutil.rmtree(self.directory, ignore_errors=True)
