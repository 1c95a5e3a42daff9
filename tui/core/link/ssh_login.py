"""Logging in: keys of the agent and of files, passphrases, passwords, two factors, and the deadline for all that.

`ssh_connect` makes one `Login` a connection; its callbacks are asyncssh's.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import asyncssh

from tui.core.link.host_identity import HostCheck, OfferedKey
from tui.core.link.ssh_keys import NeedsPassphrase, key_pairs, private_key, public_part
from tui.core.link.ssh_target import SshTarget
from tui.core.link.transport import Asker, Prompt
from tui.core.text import one_line, sanitize

_TRIES = 3  # passphrase, password, keyboard-interactive
_BANNER_CHARS = 4000


@dataclass
class Secrets:
    """What a person typed, kept in memory for reconnects and never elsewhere."""

    keys: dict[Path, Any] = field(default_factory=dict)
    passwords: dict[str, str] = field(default_factory=dict)  # by user@address:port
    accepted: dict[str, OfferedKey] = field(default_factory=dict)  # host keys, by address:port


class LoginClock:
    """The deadline of a login, which stands still while a person is asked."""

    def __init__(self, waiting: Callable[[bool], None]) -> None:
        self._waiting = waiting
        self._timeout: asyncio.Timeout | None = None
        self._seconds = 0.0

    @contextlib.asynccontextmanager
    async def limit(self, seconds: float) -> AsyncIterator[None]:
        """Raises TimeoutError inside after `seconds` without those of `paused`."""
        self._seconds = seconds
        try:
            async with asyncio.timeout(seconds) as self._timeout:
                yield
        finally:
            self._timeout = None

    def again(self, seconds: float) -> None:
        """Counts from now."""
        self._seconds = seconds
        if self._timeout is not None and not self._timeout.expired():
            self._timeout.reschedule(asyncio.get_running_loop().time() + seconds)

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """While a person is asked."""
        if self._timeout is not None and not self._timeout.expired():
            self._timeout.reschedule(None)
        self._waiting(True)
        try:
            yield
        finally:
            self._waiting(False)
            self.again(self._seconds)


class Login(asyncssh.SSHClient):
    """One login to one server.

    Attributes:
        lost: done when the connection is, with what the library says about it.
        made: there is a connection.
        met: the server has shown its key, so it does speak SSH.
        interactive: a person answered questions of the server.
        notes: why ways to log in were not open, for a message.
    """

    def __init__(self, target: SshTarget, check: HostCheck, asker: Asker, clock: LoginClock, secrets: Secrets) -> None:
        self._target, self._check, self._asker = target, check, asker
        self._clock, self._secrets = clock, secrets
        self._loop = asyncio.get_running_loop()
        self.lost: asyncio.Future[Exception | None] = self._loop.create_future()
        self.made = False
        self.met = False
        self.interactive = False
        self.banner = ""
        self.notes: list[str] = []
        self._keys: AsyncGenerator[asyncssh.SSHKeyPair, None] | None = None
        self._agent: asyncssh.SSHAgentClient | None = None
        self._questions: set[asyncio.Task[Any]] = set()
        self._prompted = 0
        self._password_tries = 0

    def connection_made(self, conn: Any) -> None:
        self.made = True

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.lost.done():
            self.lost.set_result(exc)

    def validate_host_public_key(self, host: str, addr: str, port: int, key: Any) -> bool:
        self.met = True
        return self._check.accept(key.get_algorithm(), key.public_data)

    def auth_banner_received(self, msg: str, lang: str) -> None:
        self.banner = sanitize(msg)[:_BANNER_CHARS]

    def auth_completed(self) -> None:
        self.close_agent()

    def close_agent(self) -> None:
        """Lets go of the agent, which is needed for signing only."""
        if self._agent is not None:
            self._agent.close()

    # Keys

    async def public_key_auth_requested(self) -> Any:
        if self._keys is None:
            self._keys = self._all_keys()
        return await anext(self._keys, None)

    async def _all_keys(self) -> AsyncGenerator[asyncssh.SSHKeyPair, None]:
        files = {path: await asyncio.to_thread(public_part, path) for path in self._target.identity_files}
        blobs = [key.public_data for key in files.values() if key is not None]
        offered: set[bytes] = set()
        for pair in await self._agent_keys():
            known = pair.key_public_data in blobs or pair.public_data in blobs
            if known or not self._target.identities_only:
                offered.add(pair.public_data)
                yield pair
        for path, public in files.items():
            for pair in await self._file_keys(path, public):
                if pair.public_data not in offered:
                    offered.add(pair.public_data)
                    yield pair

    async def _agent_keys(self) -> Sequence[asyncssh.SSHKeyPair]:
        if not self._target.agent:
            return []
        try:
            self._agent = await asyncssh.connect_agent(self._target.agent)
            return await self._agent.get_keys()
        except (OSError, ValueError) as error:
            self.notes.append(f"the agent does not answer ({one_line(str(error))})")
            return []

    async def _file_keys(self, path: Path, public: asyncssh.SSHKey | None) -> Sequence[asyncssh.SSHKeyPair]:
        try:
            if public is None and path not in self._secrets.keys:
                # Nothing to offer without the passphrase (PEM without `.pub`): asked for before the host wants the key.
                try:
                    self._secrets.keys[path] = await asyncio.to_thread(private_key, path, None)
                except NeedsPassphrase:
                    if not await self._passphrase(str(path)):
                        return []
            source = self._secrets.keys.get(path) or (path, public)
            certificates = [
                file for file in (*self._target.certificate_files, Path(f"{path}-cert.pub")) if file.is_file()
            ]
            return await asyncio.to_thread(key_pairs, source, self._passphrase, certificates, self._loop)
        except FileNotFoundError:
            return []
        except (OSError, ValueError) as error:
            self.notes.append(f"{path}: {one_line(str(error))}")
            return []

    async def _passphrase(self, name: str) -> str:
        """The right passphrase of a key file, asked for when the server wants that very key; "" to give up."""
        path = Path(name)
        for attempt in range(_TRIES):
            again = "" if attempt == 0 else "That was not the passphrase. "
            answers = await self._ask(
                Prompt(
                    host=self._target.label,
                    title=f"Passphrase for {self._target.label}",
                    text=f"{again}The key {one_line(name)} is encrypted.",
                    fields=(("Passphrase", False),),
                )
            )
            if not answers:
                self.notes.append(f"no passphrase was given for {one_line(name)}")
                return ""
            try:
                self._secrets.keys[path] = await asyncio.to_thread(private_key, path, answers[0])
            except ImportError as error:
                self.notes.append(one_line(str(error)))
                return ""
            except (ValueError, NeedsPassphrase):
                continue
            return answers[0]
        self.notes.append(f"the passphrase of {one_line(name)} was wrong {_TRIES} times")
        return ""

    # Passwords and prompts

    async def _ask(self, prompt: Prompt) -> tuple[str, ...] | None:
        task = asyncio.current_task()
        assert task is not None
        self._questions.add(task)
        try:
            with self._clock.paused():
                return await self._asker.prompt(prompt)
        finally:
            self._questions.discard(task)

    def give_up(self) -> None:
        """Takes back what is being asked (a thread of asyncssh may be waiting for it), lets go of the agent."""
        for task in tuple(self._questions):
            task.cancel()
        self.close_agent()

    async def password_auth_requested(self) -> str | None:
        where, label = self._target.where, self._target.label
        self._password_tries += 1
        if self._password_tries > _TRIES:
            return None
        kept = self._secrets.passwords.pop(where, None)
        if kept is not None and self._password_tries == 1:
            self._secrets.passwords[where] = kept
            return kept
        answers = await self._ask(
            Prompt(
                host=label,
                title=f"Password for {label}",
                text=(f"{self.banner}\n" if self.banner else "")
                + ("" if self._password_tries == 1 else "That was not the password. ")
                + f"{where} asks for a password.",
                fields=(("Password", False),),
            )
        )
        if not answers:
            self.notes.append("no password was given")
            return None
        self._secrets.passwords[where] = answers[0]
        return answers[0]

    def password_change_requested(self, prompt: str, lang: str) -> Any:
        self.notes.append(f"the password has expired ({one_line(prompt) or 'no reason given'})")
        return NotImplemented

    def kbdint_auth_requested(self) -> str | None:
        self._prompted += 1
        return "" if self._prompted <= _TRIES else None

    async def kbdint_challenge_received(
        self, name: str, instructions: str, lang: str, prompts: Sequence[tuple[str, bool]]
    ) -> Sequence[str] | None:
        if not prompts:
            return []
        self.interactive = True
        label = self._target.label
        text = "\n".join(sanitize(part).strip() for part in (self.banner, instructions) if part.strip())
        answers = await self._ask(
            Prompt(
                host=label,
                title=one_line(name) or f"{label} asks",
                text=text,
                fields=tuple((one_line(ask) or "Answer", echo) for ask, echo in prompts),
            )
        )
        if answers is None or len(answers) != len(prompts):
            self._prompted = _TRIES
            self.notes.append("its questions were not answered")
            return None
        return answers
