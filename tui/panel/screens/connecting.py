"""What connecting asks a person, and a refusal that no key leads past."""

from collections.abc import Iterable, Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Container, VerticalScroll
from textual.widget import Widget
from textual.widgets import Input

from tui.core.errors import HostError, Slug
from tui.core.link.transport import HostKeyChanged, HostKeyQuestion, LinkStatus, Prompt
from tui.panel.keys import bindings, keys
from tui.panel.screens.dialog import Confirm, Dialog
from tui.panel.widgets.rows import AnyRow, KeyRow, Line, Prose, Row, Single, Title, facts_of

_WIDTHS = [(0, "-narrow"), (120, "-wide")]


def host_key_dialog(question: HostKeyQuestion) -> Confirm:
    """The question about an unknown host key."""
    pairs = [("host", f"{question.host}  →  {question.address}")]
    if question.hop:
        pairs.append(("jump host", question.hop))
    if question.ip:
        pairs.append(("address", question.ip))
    pairs += [("key type", question.key_type), ("fingerprint", question.fingerprint)]
    keyfile = {"ssh-ed25519": "ed25519", "ssh-rsa": "rsa"}.get(question.key_type, "ecdsa")
    known = "No entry for it in ~/.ssh/known_hosts. Nothing has been sent but the greeting."
    then = (
        "On yes, eagletui connects with exactly this key and, once logged in, adds one line to ~/.ssh/known_hosts. "
        "A different key later is refused."
    )
    rows: list[AnyRow] = [
        [(known, "text")],
        [],
        *facts_of(pairs, strong="fingerprint"),
        [],
        [("Compare it with what the host's own console prints:", "text")],
        [(f" ssh-keygen -lf /etc/ssh/ssh_host_{keyfile}_key.pub ", "strong/raised")],
        [],
        [(then, "muted")],
    ]
    title = f"Is this {question.hop or question.host}?"
    return Confirm(("? UNKNOWN HOST", "accent!"), title, rows, "No, do not connect", "Yes, the fingerprint matches")


class PromptDialog(Dialog[tuple[str, ...]]):
    """Passphrase, password or one-time code."""

    def __init__(self, prompt: Prompt) -> None:
        super().__init__()
        self._prompt = prompt

    def head(self) -> Iterable[Widget]:
        title = self._prompt.title or "authentication"
        yield Prose([[("? " + self._prompt.host, "accent!"), ("   ", "text"), (title, "strong!")]])

    def body(self) -> Iterable[Widget]:
        if self._prompt.text:
            yield Prose([[(self._prompt.text, "text")], []])
        for label, echo in self._prompt.fields:
            yield Prose([[(label.rstrip(": ") or "answer", "muted")]])
            yield Input(password=not echo)

    def foot(self) -> Iterable[Widget]:
        yield Prose([KeyRow((("Enter", "answer"), ("Esc", "give up")))], classes="keys")

    def on_input_submitted(self, event: Input.Submitted) -> None:
        inputs = list(self.query(Input))
        here = inputs.index(event.input)
        if here + 1 < len(inputs):
            inputs[here + 1].focus()
        else:
            self.dismiss(tuple(field.value for field in inputs))


class Refused(Dialog[str]):
    """A changed or revoked host key, full screen. No key of it leads past the refusal."""

    CSS_PATH: ClassVar[list[str]] = [*Dialog.CSS_PATH, "connecting.tcss"]
    BINDINGS: ClassVar[list[BindingType]] = bindings("refused host key")
    AUTO_FOCUS = "VerticalScroll"
    HORIZONTAL_BREAKPOINTS = _WIDTHS

    def __init__(self, host: str, error: HostError, status: LinkStatus | None, last_seen: Sequence[Line]) -> None:
        super().__init__()
        self.host = host
        self.error = error
        self.status = status
        self.last_seen = last_seen

    @property
    def command(self) -> str:
        """What removes the old entry."""
        remedy = self.error.remedy if isinstance(self.error, HostKeyChanged) else None
        return remedy or f"ssh-keygen -R {self.host}"

    def compose(self) -> ComposeResult:
        with Container(id="refused"):
            yield Prose([self._link()], id="link")
            yield Prose(self._band(), id="band")
            with VerticalScroll():
                yield Prose([Title("What was seen")])
                yield Prose(self._seen())
                if self.error.slug != Slug.HOST_KEY_REVOKED:
                    yield Prose([Title("If you know that the host was set up again")])
                    yield from self._steps()
                yield Prose([Title("What keeps running without the link")])
                yield Prose([[("A refused link stops nothing.", "text")], *self.last_seen])
            foot = keys("y", "r", "h", where="refused host key")
            yield Prose([KeyRow((*foot, ("Esc", "back"), ("q", "quit")))], id="refusedkeys")

    def _link(self) -> Single:
        return Single(
            [("eagletui", "strong!")],
            [(self.host, "strong!"), ("  ✗ ", "err"), ("not connected", "strong"), (", host key refused", "muted")],
        )

    def _band(self) -> Sequence[AnyRow]:
        verb = "is marked as revoked" if self.error.slug == Slug.HOST_KEY_REVOKED else "has changed"
        return [
            Row([("✗ REFUSED   ", "err!"), (f"The host key of {self.host} {verb}. eagletui did not connect.", "strong!")], hang=12),
            Row([(" " * 12, "text"), (
                "Either the host was set up again, or something else answers in its place. "
                "No password, token or command was sent.", "text")], hang=12),
        ]  # fmt: skip

    def _seen(self) -> Sequence[AnyRow]:
        address = self.status.address if self.status else None
        rows = facts_of([("host", f"{self.host}  →  {address}" if address else self.host)])
        error = self.error
        if not isinstance(error, HostKeyChanged):
            return [*rows, Row([(" " * 14, "text"), (error.message, "strong")], hang=14)]
        known_type = f" ({error.known_type})" if error.known_type != error.key_type else ""
        where = f"   {error.where}" if error.where else ""
        return [
            *rows,
            *facts_of([("key type", error.key_type)]),
            [],
            Row(
                [(f"{'known':<14}", "muted"), (error.known_fingerprint, "strong!"), (known_type + where, "muted")],
                hang=14,
            ),
            Row([(f"{'offered':<14}", "muted"), (error.fingerprint, "err!")], hang=14),
        ]

    def _steps(self) -> Iterable[Widget]:
        steps = (
            (f"On the console of {self.host}, or by asking who runs it, get the fingerprint:", "ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub"),
            ("Only if it equals the offered one above, remove the old entry yourself:", self.command),
            ("Press r to connect again. The new key is then unknown, and you are asked about it.", None),
        )  # fmt: skip
        rows: list[AnyRow] = []
        for number, (text, command) in enumerate(steps, 1):
            rows.append(Row([(f"{number}  ", "accent!"), (text, "text")], hang=3))
            if command:
                copied: Line = [("   y", "accent!"), (" copies", "muted")] if command == self.command else []
                rows.append(Row([("     ", "text"), (command, "strong"), *copied], hang=5, ground="surface"))
        yield Prose([*rows, [], [("No key, setting or flag makes eagletui accept a changed host key.", "muted")]])

    def action_copy(self) -> None:
        """The command into the clipboard."""
        self.panel.copy_text(self.command, "command")
