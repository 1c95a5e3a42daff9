"""Dialogs: questions with the safe answer in focus, prompts while connecting, other hosts, help, facts."""

import contextlib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, Generic, TypeVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Input

from tui.core.errors import HostError
from tui.core.link.transport import HostKeyChanged, HostKeyQuestion, LinkStatus, Prompt
from tui.core.text import one_line
from tui.panel.keys import COMMANDS
from tui.panel.protocol import panel_of
from tui.panel.widgets.paint import Canvas, Painted, Run, cells, width_of, wrap

T = TypeVar("T")
Line = Sequence[Run]


def fold(line: Line, width: int) -> list[Line]:
    """A row as rows of at most `width` cells, broken at spaces; what follows its labels stays under itself."""
    if width_of(line) <= width:
        return [line]
    hang = 0
    for text, _ in line:
        if not text.endswith("  ") or hang + cells(text) > width * 2 // 3:
            break
        hang += cells(text)
    rows: list[list[Run]] = [[]]
    used = 0
    for text, spec in line:
        for word in re.findall(r"\s+|\S+", text):
            if used + cells(word) > width and used > hang:
                rows[-1] = _stripped(rows[-1])
                rows.append([(" " * hang, spec)] if hang else [])
                used = hang
                if word.isspace():
                    continue
            for part in wrap(word, max(1, width - used)) if not word.isspace() else [word]:
                if used + cells(part) > width and used > hang:
                    rows.append([(" " * hang, spec)] if hang else [])
                    used = hang
                rows[-1].append((part, spec))
                used += cells(part)
    return list(rows)


def _stripped(runs: list[Run]) -> list[Run]:
    while runs and runs[-1][0].isspace():
        runs = runs[:-1]
    return runs


def key_row(lead: Sequence[Run], pairs: Sequence[tuple[str, str]], width: int) -> Line:
    """Keys and their verbs in one row; what does not fit is left out, but never the last one, which leads back."""
    kept = list(pairs)

    def row() -> list[Run]:
        runs: list[Run] = list(lead)
        for key, verb in kept:
            runs += [("   ", "muted")] if runs else []
            runs += [(key, "accent!"), (f" {verb}", "muted")]
        return runs

    while len(kept) > 1 and width_of(row()) > width:
        del kept[-2]
    return row()


