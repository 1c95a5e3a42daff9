"""What the modes that show the journal have in common: while one is on the screen, what others write comes up in it."""

from tui.panel.screens.base import Mode

_LOOK_S = 2.0  # between two looks at the size of the file


class JournalMode(Mode):
    """A mode that looks whether the journal has more, as long as it is shown."""

    def on_mount(self) -> None:
        self.set_interval(_LOOK_S, self._look)

    def on_screen_resume(self) -> None:
        self.eagle.journal.look()

    def _look(self) -> None:
        if self.is_current:
            self.eagle.journal.look()
