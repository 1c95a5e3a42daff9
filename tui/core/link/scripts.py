"""How a script travels to `/bin/sh -s` and its answer comes back; the same over SSH and on this machine.

The script is sent as one brace group, so a shell that gets only part of it meets the end of its input inside the
group and runs nothing. Answers start after a marker with a fresh random word, preceded by a newline (noise of
`.bashrc` may lack one), and end with a second marker that carries the exit status: servers that never send an exit
status work, and a dead link is never taken for success. A streamed standard output has no end marker in it, that
one goes to standard error; so every byte after the first marker is the script's own.

A shell whose script has ended takes another one, which saves opening a channel and one more start of the login shell: each runs in
a subshell, so `exit`, `cd`, traps and variables are its own, and the shell's input is nobody's but the watcher's until both end markers are
out. A script shares `$$` with those before it. It ends the shell where `setsid` is missing, since what it left running is then in
the process group that a later script's end would signal.

Ending a script from here: closing a channel does not stop what runs behind it. A watcher beside the script reads
the channel's standard input. A line there (our deadline, a cancelled call, leaving a stream) makes it send SIGTERM
to the process group, and SIGKILL two seconds later. For streams the end of the input does the same, so that the
loss of the link leaves no orphaned `tail`; for other scripts it does not, because a launch or a stop that is under
way must come to its end. What shall outlive the script takes its own session (`setsid`).
"""

import asyncio
import re
import secrets
import shlex
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import Enum

from tui.core.errors import HostError, LinkLost, Slug
from tui.core.link.transport import Channel, Completed
from tui.core.text import one_line

COMMAND = "/bin/sh -s"  # the only command ever asked for: every login shell parses it alike
READ_BYTES = 262_144
NOISE_LIMIT_BYTES = 4 << 20  # before the begin marker; more than that is not a message of the day
STDERR_TAIL_BYTES = 65_536
AFTER_END_S = 1.0  # how long a stream may stay silent after its script ended (a child that holds its output)
_MARKER_LENGTH = 64


class Input(Enum):
    """What the channel's standard input means to a script."""

    LINE_ENDS = "line"  # a line ends it, a lost link does not
    ANY_ENDS = "any"  # a line or the end of the input ends it
    DATA = "data"  # it is the script's own standard input


_WATCHER = """( IFS= read -r _ <&8%s; trap '' TERM; kill -s TERM 0; sleep 2; kill -s KILL 0 ) >/dev/null 2>&1 9>&- &
_eagletui_watcher=$!
"""

# Standard error is silenced first: bash tells there about the watcher that is ended. It is ended after the marker is
# out: BusyBox gives up a write to a full pipe when a child dies meanwhile. It is waited for, so that it takes no byte of what comes next.
_UNWATCH = """exec 2>/dev/null
{end}
kill -s KILL "$_eagletui_watcher"
wait "$_eagletui_watcher"
exec 2>&9
"""


def wrap(script: str, nonce: str, use: Input, *, streamed: bool = False) -> bytes:
    """The text sent to `/bin/sh -s`: markers and watcher around `script`, all in one brace group.

    `streamed`: standard output gets no end marker.
    """
    begin = f"printf '\\n{nonce} begin\\n'"
    end = f"printf '\\n{nonce} end %d\\n' \"$_eagletui_status\""
    last = f'printf \'\\n{nonce} end %d last\\n\' "$_eagletui_status" >&2\nexit "$_eagletui_status"\n'
    body = f"(\nexec 8<&- 9>&-\n{script}\n)\n_eagletui_status=$?\n"
    if use is Input.DATA:
        told = "" if streamed else f"{end}\n"
        return f"{{\n{{\n{begin}; {begin} >&2\n{body}{told}{last}}} 8</dev/null 9>&2\n}}\n".encode()
    if use is Input.ANY_ENDS or streamed:
        tail = _UNWATCH.format(end=":" if streamed else end) + last
    else:
        more = f"if command -v setsid >/dev/null 2>&1; then {end} >&2; else\n{last}fi\n"
        tail = _UNWATCH.format(end=end) + more
    watcher = _WATCHER % (" || exit 0" if use is Input.LINE_ENDS else "")
    # Two groups: an upload that is cut before the redirections runs nothing either.
    return f"{{\n{{\n{begin}; {begin} >&2\n{watcher}{body}{tail}}} 8<&0 9>&2 </dev/null\n}}\n".encode()


