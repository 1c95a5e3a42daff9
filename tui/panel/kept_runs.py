"""What is done with a run that the journal keeps: launched again, its log displayed, some of them listed."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tui.panel.host_app import HostApp
from tui.panel.panel_host import PanelHost

if TYPE_CHECKING:
    from tui.core.journal.model import RunRow


class KeptRuns:
    """Of all hosts; what needs one that is not open says so."""

    def __init__(self, app: HostApp, hosts: Callable[[], Sequence[PanelHost]]) -> None:
        self._app = app
        self._hosts = hosts

    def _host_of(self, run: "RunRow") -> PanelHost | None:
        host = next((one for one in self._hosts() if one.board.host == run.host), None)
        if host is None:
            self._app.say(f"{run.host} is not open here: h opens it", severity="warning")
        return host

    def launch_again(self, run: "RunRow") -> None:
        """The launch dialog for the profile of a run with its flags, on its host."""
        host = self._host_of(run)
        if host is not None:
            if host.board is not self._app.board:
                host.show_mode("dashboard")
            host.launcher.preview_of(run.profile, run.sets)

    def show_log(self, run: "RunRow") -> None:
        """Displays a run and its log, as long as its host has it."""
        host = self._host_of(run)
        if host is None:
            return
        board = host.board
        found = next((one for one in board.runs if one.run_id == run.run_id), None)
        if found is None or found.log_path is None:
            gone = board.connected and board.runs_read
            why = f"{run.host} no longer has this run" if gone else f"{run.host} is not reached"
            self._app.say(f"No log: {why}; Enter shows what is kept of it", severity="warning")
            return
        if board.run is None or board.run.run_id != found.run_id:
            host.displayed.pick(found)
        host.show_mode("logs")

    def show(self, run_ids: frozenset[str], of: str) -> None:
        """Some of all runs, and of what they are."""
        from tui.panel.screens.runs import Runs

        self._app.show_mode("runs")

        def only() -> None:
            if isinstance(self._app.screen, Runs):
                self._app.screen.show_only(run_ids, of)

        self._app.call_after_refresh(only)