class Lines(Painted):
    """Rows of runs on the ground of a dialog."""

    GROUND = "surface"

    def __init__(self, lines: Sequence[Line] = (), *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.lines: list[Line] = list(lines)
        self.styles.height = max(1, len(self.lines))

    def set_lines(self, lines: Sequence[Line]) -> None:
        """Other rows."""
        self.lines = list(lines)
        self.styles.height = max(1, len(self.lines))
        self.repaint()

    def draw(self, canvas: Canvas) -> None:
        for y, line in enumerate(self.lines):
            if line and all(spec.endswith("/raised") for _, spec in line):
                canvas.fill(0, y, canvas.width, 1, "raised")
            canvas.runs(0, y, line)


class Folded(Lines):
    """Rows that are wrapped to the width there is, and never cut."""

    def __init__(self, lines: Sequence[Line] = (), *, id: str | None = None) -> None:
        super().__init__(lines, id=id)
        self._whole = list(lines)

    def set_lines(self, lines: Sequence[Line]) -> None:
        self._whole = list(lines)
        self._fold()

    def on_resize(self) -> None:
        self._fold()

    def _fold(self) -> None:
        width = self.size.width
        super().set_lines([row for line in self._whole for row in fold(line, width)] if width else self._whole)


class Choices(Painted):
    """Answers side by side; the first one is safe and has the focus."""

    GROUND = "surface"
    can_focus = True

    def __init__(self, answers: Sequence[str]) -> None:
        super().__init__(id="choices")
        self.answers = tuple(answers)
        self.chosen = 0

    def draw(self, canvas: Canvas) -> None:
        x = 0
        for position, answer in enumerate(self.answers):
            width = cells(answer) + 4
            here = position == self.chosen
            ground = "accbg" if here else "raised"
            canvas.fill(x, 0, width, canvas.height, ground)
            if here:
                for y in range(canvas.height):
                    canvas.put(x, y, "▌", f"accent/{ground}")
            canvas.put(x + 2, canvas.height // 2, answer, ("strong!" if here else "text") + f"/{ground}")
            x += width + 3

    def step(self, by: int) -> None:
        """The other answer."""
        self.chosen = (self.chosen + by) % len(self.answers)
        self.repaint()


class Dialog(ModalScreen[T], Generic[T]):
    """A box over the mode; `Esc` leaves it with the safe answer."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "cancel", "back", show=False)]
    AUTO_FOCUS = "Choices, Input"

    @property
    def short(self) -> bool:
        """True where the screen has no rows for blank ones."""
        return self.app.size.height < 30

    CHROME_ROWS = 0  # rows of the frame and of what never scrolls; 0 = nothing scrolls here

    def on_mount(self) -> None:
        self._fit()

    def on_resize(self) -> None:
        self._fit()

    def _fit(self) -> None:
        """Every row of the screen is used before anything scrolls."""
        self.set_class(self.short, "-short")
        if self.CHROME_ROWS:
            for scroll in self.query(VerticalScroll):
                scroll.styles.max_height = max(3, self.app.size.height - self.CHROME_ROWS - (2 if self.short else 4))

    def action_cancel(self) -> None:
        """The safe answer."""
        self.dismiss(None)


class Confirm(Dialog[bool]):
    """A yes-no question. No is in focus."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("tab,right,l", "other(1)", "other", show=False, priority=True),
        Binding("shift+tab,left,h", "other(-1)", "other", show=False, priority=True),
        Binding("enter", "choose", "choose", show=False, priority=True),
        Binding("n", "cancel", "no", show=False),
    ]

    def __init__(self, mark: Run, title: str, lines: Sequence[Line], no: str, yes: str) -> None:
        super().__init__()
        self._head: Line = [mark, ("   ", "text"), (title, "strong!")]
        self._lines = lines
        self._answers = (no, yes)

    def compose(self) -> ComposeResult:
        no = self._answers[0].split(",")[0].lower()
        with Container(classes="dialog"):
            lines: list[Line] = [self._head, [], *self._lines, []]
            yield Folded([line for line in lines if line or not self.short])
            yield Choices(self._answers)
            yield Folded(self._keys(no, no), id="keys")

    def _keys(self, chosen: str, no: str) -> list[Line]:
        row: Line = [("Enter", "accent!"), (f" {chosen} (chosen)   ", "muted"), ("Esc", "accent!"), (f" {no}   ", "muted"),
                     ("Tab", "accent!"), (" to the other, then ", "muted"), ("Enter", "accent!")]  # fmt: skip
        return [row] if self.short else [[], row]

    def action_other(self, by: int) -> None:
        """The other answer."""
        choices = self.query_one(Choices)
        choices.step(by)
        word = self._answers[choices.chosen].split(",")[0].lower()
        no = self._answers[0].split(",")[0].lower()
        self.query_one("#keys", Folded).set_lines(self._keys(word, no))

    def action_choose(self) -> None:
        """The answer in focus."""
        self.dismiss(self.query_one(Choices).chosen == 1)

    def action_cancel(self) -> None:
        self.dismiss(False)


def facts_of(pairs: Sequence[tuple[str, str]], width: int = 78, *, strong: str | None = None) -> list[Line]:
    """Label and value a row; values wrap and are never cut."""
    lines: list[Line] = []
    for label, value in pairs:
        spec = "strong!" if label == strong else "text"
        for position, part in enumerate(wrap(value, max(8, width - 14))):
            lines.append([(f"{label if position == 0 else '':<14}", "muted"), (part, spec)])
    return lines


def host_key_dialog(question: HostKeyQuestion, width: int) -> Confirm:
    """The question about an unknown host key."""
    name = question.hop or question.host
    pairs = [("host", f"{question.host}  →  {question.address}")]
    if question.hop:
        pairs.append(("jump host", question.hop))
    if question.ip:
        pairs.append(("address", question.ip))
    pairs += [("key type", question.key_type), ("fingerprint", question.fingerprint)]
    keyfile = {"ssh-ed25519": "ed25519", "ssh-rsa": "rsa"}.get(question.key_type, "ecdsa")
    known = "No entry for it in ~/.ssh/known_hosts. Nothing has been sent but the greeting."
    lines: list[Line] = [
        *[[(part, "text")] for part in wrap(known, width)],
        [],
        *facts_of(pairs, width, strong="fingerprint"),
        [],
        [("Compare it with what the host's own console prints:", "text")],
        [(f" ssh-keygen -lf /etc/ssh/ssh_host_{keyfile}_key.pub ", "strong/raised")],
        [],
        *[[(part, "muted")] for part in wrap(
            "On yes, eagletui connects with exactly this key and, once logged in, adds one line to ~/.ssh/known_hosts. "
            "A different key later is refused.", width)],
    ]  # fmt: skip
    return Confirm(
        ("? UNKNOWN HOST", "accent!"), f"Is this {name}?", lines, "No, do not connect", "Yes, the fingerprint matches"
    )


class PromptDialog(Dialog[tuple[str, ...]]):
    """Passphrase, password or one-time code."""

    def __init__(self, prompt: Prompt) -> None:
        super().__init__()
        self._prompt = prompt

    def compose(self) -> ComposeResult:
        prompt = self._prompt
        title = prompt.title or "authentication"
        with Container(classes="dialog"):
            text: list[Line] = [[(part, "text")] for part in wrap(prompt.text, 84)] if prompt.text else []
            yield Lines([[("? " + prompt.host, "accent!"), ("   ", "text"), (title, "strong!")], [], *text, []])
            for label, echo in prompt.fields:
                yield Lines([[(label.rstrip(": ") or "answer", "muted")]])
                yield Input(password=not echo)
            yield Lines([[("Enter", "accent!"), (" answer   ", "muted"), ("Esc", "accent!"), (" give up", "muted")]])

    def on_input_submitted(self, event: Input.Submitted) -> None:
        inputs = list(self.query(Input))
        here = inputs.index(event.input)
        if here + 1 < len(inputs):
            inputs[here + 1].focus()
        else:
            self.dismiss(tuple(field.value for field in inputs))


class Refused(Dialog[str]):
    """A changed or revoked host key, full screen. No key of it leads past the refusal."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("r", "leave('reconnect')", "connect again", show=False),
        Binding("h", "leave('hosts')", "other host", show=False),
        Binding("y", "copy", "copy", show=False),
        Binding("q", "leave('leave')", "leave", show=False),
    ]

    def __init__(self, host: str, error: HostError, status: LinkStatus | None, last_seen: Sequence[Line]) -> None:
        super().__init__()
        self.host = host
        self.error = error
        self.status = status
        self.last_seen = last_seen

    def compose(self) -> ComposeResult:
        yield RefusedBody(self)

    @property
    def command(self) -> str:
        """What removes the old entry."""
        remedy = self.error.remedy if isinstance(self.error, HostKeyChanged) else None
        return remedy or f"ssh-keygen -R {self.host}"

    def action_leave(self, choice: str) -> None:
        """Out, and on with `choice`."""
        self.dismiss(choice)

    def action_copy(self) -> None:
        """The command into the clipboard."""
        panel_of(self).copy_text(self.command, "command")


class RefusedBody(Painted):
    """The picture of a refusal."""

    DEFAULT_CSS = "RefusedBody { width: 100%; height: 100%; }"

    def __init__(self, screen: Refused) -> None:
        super().__init__()
        self._of = screen

    def draw(self, canvas: Canvas) -> None:
        of, error = self._of, self._of.error
        wide = canvas.width >= 120
        x = 20 if wide else 1
        width = canvas.width - 2 * x
        revoked = "revoked" in error.slug
        canvas.fill(0, 0, canvas.width, 1, "surface")
        canvas.put(1, 0, "eagletui", "strong!/surface")
        canvas.right_runs(
            canvas.width - 1, 0, [(of.host, "strong!/surface"), ("  ✗ ", "err/surface"), ("not connected", "strong/surface"),
                                  (", host key refused", "muted/surface")],
        )  # fmt: skip
        tall = canvas.height >= 36
        band = 6 if tall else 3
        canvas.fill(0, 1, canvas.width, band, "errbg")
        for row in range(band):
            canvas.put(0, 1 + row, "▌", "err/errbg")
        y = 3 if tall else 1
        canvas.put(max(x, 2), y, "✗ REFUSED", "err!/errbg")
        verb = "is marked as revoked" if revoked else "has changed"
        at = max(x, 2) + 12
        canvas.put(at, y, f"The host key of {of.host} {verb}. eagletui did not connect.", "strong!/errbg")
        for offset, part in enumerate(
            wrap(
                "Either the host was set up anew, or something else answers in its place. No password, token or command was sent.",
                canvas.width - at - 1,
            )
        ):
            canvas.put(at, y + 1 + offset, part, "text/errbg")
        y = band + (3 if tall else 1)
        canvas.title(x, y, width, "What was seen")
        y += 2 if tall else 1
        address = of.status.address if of.status else None
        pairs = [("host", f"{of.host}  →  {address}" if address else of.host)]
        lines = facts_of(pairs, width)
        if isinstance(error, HostKeyChanged):
            lines += facts_of([("key type", error.key_type)], width)
            lines += [[]] if tall else []
            where = f"   {error.where}" if error.where else ""
            known_type = f" ({error.known_type})" if error.known_type != error.key_type else ""
            for label, spec, text, rest in (
                ("known", "strong!", error.known_fingerprint, known_type + where),
                ("offered", "err!", error.fingerprint, ""),
            ):
                lines += [
                    [(f"{label if n == 0 else '':<14}", "muted"), (part, spec)]
                    for n, part in enumerate(wrap(text, width - 14))
                ]
                if rest and width - 14 - len(text) > len(rest):
                    lines[-1] = [*lines[-1], (rest, "muted")]
                elif rest:
                    lines.append([(f"{'':<14}", "muted"), (rest.strip(), "muted")])
        else:
            for part in wrap(error.message, width - 14):
                lines.append([(f"{'':<14}", "muted"), (part, "strong")])
        for line in lines:
            canvas.runs(x, y, line, width)
            y += 1
        y += 1 if tall else 0
        if not revoked:
            canvas.title(x, y, width, "If you know that the host was set up anew")
            y += 2 if tall else 1
            steps: list[tuple[str, str | None]] = [
                (f"On the console of {of.host}, or by asking who runs it, get the fingerprint:", "ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub"),
                ("Only if it equals the offered one above, remove the old entry yourself:", of.command),
                ("Press r to connect again. The new key is then unknown, and you are asked about it.", None),
            ]  # fmt: skip
            for number, (text, command) in enumerate(steps, 1):
                canvas.put(x, y, str(number), "accent!")
                canvas.put(x + 3, y, text, "text", width - 3)
                y += 1
                if command:
                    canvas.fill(x + 3, y, width - 3, 1, "surface")
                    canvas.put(x + 5, y, command, "strong/surface", width - 5)
                    if number == 2:
                        canvas.right_runs(x + width - 1, y, [("y", "accent!/surface"), (" copies", "muted/surface")])
                    y += 1
                y += 1 if tall else 0
            canvas.put(x, y, "No key, setting or flag makes eagletui accept a changed host key.", "muted", width)
            y += 3 if tall else 1
        canvas.title(x, y, width, "What goes on without the link")
        y += 2 if tall else 1
        for line in [[("A refused link stops nothing.", "text")], *of.last_seen]:
            canvas.runs(x, y, line, width)
            y += 1
        canvas.fill(0, canvas.height - 1, canvas.width, 1, "surface")
        at = 1
        for key, verb in (
            ("y", "copy command"),
            ("r", "connect again"),
            ("h", "other host"),
            ("Esc", "back"),
            ("q", "leave"),
        ):
            at = canvas.put(at, canvas.height - 1, key, "accent!/surface")
            at = canvas.put(at + 1, canvas.height - 1, verb, "muted/surface") + 3


class HostPicker(Dialog[str]):
    """Another host: the configured ones, those of ~/.ssh/config, or any user@host:port."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("down", "move(1)", "down", show=False, priority=True),
        Binding("up", "move(-1)", "up", show=False, priority=True),
    ]

    def __init__(self, present: str, running: int = 0) -> None:
        """`running`: servers that were seen to run on the present host."""
        super().__init__()
        self._present = present
        self._servers = running
        self._names = known_hosts()
        self._at: int | None = None

    def compose(self) -> ComposeResult:
        with Container(classes="dialog"):
            go_on: list[Line] = [[("Runs on ", "muted"), (self._present, "text"), (" go on.", "muted")], []]
            yield Folded([[("? HOST", "accent!"), ("   ", "text"), ("Show another host", "strong!")], [],
                          *(go_on if self._servers else [])])  # fmt: skip
            yield Input(placeholder="a name of ~/.ssh/config, or user@host:port")
            yield Lines(id="names")
            yield Lines([[], [("Enter", "accent!"), (" connect   ", "muted"), ("↓ ↑", "accent!"), (" choose   ", "muted"),
                              ("Esc", "accent!"), (" back", "muted")]])  # fmt: skip

    def on_mount(self) -> None:
        super().on_mount()
        self._list()

    def _shown(self) -> list[tuple[str, str]]:
        typed = self.query_one(Input).value.strip().lower()
        # frame, title, field and keys take eleven rows
        most = max(1, min(12, self.app.size.height - 11))
        return [entry for entry in self._names if typed in entry[0].lower()][:most]

    def _list(self) -> None:
        lines: list[Line] = []
        for position, (name, whence) in enumerate(self._shown()):
            here = position == self._at
            ground = "/raised" if here else ""
            lines.append([("▌ " if here else "  ", "accent" + ground), (f"{name:<40}", ("strong!" if here else "text") + ground),
                          (whence, "muted" + ground)])  # fmt: skip
        self.query_one("#names", Lines).set_lines(lines or [[("  connects to what is typed", "muted")]])

    def on_input_changed(self) -> None:
        self._at = None
        self._list()

    def action_move(self, by: int) -> None:
        """Down or up the list."""
        count = len(self._shown())
        if count:
            self._at = 0 if self._at is None and by > 0 else ((self._at or 0) + by) % count
            self._list()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        shown = self._shown()
        if self._at is not None and self._at < len(shown):
            self.dismiss(shown[self._at][0])
        elif event.value.strip():
            self.dismiss(event.value.strip())