class _Output:
    """One output of a script: drops what comes before the begin marker, finds the end marker."""

    def __init__(self, nonce: str) -> None:
        self._begin = f"\n{nonce} begin\n".encode()
        self._end = re.compile(rb"\n" + nonce.encode() + rb" end (\d+)( last)?\n")
        self.data = bytearray()
        self.began = False
        self.status: int | None = None
        self.last = False  # the shell ends with this script

    def feed(self, chunk: bytes) -> None:
        """Takes bytes; afterwards `data` holds noise until `began`, then the script's own up to the end marker."""
        if self.status is not None:
            return
        start = max(0, len(self.data) - _MARKER_LENGTH)
        self.data += chunk
        if not self.began:
            at = self.data.find(self._begin, start)
            if at < 0:
                return
            del self.data[: at + len(self._begin)]
            self.began = True
            start = 0
        found = self._end.search(self.data, start)
        if found:
            self.status, self.last = int(found.group(1)), found.group(2) is not None
            del self.data[found.start() :]

    def keep_tail(self, limit: int) -> None:
        """Drops all but the last `limit` bytes."""
        if len(self.data) > limit:
            del self.data[:-limit]


def new_nonce() -> str:
    """A word that no output holds."""
    return "et" + secrets.token_hex(16)


class NoShell(HostError):
    """The shell ended without a sign of the script: nothing of it ran."""


@dataclass(frozen=True)
class Explainer:
    """Why a script gave no answer, in messages that name the host."""

    host: str
    no_shell_means: str = "/bin/sh did not run"
    no_shell_hint: str = "the account needs a login shell that may run /bin/sh (not nologin, not a forced command)"

    def lost(self) -> LinkLost:
        return LinkLost(
            f"{self.host}: the link was lost before the answer was complete",
            "what was asked may or may not have happened; look again when the link is back",
        )

    def no_shell(self, noise: bytes, stderr: bytes) -> NoShell:
        said = one_line(stderr.decode("utf-8", "replace")) or one_line(noise.decode("utf-8", "replace"))
        return NoShell(
            f"{self.host}: {self.no_shell_means}" + (f": {said}" if said else ""),
            self.no_shell_hint,
            slug=Slug.UNSUPPORTED_HOST,
        )

    def ended(self, how: int | str, stderr: bytes) -> HostError:
        said = one_line(stderr.decode("utf-8", "replace"))
        by = f"by signal {how}" if isinstance(how, str) else f"with status {how}"
        return HostError(
            f"{self.host}: the command was ended on the host {by}" + (f": {said}" if said else ""),
            "someone or something on the host ended it; look at its memory and its system log",
            slug=Slug.KILLED,
        )

    async def failure(self, channel: Channel, began: bool, noise: bytes, stderr: bytes) -> HostError:
        """Why an output ended without its end marker."""
        how = await channel.ended()
        if how is None:
            return self.lost()
        return self.ended(how, stderr) if began else self.no_shell(noise, stderr)


async def run_script(
    channel: Channel,
    script: str,
    *,
    explain: Explainer,
    max_output_bytes: int,
    data: bytes | None = None,
    use: Input = Input.LINE_ENDS,
) -> Completed:
    """Runs a script to its end marker; `data` is its standard input. The caller sets the deadline and closes.

    Afterwards `channel.waits` tells whether its shell waits for another script. Raises NoShell, LinkLost, HostError.
    """
    nonce = new_nonce()
    out, err = _Output(nonce), _Output(nonce)
    began = asyncio.Event()

    async def pump(answer: _Output, read: Callable[[int], Awaitable[bytes]]) -> None:
        while answer.status is None:
            chunk = await read(READ_BYTES)
            if not chunk:
                break
            answer.feed(chunk)
            if answer.began:
                began.set()
            if len(answer.data) > (max_output_bytes if answer.began else NOISE_LIMIT_BYTES):
                raise HostError(
                    f"{explain.host}: a command answered with more than {max_output_bytes >> 10} KiB",
                    "this is more than the panel takes at once; look at the host itself",
                    slug=Slug.TOO_MUCH_OUTPUT,
                )
        began.set()

    async def feed() -> None:
        if data is not None:
            # The shell reads ahead, so the data follows only when it has the whole script and says so.
            await began.wait()
            channel.write(data)
            channel.write_eof()
            await channel.drain()

    channel.write(wrap(script, nonce, use if data is None else Input.DATA))
    tasks = [
        asyncio.ensure_future(work) for work in (pump(out, channel.read_stdout), pump(err, channel.read_stderr), feed())
    ]
    try:
        await asyncio.gather(*tasks[:2])
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    if out.status is None or err.status is None:
        raise await explain.failure(channel, out.began or err.began, bytes(out.data), bytes(err.data))
    channel.waits = not err.last
    return Completed(out.status, bytes(out.data), bytes(err.data))


