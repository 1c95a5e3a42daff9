"""The command line's side of a terminal: questions while connecting, and one changing line of progress."""

import asyncio
import getpass
import sys

from tui.core.transport import HostKeyQuestion, Prompt


class TerminalAsker:
    """Asks on the terminal; without one every question is answered with no, so scripts never hang."""

    def __init__(self) -> None:
        self._interactive = sys.stdin.isatty() and sys.stderr.isatty()

    async def host_key(self, question: HostKeyQuestion) -> bool:
        """Shows an unknown key; only a typed `yes` accepts it."""
        if not self._interactive:
            return False
        hop = f" (jump host {question.hop})" if question.hop else ""
        print(
            f"{question.address}{hop} is not in known_hosts.\n"
            f"{question.key_type} {question.fingerprint}\n"
            "Compare it with what the host's own console prints: ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub",
            file=sys.stderr,
        )
        answer = await asyncio.to_thread(self._line, "Connect and remember this key? [yes/No] ")
        return answer.strip().lower() == "yes"

    async def prompt(self, prompt: Prompt) -> tuple[str, ...] | None:
        """Passphrases, passwords and codes."""
        if not self._interactive:
            return None
        if prompt.text:
            print(f"{prompt.host}: {prompt.text}", file=sys.stderr)
        answers = []
        for label, echo in prompt.fields:
            text = f"{prompt.host}: {label.rstrip(': ')}: "
            ask = self._line if echo else getpass.getpass
            try:
                answers.append(await asyncio.to_thread(ask, text))
            except EOFError:
                return None
        return tuple(answers)

    @staticmethod
    def _line(text: str) -> str:
        print(text, end="", file=sys.stderr, flush=True)
        return sys.stdin.readline()
