"""The command line's side of a terminal: questions that can be interrupted, and answers for whoever has no terminal."""

import asyncio
import os
import sys
import termios

from tui.core.link.transport import HostKeyQuestion, Prompt


def interactive() -> bool:
    """Whether somebody can be asked: both the question and the answer are at a terminal."""
    return sys.stdin.isatty() and sys.stderr.isatty()


async def read_line(question: str, *, echo: bool = True) -> str | None:
    """Asks on the terminal; None at the end of input. Without `echo` the answer is not shown.

    The loop waits for the terminal, no thread does: Ctrl-C ends the question at once, and the terminal shows what is
    typed again.
    """
    keyboard = sys.stdin.fileno()
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[bytes] = loop.create_future()

    def readable() -> None:
        if not answer.done():
            try:
                answer.set_result(os.read(keyboard, 65_536))  # one line: the terminal hands over whole ones
            except OSError:
                answer.set_result(b"")

    before = termios.tcgetattr(keyboard)
    if not echo:  # before the question is seen, so that no fast typist's password is
        hidden = termios.tcgetattr(keyboard)
        hidden[3] &= ~termios.ECHO
        termios.tcsetattr(keyboard, termios.TCSAFLUSH, hidden)
    ended = False
    try:
        print(question, end="", file=sys.stderr, flush=True)
        loop.add_reader(keyboard, readable)
        line = await answer
        ended = echo and line.endswith(b"\n")
    finally:
        loop.remove_reader(keyboard)
        if not echo:
            termios.tcsetattr(keyboard, termios.TCSADRAIN, before)
        if not ended:  # what follows begins on a line of its own
            print(file=sys.stderr, flush=True)
    return line.decode("utf-8", "surrogateescape").rstrip("\r\n") if line else None


class TerminalAsker:
    """Asks on the terminal, one thing at a time; without one every question is answered with no, so scripts never hang."""

    def __init__(self) -> None:
        self._asking = asyncio.Lock()

    async def host_key(self, question: HostKeyQuestion) -> bool:
        """Shows an unknown key; only a typed `yes` accepts it."""
        if not interactive():
            return False
        async with self._asking:
            return await self._host_key(question)

    async def _host_key(self, question: HostKeyQuestion) -> bool:
        hop = f" (jump host {question.hop})" if question.hop else ""
        print(
            f"{question.address}{hop} is not in known_hosts.\n"
            f"{question.key_type} {question.fingerprint}\n"
            "Compare it with what the host's own console prints: ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub",
            file=sys.stderr,
        )
        answer = await read_line("Connect and remember this key? [yes/No] ")
        return (answer or "").strip().lower() == "yes"

    async def prompt(self, prompt: Prompt) -> tuple[str, ...] | None:
        """Passphrases, passwords and codes; None where there is nobody to ask, or at the end of input."""
        if not interactive():
            return None
        async with self._asking:
            return await self._prompt(prompt)

    async def _prompt(self, prompt: Prompt) -> tuple[str, ...] | None:
        if prompt.text:
            print(f"{prompt.host}: {prompt.text}", file=sys.stderr)
        answers = []
        for label, echo in prompt.fields:
            answer = await read_line(f"{prompt.host}: {label.rstrip(': ')}: ", echo=echo)
            if answer is None:
                return None
            answers.append(answer)
        return tuple(answers)