class ScriptStream:
    """A running script whose standard output is read as it comes (`transport.ByteStream`)."""

    def __init__(self, channel: Channel, explain: Explainer) -> None:
        self._channel = channel
        self._explain = explain
        nonce = new_nonce()
        self._nonce = nonce
        self._out, self._err = _Output(nonce), _Output(nonce)
        self._errors: asyncio.Task[None] | None = None
        self._reading: asyncio.Timeout | None = None
        self._status: int | None = None
        self._failure: HostError | None = None
        self._at_end = False

    async def start(self, script: str, use: Input = Input.ANY_ENDS) -> None:
        """Sends the script and waits until it runs. Raises LinkLost, HostError."""
        self._channel.write(wrap(script, self._nonce, use, streamed=True))
        self._errors = asyncio.create_task(self._pump_errors())
        while not self._out.began:
            chunk = await self._channel.read_stdout(READ_BYTES)
            self._out.feed(chunk)
            if not chunk or (not self._out.began and len(self._out.data) > NOISE_LIMIT_BYTES):
                await asyncio.wait([self._errors])
                raise await self._explain.failure(self._channel, False, bytes(self._out.data), bytes(self._err.data))

    async def _pump_errors(self) -> None:
        while self._err.status is None:
            try:
                chunk = await self._channel.read_stderr(READ_BYTES)
            except HostError:
                return  # the standard output says so too
            if not chunk:
                return
            self._err.feed(chunk)
            if self._err.began:
                self._err.keep_tail(STDERR_TAIL_BYTES)
            elif len(self._err.data) > NOISE_LIMIT_BYTES:
                return
        if self._reading is not None:
            self._reading.reschedule(asyncio.get_running_loop().time() + AFTER_END_S)

    async def read(self, max_bytes: int = READ_BYTES) -> bytes:
        """The next bytes, b"" at the end. Raises LinkLost if the link died before the end."""
        if self._out.data:
            data = bytes(self._out.data[:max_bytes])
            del self._out.data[:max_bytes]
            return data
        if self._failure is not None:
            raise self._failure
        if self._at_end:
            return b""
        try:
            async with asyncio.timeout(AFTER_END_S if self._err.status is not None else None) as self._reading:
                data = await self._channel.read_stdout(max_bytes)
        except TimeoutError:
            data = b""
        finally:
            self._reading = None
        if data:
            return data
        self._at_end = True
        if self._errors is not None:
            await asyncio.wait([self._errors])
        self._status = self._err.status
        if self._status is None:
            self._failure = await self._explain.failure(self._channel, True, b"", bytes(self._err.data))
            raise self._failure
        return b""

    async def exit_status(self) -> int:
        """Waits for the end (unread output is dropped); raises LinkLost where the host never reported how it ended."""
        while await self.read():
            pass
        if self._status is None:
            raise self._explain.lost()
        return self._status

    def stderr_tail(self) -> bytes:
        """The last 64 KiB that the script wrote to its standard error so far."""
        return bytes(self._err.data) if self._err.began else b""

    async def close(self) -> None:
        """Ends the script there and gives the channel up; does not wait for the host."""
        end(self._channel)
        if self._errors is not None:
            self._errors.cancel()
            await asyncio.gather(self._errors, return_exceptions=True)


def end(channel: Channel) -> None:
    """Makes the script behind a channel end, whatever it is doing, or the shell that waits there; closes the channel."""
    channel.write(b"exit\n")
    channel.write_eof()
    channel.close()


def shell_path(path: str) -> str:
    """A path as one shell word; a leading `~/` is the home directory there, everything else is literal."""
    if path.startswith("~/"):
        return f'"$HOME"/{shlex.quote(path[2:])}'
    return shlex.quote(f"./{path}" if path.startswith("-") else path)


def put_script(quoted: str, size: int, mode: int) -> str:
    """The script that writes its standard input to a file, whole or not at all.

    Args:
        quoted: the path as a shell word (`shell_path`).
        size: bytes to come; fewer means that the upload was cut.
        mode: permissions of the file.
    """
    return (
        f"umask 077; p={quoted}; t=$p.part$$\n"
        'if [ -d "$p" ]; then echo "is a directory" >&2; exit 73; fi\n'
        f'if cat > "$t" && [ "$(wc -c < "$t")" -eq {size} ] && chmod {mode:o} "$t" && mv -f "$t" "$p"; then\n'
        '  exit 0\nfi\nrm -f "$t"; exit 74\n'
    )


def raise_for_put(done: Completed, host: str, path: str) -> None:
    """Raises HostError where a file could not be written."""
    if done.exit_status:
        said = one_line(done.stderr.decode("utf-8", "replace"))
        raise HostError(
            f"{host}: {one_line(path)} could not be written" + (f": {said}" if said else ""),
            "is the directory there and writable, and is there space?",
            slug=Slug.WRITE_FAILED,
        )
