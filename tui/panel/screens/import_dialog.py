"""A posted launch command becomes a profile; nothing is executed."""

from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container, VerticalScroll
from textual.widgets import Input, TextArea

from tui import format as fmt
from tui.core.config import config_dir
from tui.core.errors import EagletuiError
from tui.core.text import one_line
from tui.panel.hints import in_panel
from tui.panel.screens.dialogs import Dialog, Folded, Line, Lines, key_row

if TYPE_CHECKING:
    from tui.core.profiles.importing.shell_command import ImportedCommand


class ImportDialog(Dialog[Path]):
    """A field for the command (or the path of a script), and a name for the profile."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+s", "save", "save", show=False, priority=True),
        Binding("pagedown", "scroll_outcome(5)", "page down", show=False),
        Binding("pageup", "scroll_outcome(-5)", "page up", show=False),
    ]
    AUTO_FOCUS = "TextArea"

    def compose(self) -> ComposeResult:
        with Container(classes="dialog"):
            yield Folded([[("i IMPORT", "accent!"), ("   ", "text"), ("Paste a launch command, or the path of a script", "strong!")],
                         [("Nothing of it is executed.", "muted")]], id="head")  # fmt: skip
            yield TextArea(id="posted")
            with VerticalScroll(id="outcome", can_focus=False):
                yield Folded([[]], id="result")
            yield Input(placeholder="name of the new profile", id="name")
            yield Lines([key_row((), (("Tab", "next field"), ("^S", "save"), ("Esc", "back")), 60)])

    def _fit(self) -> None:
        super()._fit()
        # Title, name, keys, frame and blank rows keep theirs; the command gives way to what came of it.
        rows = self.app.size.height
        posted = max(3, min(10, rows // 4))
        self.query_one(TextArea).styles.height = posted
        self.query_one("#outcome", VerticalScroll).styles.max_height = max(2, rows - posted - (6 if self.short else 9))

    def _text(self) -> str:
        text = self.query_one(TextArea).text
        path = Path(text.strip()).expanduser()
        if text.strip() and "\n" not in text.strip() and len(text) < 400 and path.is_file():
            return path.read_text(encoding="utf-8", errors="replace")
        return text

    def on_text_area_changed(self) -> None:
        self._try()

    def _try(self) -> str | None:
        """The profile's text, or None; says what came of it either way."""
        result = self.query_one("#result", Folded)
        try:
            text = self._text()
        except (OSError, RuntimeError) as error:  # no such user, or a file that is not for us
            result.set_lines([[("✗ ", "err"), (f"cannot be read: {one_line(str(error))}", "text")]])
            return None
        if not text.strip():
            result.set_lines([[]])
            return None
        from tui.core.profiles.importing.shell_command import import_command

        try:
            imported = import_command(text, str(Path.home()))
        except EagletuiError as error:
            lines: list[Line] = [[("✗ ", "err"), (error.message, "text")]]
            if error.hint:
                lines.append([("  ", "text"), (in_panel(error.hint), "muted")])
            result.set_lines(lines)
            return None
        result.set_lines(told(imported))
        return imported.profile

    def action_scroll_outcome(self, rows: int) -> None:
        """What came of it, from the name's field."""
        self.query_one("#outcome", VerticalScroll).scroll_relative(y=rows, animate=False)

    def action_save(self) -> None:
        """Writes the profile into the user's directory."""
        profile = self._try()
        name = self.query_one(Input).value.strip()
        if profile is None:
            self.app.notify("There is no launch command to save yet", markup=False, severity="warning")
            return
        if not name:
            self.query_one(Input).focus()
            self.app.notify("Give the profile a name", markup=False, severity="warning")
            return
        from tui.core.profiles.toml_text import save_profile

        directory = config_dir() / "profiles"
        try:
            directory.mkdir(parents=True, exist_ok=True)
            self.dismiss(save_profile(profile, name, directory))
        except EagletuiError as error:
            self.app.notify(f"{error.message}\n{error.hint or ''}", markup=False, severity="error")
        except OSError as error:
            self.app.notify(f"{directory} cannot be written: {error.strerror}", markup=False, severity="error")

    def on_input_submitted(self) -> None:
        self.action_save()


def told(imported: "ImportedCommand") -> list[Line]:
    """What was found, what was left out or changed, and the profile with its secrets masked."""
    flags = sum(1 for word in imported.argv if word.startswith("--"))
    counts = f"{fmt.plural(flags, 'flag')}, {fmt.plural(len(imported.env), 'environment variable')}"
    lines: list[Line] = [[("✓ ", "ok"), (counts, "text")]]
    lines += [[("▲ ", "warn"), (warning, "text")] for warning in imported.warnings]
    shown = masked_profile(imported.profile)
    return [*lines, *([("  ", "text"), (row, "muted")] for row in shown.splitlines() if row.strip())]


def masked_profile(text: str) -> str:
    """A profile's TOML with its secrets masked."""
    import tomli

    from tui.core.profiles.secrets import MASK, is_secret_env
    from tui.core.sglang.flags import flag_table

    table = tomli.loads(text)
    names = [name for name, value in table.get("env", {}).items() if is_secret_env(name, str(value))]
    names += [name for name in table.get("args", {}) if flag_table().canonical(name) in flag_table().secret]
    rows = []
    for row in text.splitlines():
        key = row.partition("=")[0].strip().strip('"')
        rows.append(f'{row.partition("=")[0]}= "{MASK}"' if "=" in row and key in names else row)
    return "\n".join(rows)