def known_hosts() -> list[tuple[str, str]]:
    """Names that can be connected to, and where they come from."""
    from tui.core.config import DEMO_HOST, LOCAL_HOST, load_settings
    from tui.core.errors import EagletuiError

    found: dict[str, str] = {}
    with contextlib.suppress(EagletuiError):  # a broken config.toml is told where it matters
        found.update({name: "config.toml" for name in load_settings().hosts})
    try:
        text = (Path.home() / ".ssh" / "config").read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    for line in text.splitlines():
        words = line.replace("=", " ", 1).split()
        if len(words) > 1 and words[0].lower() == "host":
            for name in words[1:]:
                if not set(name) & set('*?!"'):
                    found.setdefault(name, "~/.ssh/config")
    for name in _typed_before():
        found.setdefault(name, "typed here before")
    found.setdefault(LOCAL_HOST, "this machine")
    found.setdefault(DEMO_HOST, "simulated, 8 GPUs")
    return list(found.items())


_TYPED_KEPT = 20


def _typed_path() -> Path:
    from tui.core.config import state_dir

    return state_dir() / "typed-hosts"


def _typed_before() -> list[str]:
    try:
        lines = _typed_path().read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError):
        return []
    return [name for line in lines if (name := one_line(line, 200))]


def remember_host(name: str) -> None:
    """Keeps the name of a host that was connected to and stands in no file of the user; newest first."""
    from tui.core.config import write_whole

    if name in dict(known_hosts()):
        return
    kept = [name, *_typed_before()][:_TYPED_KEPT]
    with contextlib.suppress(OSError):  # remembering is a convenience
        write_whole(_typed_path(), "\n".join(kept) + "\n")


