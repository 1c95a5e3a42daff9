"""A posted launch command becomes a profile; nothing is executed."""

from pathlib import Path
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.widgets import Input, TextArea

from tui.config import config_dir
from tui.core.errors import EagletuiError
from tui.screens.dialogs import Dialog, Line, Lines
from tui.widgets.paint import wrap


class ImportDialog(Dialog[Path]):
    """A field for the command (or the path of a script), and a name for the profile."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("ctrl+s", "save", "save", show=False, priority=True)]
    AUTO_FOCUS = "TextArea"

    def compose(self) -> ComposeResult:
        with Container(classes="dialog"):
            yield Lines([[("i IMPORT", "accent!"), ("   ", "text"), ("Paste a launch command, or the path of a script", "strong!")],
                         [("Nothing of it is executed.", "muted")], []])  # fmt: skip
            yield TextArea(id="posted")
            yield Lines([[]], id="result")
            yield Input(placeholder="name of the new profile", id="name")
            yield Lines(
                [
                    [
                        ("Tab", "accent!"),
                        (" next field   ", "muted"),
                        ("^S", "accent!"),
                        (" save   ", "muted"),
                        ("Esc", "accent!"),
                        (" back", "muted"),
                    ]
                ]
            )

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
        result = self.query_one("#result", Lines)
        text = self._text()
        if not text.strip():
            result.set_lines([[]])
            return None
        from tui.core.shell_command import import_command

        lines: list[Line]
        try:
            imported = import_command(text, str(Path.home()))
        except EagletuiError as error:
            result.set_lines([[("✗ ", "err"), (part, "text")] for part in wrap(error.message, 80)][:3])
            return None
        lines = [
            [("✓ ", "ok"), (f"{len(imported.argv)} words, {len(imported.env)} environment variables", "text")]
        ]
        for warning in imported.warnings[:4]:
            lines += [[("▲ ", "warn"), (part, "text")] for part in wrap(warning, 80)][:2]
        result.set_lines(lines)
        return imported.profile

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
        from tui.core.profiles import save_profile

        directory = config_dir() / "profiles"
        try:
            directory.mkdir(parents=True, exist_ok=True)
            self.dismiss(save_profile(profile, name, directory))
        except EagletuiError as error:
            self.app.notify(f"{error.message}\n{error.hint or ''}", markup=False, severity="error")
        except OSError as error:
            self.app.notify(
                f"{directory} cannot be written: {error.strerror}", markup=False, severity="error"
            )

    def on_input_submitted(self) -> None:
        self.action_save()
