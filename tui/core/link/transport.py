"""What every host offers, whether it is behind SSH or is this machine.

Everything that runs on a host is a POSIX shell script on the standard input of `/bin/sh -s`: nothing passes
through the login shell's parser (csh and fish need no special case), and nothing needs to be installed.
A script is sent as one brace group, so an upload cut at any byte runs nothing; its output starts after a
per-call marker, so noise from `.bashrc` or a message of the day never shifts a byte.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from tui.core.errors import HostError, Slug


class HostKeyChanged(HostError):
    """The host shows another key than the one that is known. Nothing accepts it; the fields are for the screen.

    Attributes:
        key_type, fingerprint: of the key shown now.
        known_type, known_fingerprint: of the key that is known.
        where: file:line of the known key, None where it is not from a file.
        remedy: the command that removes the known key, None where there is none.
    """

    slug = Slug.HOST_KEY_CHANGED

    def __init__(
        self,
        message: str,
        hint: str,
        *,
        key_type: str,
        fingerprint: str,
        known_type: str,
        known_fingerprint: str,
        where: str | None,
        remedy: str | None,
    ) -> None:
        super().__init__(message, hint)
        self.key_type = key_type
        self.fingerprint = fingerprint
        self.known_type = known_type
        self.known_fingerprint = known_fingerprint
        self.where = where
        self.remedy = remedy


class LinkState(StrEnum):
    """State of the link to a host."""

    CONNECTING = "connecting"
    UP = "up"
    LOST = "lost"  # reconnecting by itself, with back-off
    WAITING = "waiting"  # a person must answer a prompt, or ask for the next try
    REFUSED = "refused"  # host key, authentication or configuration: no retry without a person
    CLOSED = "closed"


@dataclass(frozen=True)
class LinkStatus:
    """One observation of the link. Times are `time.monotonic()` seconds of this machine."""

    host: str
    state: LinkState
    since: float
    last_byte_at: float | None = None
    rtt_s: float | None = None
    attempt: int = 0
    retry_at: float | None = None
    error: HostError | None = None
    address: str | None = None  # user@name:port as resolved, None for the local machine
    notice: str | None = None  # something a person should know though the link is fine, one line


@dataclass(frozen=True)
class Completed:
    """A script that ran to its end. `exit_status` is the script's own, carried by an end marker."""

    exit_status: int
    stdout: bytes
    stderr: bytes


@dataclass(frozen=True)
class HttpResponse:
    """An HTTP answer with its whole body."""

    status: int
    headers: Mapping[str, str]  # names in lower case
    body: bytes


class Channel(Protocol):
    """A `/bin/sh -s` somewhere. Reads raise LinkLost when the way there is dead, and give b"" at the end.

    Attributes:
        used: a script has run in it before.
        waits: it waits for another script, and may be given one.
    """

    used: bool
    waits: bool

    def write(self, data: bytes) -> None:
        """Queues bytes for the standard input; never blocks, never fails."""

    def write_eof(self) -> None: ...

    async def drain(self) -> None:
        """Waits until most of what was written is under way."""

    async def read_stdout(self, max_bytes: int) -> bytes: ...
    async def read_stderr(self, max_bytes: int) -> bytes: ...

    async def ended(self) -> int | str | None:
        """After the end of the output: exit status, name of a signal, or None where the host never reported it."""

    def close(self) -> None:
        """Gives the channel up at once."""


class ByteStream(Protocol):
    """The standard output of a script that is still running."""

    async def read(self, max_bytes: int = 262_144) -> bytes:
        """The next bytes, b"" at the end. Raises LinkLost if the link died before the end."""

    async def exit_status(self) -> int:
        """Waits for the end (unread output is dropped); raises LinkLost where the host never reported how it ended."""

    def stderr_tail(self) -> bytes:
        """The last 64 KiB that the script wrote to its standard error so far."""


class Connection(Protocol):
    """A byte pipe to a TCP port as seen from the host."""

    async def read(self, max_bytes: int = 65_536) -> bytes: ...
    async def write(self, data: bytes) -> None: ...
    async def close(self) -> None: ...


@dataclass(frozen=True)
class HostKeyQuestion:
    """An unknown host key, to be shown to a person. All text is already sanitised."""

    host: str  # as the user names it
    address: str  # user@name:port
    ip: str | None
    key_type: str
    fingerprint: str  # SHA256:...
    hop: str | None = None  # the jump host this is about, if it is not the target


@dataclass(frozen=True)
class Prompt:
    """A question from authentication: passphrase, password, one-time code. Text is already sanitised."""

    host: str
    title: str
    text: str
    fields: tuple[tuple[str, bool], ...] = field(default=())  # (label, echo)


class Asker(Protocol):
    """Answers questions while connecting: the panel by dialogs, the command line on its terminal, tests by table."""

    async def host_key(self, question: HostKeyQuestion) -> bool: ...
    async def prompt(self, prompt: Prompt) -> tuple[str, ...] | None:
        """Answers in the order of the fields, or None to give up."""


class SilentAsker:
    """Refuses everything: for commands that run where nobody can answer."""

    async def host_key(self, question: HostKeyQuestion) -> bool:
        """No."""
        return False

    async def prompt(self, prompt: Prompt) -> tuple[str, ...] | None:
        """Gives up."""
        return None


class Transport(Protocol):
    """One host. Safe to use from many tasks of one event loop; calls wait while the link is being made."""

    host: str

    async def connect(self) -> None:
        """First connection. Raises HostError; afterwards the link is kept and renewed in the background."""

    async def run(
        self, script: str, *, timeout_s: float = 30.0, max_output_bytes: int = 8 << 20, alone: bool = False
    ) -> Completed:
        """Runs a script to its end. Raises LinkLost (outcome unknown), TimedOut, HostError; never returns half.

        Args:
            alone: no other script follows in its shell, because what it starts might write after its end.
        """

    def stream(self, script: str) -> AbstractAsyncContextManager[ByteStream]:
        """Runs a script and reads its standard output as it comes. Leaving the context ends the channel at once."""

    async def put(self, data: bytes, path: str, *, mode: int = 0o600) -> None:
        """Writes a file (whole or not at all) through the standard input of a script; `~/` is the home there."""

    def open_connection(self, host: str, port: int) -> AbstractAsyncContextManager[Connection]:
        """A TCP connection made by the host, without a local port. Raises HostError(slug="refused") if refused."""

    def shell(self, *, for_stream: bool = False) -> AbstractAsyncContextManager[Channel]:
        """A `/bin/sh -s` there, for what has a protocol of its own with it (`scripts`); ends its script on the way out."""

    def status(self) -> LinkStatus: ...

    def watch(self) -> AsyncIterator[LinkStatus]:
        """The present status, then every change; ends when the transport is closed."""

    def reconnect(self) -> None:
        """Try at once instead of at the next back-off step; also the way out of WAITING and REFUSED."""

    async def close(self) -> None:
        """Returns within 2 s even on a dead link."""