class Help(Dialog[None]):
    """Every key, by where it works."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("question_mark,q", "cancel", "back", show=False)]
    AUTO_FOCUS = "VerticalScroll"
    CHROME_ROWS = 4  # frame, title and a blank row

    def compose(self) -> ComposeResult:
        lines: list[Line] = []
        offers = getattr(self.app, "offers", lambda command: True)
        offered = [command for command in COMMANDS if offers(command)]
        for where in dict.fromkeys(command.where for command in offered):
            lines += [*([[]] if lines else []), [(where, "muted")]]
            lines += [
                [(f"{command.keys:<9}", "accent!"), (f"{command.verb:<20}", "text"), (command.says, "muted")]
                for command in offered
                if command.where == where
            ]
        with Container(classes="dialog"):
            keys = key_row([("Keys", "strong!")], (("j k", "scroll"), ("Esc", "back")), 60)
            yield Lines([keys, []])
            with VerticalScroll():
                yield Folded(lines)

    def on_key(self, event: events.Key) -> None:
        if event.key in ("j", "k"):
            scroll = self.query_one(VerticalScroll)
            scroll.scroll_relative(y=1 if event.key == "j" else -1, animate=False)


class Facts(Dialog[None]):
    """Facts to read: processes on the GPUs, a run's command."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter,q", "cancel", "back", show=False),
        Binding("y", "copy", "copy", show=False),
    ]
    AUTO_FOCUS = "VerticalScroll"
    CHROME_ROWS = 4  # frame, title and a blank row

    def __init__(self, title: str, lines: Sequence[Line], copied: str | None = None) -> None:
        super().__init__()
        self._title = title
        self._lines = lines
        self._copied = copied

    def compose(self) -> ComposeResult:
        keys: list[Run] = [("   Esc", "accent!"), (" back", "muted")]
        if self._copied:
            keys += [("   y", "accent!"), (" copy", "muted")]
        with Container(classes="dialog"):
            yield Lines([[(self._title, "strong!"), *keys], []])
            with VerticalScroll():
                yield Folded(self._lines)

    def action_copy(self) -> None:
        """The facts as text."""
        if self._copied:
            panel_of(self).copy_text(self._copied, self._title.lower())

    def on_key(self, event: events.Key) -> None:
        if event.key in ("j", "k"):
            scroll = self.query_one(VerticalScroll)
            scroll.scroll_relative(y=1 if event.key == "j" else -1, animate=False)
