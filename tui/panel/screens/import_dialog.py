"""A posted launch command becomes a profile; nothing is executed."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from textual.binding import BindingType
from textual.widget import Widget
from textual.widgets import Input, TextArea

from tui import format as fmt
from tui.core.config import config_dir
from tui.core.errors import EagletuiError
from tui.core.text import one_line
from tui.panel.keys import bindings, keys
from tui.panel.screens.dialog import Box, Dialog
from tui.panel.screens.plan_rows import error_rows
from tui.panel.widgets.rows import AnyRow, KeyRow, Line, Prose

if TYPE_CHECKING:
    from tui.core.profiles.importing.shell_command import ImportedCommand


class ImportDialog(Dialog[Path]):
    """A field for the command (or the path of a script), and a name for the profile."""

    BINDINGS: ClassVar[list[BindingType]] = bindings("import dialog")
    AUTO_FOCUS = "TextArea"

    def head(self) -> Iterable[Widget]:
        title: Line = [
            ("i IMPORT", "accent!"),
            ("   ", "text"),
            ("Paste a launch command, or the path of a script", "strong!"),
        ]
        yield Prose([title, [("Nothing is executed.", "muted")]])
        yield TextArea(id="posted")

    def body(self) -> Iterable[Widget]:
        yield Prose(id="result")

    def foot(self) -> Iterable[Widget]:
        yield Input(placeholder="name of the new profile", id="name")
        yield Prose(
            [KeyRow((("Tab", "next field"), *keys("^S", where="import dialog"), ("Esc", "back")))], classes="keys"
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
        result = self.query_one("#result", Prose)
        try:
            text = self._text()
        except (OSError, RuntimeError) as error:  # no such user, or a file that is not for us
            result.show([[("✗ ", "err"), (f"cannot be read: {one_line(str(error))}", "text")]])
            return None
        if not text.strip():
            result.show([])
            return None
        from tui.core.profiles.importing.shell_command import import_command

        try:
            imported = import_command(text, str(Path.home()))
        except EagletuiError as error:
            result.show(error_rows(error))
            return None
        result.show(outcome_rows(imported))
        return imported.profile

    def action_scroll_outcome(self, rows: int) -> None:
        """What came of it, from the name's field."""
        self.query_one(Box).scroll_relative(y=rows, animate=False)

    def action_save(self) -> None:
        """Writes the profile into the user's directory."""
        profile = self._try()
        name = self.query_one(Input).value.strip()
        if profile is None:
            self.panel.say("There is no launch command to save yet", severity="warning")
            return
        if not name:
            self.query_one(Input).focus()
            self.panel.say("Give the profile a name", severity="warning")
            return
        from tui.core.profiles.toml_text import save_profile

        directory = config_dir() / "profiles"
        try:
            directory.mkdir(parents=True, exist_ok=True)
            self.dismiss(save_profile(profile, name, directory))
        except EagletuiError as error:
            self.panel.tell(error)
        except OSError as error:
            self.panel.say(f"{directory} cannot be written: {error.strerror}", severity="error")

    def on_input_submitted(self) -> None:
        self.action_save()


def outcome_rows(imported: "ImportedCommand") -> list[AnyRow]:
    """What was found, what was left out or changed, and the profile with its secrets masked."""
    from tui.core.profiles.toml_text import masked_profile

    flags = sum(1 for word in imported.argv if word.startswith("--"))
    counts = f"{fmt.plural(flags, 'flag')}, {fmt.plural(len(imported.env), 'environment variable')}"
    shown = [row for row in masked_profile(imported.profile).splitlines() if row.strip()]
    missed = set(imported.not_understood)
    return [
        [("✓ ", "ok"), (counts, "text")],
        *([("▲ ", "warn"), (warning, "text")] for warning in imported.warnings if warning not in missed),
        *([("▲ not understood: ", "warn"), (text, "text")] for text in imported.not_understood),
        *([("  ", "text"), (row, "muted")] for row in shown),
    ]
