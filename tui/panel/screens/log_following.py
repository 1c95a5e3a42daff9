"""A screen that follows a log, and loads what its reader comes near to or asks for."""

from textual import work

from tui.core.errors import EagletuiError
from tui.panel.host_view import Board
from tui.panel.open_log import LogSource, OpenLog
from tui.panel.screens.base import Mode
from tui.panel.widgets.log.pair import LogPair
from tui.panel.widgets.log.scroll import Scrolled
from tui.panel.widgets.log.view import LogView

_BLOCKS = 4  # loaded at once where a filter hides nearly all of each
_FILLED = 3  # times that many, for a first page
_NOTHING = {"hit": "No hit", "phase": "No phase", "error": "No error"}


class LogFollowing(Mode):
    """Keeps a view, or two logs beside each other, supplied with what the file holds."""

    def __init__(self, board: Board) -> None:
        super().__init__(board)
        self.view = LogView(board, numbers=True)
        self.pair: LogPair | None = None
        self._loading = False
        self._filled = 0
        self._surveyed: OpenLog | None = None

    @property
    def front(self) -> LogView | LogPair:
        """What is displayed: the log, or two of them."""
        return self.pair or self.view

    def open(self) -> None:
        """Opens the log that is displayed without being watched, once; asks the host for what is not loaded of any."""
        log = self.board.log
        if log is None and (source := self.eagle.log_source()) is not None:
            log = self.board.log = OpenLog(source.name, source.file, touch=self.eagle.touch)
            self._follow(log, source)
        if log is not None and log is not self._surveyed:
            self._filled, self._surveyed = 0, log
            self._survey(log)

    @work(exclusive=True, group="reading", exit_on_error=False)
    async def _follow(self, log: OpenLog, source: LogSource) -> None:
        try:
            await log.follow(source)
        except EagletuiError as error:
            log.problem = error.message
        except Exception as error:
            log.problem = self.eagle.report_fault(error).message
        finally:
            self.eagle.touch()

    @work(exclusive=True, group="survey", exit_on_error=False)
    async def _survey(self, log: OpenLog) -> None:
        try:
            await log.survey()
        except EagletuiError as error:
            log.problem = error.message

    def _fill(self) -> None:
        """Loads blocks, but not forever, while what is loaded does not fill the first page."""
        view, log = self.view, self.view.open_log
        if log is None or self._loading or self._filled >= _FILLED:
            return
        if view.following and view.wants(-1) and view.keys():
            self._filled += 1
            self._more(-1)

    def on_scrolled_near(self, event: Scrolled.Near) -> None:
        if not self._loading:
            self._more(event.step)

    @work(group="more", exit_on_error=False)
    async def _more(self, step: int) -> None:
        front = self.front
        self._loading = True
        try:
            for _ in range(_BLOCKS):
                log = front.lacking(step) if isinstance(front, LogPair) else front.open_log
                if log is None:
                    break
                came = await (log.earlier() if step < 0 else log.later())
                front.update()
                blank = isinstance(front, LogPair) and front.uneven(step)
                if not came or not (blank or front.wants(step)):
                    break
        except EagletuiError as error:
            self.eagle.tell(error)
        finally:
            self._loading = False

    def on_scrolled_beyond(self, event: Scrolled.Beyond) -> None:
        self._reach(event.what, event.step)

    @work(exclusive=True, group="reach", exit_on_error=False)
    async def _reach(self, what: str, step: int) -> None:
        view, log = self.view, self.view.open_log
        if log is None:
            return
        try:
            if self.pair is not None:
                await self._reach_both(self.pair, what, step)
                return
            index = await log.reach(what, step, view.here(step))
        except EagletuiError as error:
            self.eagle.tell(error)
            return
        view.sync()
        if what == "end":
            view.action_bottom()
        elif index is not None:
            view.show_key(index)
            if what == "hit":
                view.open_hit(step)
        elif log.problem is None:
            self.eagle.say(_NOTHING.get(what, "Nothing") + " in the whole log")

    @staticmethod
    async def _reach_both(pair: LogPair, what: str, step: int) -> None:
        """The beginning or the end of both logs."""
        for log in {side.log for side in pair.sides}:
            await log.reach(what, step, None)
        pair.update()
        if what == "end":
            pair.action_bottom()
        elif pair.keys():
            pair.show_key(0)
