"""What screens and widgets may ask of the panel around them. The apps offer it; nothing below the apps knows an app."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, cast

if TYPE_CHECKING:
    from pathlib import Path

    from textual.message_pump import MessagePump

    from tui.core.errors import EagletuiError
    from tui.core.experiment.history import Configuration
    from tui.core.experiment.overrides import Overrides
    from tui.core.groups.session import GroupPlan
    from tui.core.journal.model import Entry, RunRow
    from tui.core.model.experiment import ExperimentState
    from tui.core.model.log import LogRecord
    from tui.core.profiles.launch_profile import LaunchProfile
    from tui.core.profiles.load import ProfileEntry
    from tui.core.server.launch import LaunchPlan
    from tui.core.server.session import HostSession
    from tui.panel.bench_view import Preview
    from tui.panel.host_view import Board
    from tui.panel.keys import Key
    from tui.panel.open_group import OpenGroup
    from tui.panel.open_log import Beside, LogSource


@dataclass(frozen=True)
class Subject:
    """What a screen is about, for a note on it."""

    about: str  # a reference of the journal: `run:ID`, `host:NAME`, the id of an entry
    words: str  # for people


class JournalControl(Protocol):
    """Reading and writing the journal of a host; what is read is on its board."""

    def look(self) -> None: ...  # reads where somebody wrote since
    def write(self, job: "Callable[[], Entry]", said: str, again: "Callable[[], None] | None" = None) -> None: ...
    def export(self) -> None: ...


class KeptRuns(Protocol):
    """What is done with runs that the journal keeps, of all hosts."""

    def launch_again(self, run: "RunRow") -> None: ...  # its profile with its flags, on its host; shown first
    def show_log(self, run: "RunRow") -> None: ...  # as long as its host has it
    def show(self, run_ids: "frozenset[str]", of: str) -> None: ...  # some of all, and of what they are


class BenchControl(Protocol):
    """Starting, steering and ending a measurement; at most one at a time."""

    last_bench: str | None  # name of the bench profile that was measured last

    @property
    def under_way(self) -> bool: ...
    @property
    def launches(self) -> bool: ...

    async def preview(
        self, name: str, overrides: "Overrides | None" = None, before: "Preview | None" = None
    ) -> "Preview": ...
    async def look_ahead(self, preview: "Preview") -> "Preview": ...
    def start_experiment(self, preview: "Preview", *, resume: bool = False, more_pairs: int = 0) -> None: ...
    def pause(self) -> bool | None: ...
    def stop(self) -> None: ...
    def one_more_pair(self, shown: "ExperimentState | None") -> None: ...

    def read_stored(self) -> None: ...
    async def configurations(self) -> "Sequence[Configuration]": ...
    async def show(self, chosen: "Sequence[Configuration]") -> None: ...
    def export(self, shown: "ExperimentState") -> None: ...


class TuneControl(Protocol):
    """Beginning, steering and ending a tune."""

    @property
    def under_way(self) -> bool: ...

    def ask(self, profile: str) -> None: ...
    def pause(self) -> bool | None: ...
    def stop(self) -> None: ...


class Panel(Protocol):
    """The app around a screen, as far as screens know it."""

    @property
    def board(self) -> "Board": ...
    @property
    def boards(self) -> "Sequence[Board]": ...  # of all hosts that are open
    @property
    def group(self) -> "OpenGroup | None": ...  # of the run that is displayed
    @property
    def session(self) -> "HostSession | None": ...
    @property
    def measure(self) -> BenchControl: ...
    @property
    def journal(self) -> JournalControl: ...
    @property
    def kept(self) -> KeptRuns: ...
    @property
    def tuning(self) -> TuneControl: ...

    def choose(self, board: "Board") -> None: ...  # keys and dialogs are about this host from now on
    def show_mode(self, name: str, board: "Board | None" = None) -> None: ...
    def close_host(self) -> None: ...  # takes it off the overview, where it is not reached
    def offers(self, key: "Key") -> bool: ...  # whether a key works here at all

    # What a person is shown.
    def touch(self, *, soon: bool = False) -> None: ...
    def say(self, text: str, *, severity: str = "information") -> None: ...
    def tell(self, error: "EagletuiError") -> None: ...
    def report_fault(self, error: Exception) -> "EagletuiError": ...
    def copy_text(self, text: str, what: str) -> None: ...

    # Profiles and plans of launches.
    def profile_dirs(self) -> "list[Path]": ...
    def profile_entries(self) -> "list[ProfileEntry]": ...
    async def make_plan(  # of a group with `reach` on hosts that are not open yet, too
        self, profile: "LaunchProfile", sets: Sequence[str], *, reach: bool = True
    ) -> "LaunchPlan | GroupPlan": ...
    def action_launch(self) -> None: ...
    def start_experiment(self, preview: "Preview", *, resume: bool) -> None: ...  # on the host of the preview

    # Other screens, and what they are about.
    def show_log(self, line: int | None) -> None: ...
    def show_line(self, record: "LogRecord", number: int | None) -> None: ...
    def open_member(self) -> None: ...  # of the group, the one that says most
    def show_gpus(self) -> None: ...
    def show_run(self) -> None: ...
    def log_source(self) -> "LogSource | None": ...
    def logs_beside(self) -> "list[Beside]": ...


def panel_of(node: "MessagePump") -> Panel:
    """The panel that a screen or a widget belongs to."""
    return cast("Panel", node.app)
