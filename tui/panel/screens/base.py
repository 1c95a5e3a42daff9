"""What all modes share: header, footer, and what happens when the board changes."""

from textual.app import ComposeResult
from textual.screen import Screen
from textual.widgets import Input

from tui.panel.host_view import Board, run_name
from tui.panel.keys import keys
from tui.panel.protocol import Panel, Subject, panel_of
from tui.panel.widgets.footer import Footer, Keys
from tui.panel.widgets.header import Header
from tui.panel.widgets.paint import Painted, Run
from tui.panel.widgets.tight import TightCompositor


class Mode(Screen[None]):
    """One of the modes."""

    AUTO_FOCUS = ""
    NAME = "Dashboard"

    def __init__(self, board: Board) -> None:
        super().__init__()
        self._compositor = TightCompositor()
        self.board = board

    @property
    def eagle(self) -> Panel:
        """The panel around it."""
        return panel_of(self)

    def compose(self) -> ComposeResult:
        yield self.header()
        yield from self.content()
        yield Footer(self.footer_keys())

    def header(self) -> Header:
        """The row over it."""
        return Header(self.board, self.NAME)

    def content(self) -> ComposeResult:
        """Widgets between header and footer."""
        raise NotImplementedError

    def footer_keys(self) -> Keys:
        """The most used keys here and now."""
        return keys("l", "?", "^P", "q")

    def field_keys(self) -> Keys:
        """The keys of a text field that has the focus."""
        return (("Enter", "done"), ("Esc", "back"))

    def about(self) -> Subject:
        """What a note that is written here is about: the displayed run, else the host."""
        run = self.board.run
        if run is None:
            return Subject(f"host:{self.board.host}", f"host {self.board.host}")
        return Subject(f"run:{run.run_id}", f"run {run.short_id}, {run_name(run)} on {self.board.host}")

    def footer_note(self) -> list[Run]:
        """A fact for the right end of the footer."""
        return []

    def update(self) -> None:
        """The board has changed: repaints what differs."""
        for painted in self.query(Painted):
            painted.repaint()
        self.update_footer()

    def update_footer(self) -> None:
        """Other keys where the focus or the state asks for them."""
        writing = isinstance(self.focused, Input)
        shown = self.field_keys() if writing else self.footer_keys()
        if not writing and self.NAME != "Hosts" and len(self.eagle.boards) > 1:
            shown = (*keys("0"), *shown)
        if not writing and self.eagle.group is not None and self.NAME in ("Dashboard", "Logs"):
            shown = (*keys("m"), *(key for key in shown if key[0] != "m"))
        self.query_one(Footer).show(shown, self.footer_note())

    def on_screen_resume(self) -> None:
        self.update()

    def on_descendant_focus(self) -> None:
        self.update_footer()

    def on_descendant_blur(self) -> None:
        self.update_footer()
