"""A place inside a host: the host's transport with words in front of `/bin/sh -s` (`docker exec -i C`, `srun --overlap …`).

The words are data; whatever passes standard input, both outputs and the exit status on will do. They run from a script on
the host, so nothing passes through the login shell here either: a line starts them by `exec`, and only when that line has
been taken is more sent, which they then read. That costs a round trip more than the host itself.

What runs there must end when the way there is cut: `kill -9` of `docker exec` leaves its process running, and gives it no
broken pipe but only the end of its standard input. So here the end of the input ends every script, also one that was to
run to its end; what shall go on is the host's business.
"""

import contextlib
import shlex
from collections.abc import AsyncIterator, Sequence

from tui.core.errors import HostError, Slug
from tui.core.link.over_shell import OverShell
from tui.core.link.programs import program
from tui.core.link.scripts import COMMAND, NOISE_LIMIT_BYTES, READ_BYTES, Explainer, Input, ScriptStream, new_nonce
from tui.core.link.transport import Channel, Connection, Transport
from tui.core.text import one_line

_NO_PYTHON = 127
_RELAY = """for p in python3 python; do
  if command -v $p >/dev/null 2>&1; then exec $p -c {text} {host} {port}; fi
done
exit 127
"""


class _Entered:
    """A channel whose shell is the one inside; the bytes that came with the door's marker are read first."""

    def __init__(self, channel: Channel, rest: bytes) -> None:
        self._channel, self._rest = channel, rest
        self.used = self.waits = False  # each script enters anew
        self.write, self.write_eof, self.drain = channel.write, channel.write_eof, channel.drain
        self.read_stderr, self.ended, self.close = channel.read_stderr, channel.ended, channel.close

    async def read_stdout(self, max_bytes: int) -> bytes:
        data, self._rest = self._rest, b""
        return data or await self._channel.read_stdout(max_bytes)


class _RelayedConnection:
    """A connection made by a program inside, whose standard input and output are its two directions."""

    def __init__(self, channel: Channel, stream: ScriptStream, first: bytes) -> None:
        self._channel, self._stream, self._first = channel, stream, first

    async def read(self, max_bytes: int = 65_536) -> bytes:
        data, self._first = self._first, b""
        return data or await self._stream.read(max_bytes)

    async def write(self, data: bytes) -> None:
        self._channel.write(data)
        await self._channel.drain()

    async def close(self) -> None:
        self._channel.write_eof()


class InsideTransport(OverShell):
    """`Transport` of a place that a host's transport leads to. Its link is the host's; closing it closes nothing.

    Args:
        outer: the host's.
        prefix: the words in front of `/bin/sh -s`.
        name: what messages call the place.
    """

    use = Input.ANY_ENDS

    def __init__(self, outer: Transport, prefix: Sequence[str], name: str) -> None:
        self.host = f"{outer.host}: {name}"
        self._outer, self._prefix, self._name = outer, tuple(prefix), name
        self.connect, self.status, self.watch, self.reconnect = (
            outer.connect,
            outer.status,
            outer.watch,
            outer.reconnect,
        )

    @contextlib.asynccontextmanager
    async def shell(self, *, for_stream: bool = False) -> AsyncIterator[Channel]:
        """See `Transport.shell`: one that ended while it waited is replaced."""
        while True:
            async with self._outer.shell(for_stream=for_stream) as channel:
                rest = await self._enter(channel)
                if rest is None:
                    continue
                yield _Entered(channel, rest)
                return

    async def _enter(self, channel: Channel) -> bytes | None:
        """Starts the words in a shell of the host: what came behind their marker; None where that shell ended while it waited."""
        marker = f"{new_nonce()} door\n".encode()
        # One line, so that the shell has read nothing of what comes behind it.
        door = f"printf '%s door\\n' {marker.split()[0].decode()}; exec {shlex.join(self._prefix)} {COMMAND}\n"
        channel.write(door.encode())
        seen = b""
        while marker not in seen:
            chunk = await channel.read_stdout(READ_BYTES)
            seen += chunk
            if not chunk and channel.used and not seen and await channel.ended() is not None:
                return None
            if not chunk or len(seen) > NOISE_LIMIT_BYTES:
                noise = one_line(seen[-200:].decode("utf-8", "replace"))
                raise HostError(f"{self._outer.host}: /bin/sh did not run: {noise}", slug=Slug.UNSUPPORTED_HOST)
        return seen.partition(marker)[2]

    def _explainer(self) -> Explainer:
        return Explainer(
            self._outer.host,
            f"there is no way into {self._name}",
            f"`{one_line(shlex.join(self._prefix), 120)} /bin/sh` must work there: it takes the right to, and a shell inside",
        )

    @contextlib.asynccontextmanager
    async def open_connection(self, host: str, port: int) -> AsyncIterator[Connection]:
        """See `Transport.open_connection`: as seen from inside, where the network may be another; needs Python there."""
        script = _RELAY.format(text=shlex.quote(program("relay.py")), host=shlex.quote(host), port=port)
        async with self.shell(for_stream=True) as channel:
            stream = ScriptStream(channel, self._explainer())
            try:
                await stream.start(script, Input.DATA)
                first = await stream.read()
                if not first:
                    raise await self._unconnected(stream, f"{host}:{port}")
                connection = _RelayedConnection(channel, stream, first.removeprefix(b"\n"))
                yield connection
            finally:
                await stream.close()

    async def _unconnected(self, stream: ScriptStream, where: str) -> HostError:
        status = await stream.exit_status()
        if status == _NO_PYTHON:
            return HostError(
                f"{self.host}: there is no Python to reach {where} with",
                "an image of SGLang has one; name another container",
                slug=Slug.NO_PYTHON,
            )
        return HostError(
            f"{self.host}: nothing answers on {where} there: {one_line(stream.stderr_tail().decode('utf-8', 'replace'))}",
            "is the server running, and is this its port?",
            slug=Slug.REFUSED,
        )

    async def close(self) -> None:
        """Nothing to do here: the link is the host's."""
