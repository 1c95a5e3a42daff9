"""A group as the panel displays it: the state of the whole, and the board of each member. Free of Textual, like the board."""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tui import format as fmt
from tui.core.model.group import Group, Member, Role
from tui.core.model.job import Job
from tui.core.model.phases import ALIVE, Outcome, Phase
from tui.core.model.run import short_id
from tui.panel.host_view import Board
from tui.panel.server_view import Badge, badge, left_s, phase_rows

if TYPE_CHECKING:
    from tui.core.groups.group_state import GroupState
    from tui.core.server.server_state import ServerState

_BEHIND_S = 10.0  # nobody wonders about less
_LEAST_MIB = 2 * fmt.MIB_PER_GIB  # loaded, before one counts as behind
_BEHIND = 0.9  # of what the furthest has loaded


@dataclass(frozen=True)
class Seen:
    """A member with the board that it is displayed on, and its state as the group counts it."""

    member: Member
    board: Board
    state: "ServerState | None" = None
    link_lost: bool = False

    @property
    def node(self) -> str | None:
        """Of a rank of a job where it runs, as far as it has a node."""
        return self.state.run.node if self.state is not None else None

    @property
    def place(self) -> str:
        """Where it runs: its host, or its node of a cluster."""
        return self.node or self.member.host

    @property
    def label(self) -> str:
        """What its column is called: the host of a rank, the role of anything else."""
        named = self.member.role is not Role.RANK or (self.job is not None and self.node is None)
        return self.member.name if named else self.place

    @property
    def job(self) -> Job | None:
        return self.state.run.job if self.state is not None else None

    @property
    def gpus(self) -> Board:
        """The board with the GPUs that it runs on: of a rank of a job those of its node, where they are read."""
        return self.board if self.job is None else self.board.on_node or Board(self.place, link=self.board.link)


@dataclass(frozen=True)
class Behind:
    """A member whose GPUs have loaded clearly less than another's."""

    member: Seen
    ahead: Seen
    by_s: float | None


@dataclass(frozen=True)
class GroupPhase:
    """One phase of the start of all members."""

    phase: Phase
    mark: str  # glyph
    took_s: tuple[float | None, ...]  # of each member, None where it has not begun
    spans_s: tuple[tuple[float, float] | None, ...]  # of each member, from its own launch
    usual_s: float | None
    left_s: float  # of the slowest member


class OpenGroup:
    """A group that the panel watches.

    Attributes:
        state: None until the first look at all members.
        stop: how far a stop of it has come, one line; None without one.
        at: the member whose own panel is displayed, by its place; None: the whole group is.
    """

    def __init__(self, group: Group, board_of: Callable[[Member], Board]) -> None:
        self.group = group
        self._board_of = board_of
        self.state: GroupState | None = None
        self.stop: str | None = None
        self.at: int | None = None

    @property
    def short_id(self) -> str:
        """The six digits that screens show."""
        return short_id(self.group.group_id)

    @property
    def roles(self) -> bool:
        """Whether its members are servers of their own, rather than the nodes of one."""
        return any(member.role is not Role.RANK for member in self.group.members)

    @property
    def job(self) -> Job | None:
        """The job of Slurm that it is, as last seen."""
        return next((job for one in self.seen() if (job := one.job) is not None), None)

    def board_of(self, member: Member) -> Board:
        """What is known of a member and of its host."""
        return self._board_of(member)

    def seen(self) -> list[Seen]:
        """All members in their order."""
        states = self.state.members if self.state is not None else ()
        known = {one.member: one for one in states}
        found = []
        for member in self.group.members:
            board = self.board_of(member)
            own = board.state if board.run is not None and board.run.run_id == member.run_id else None
            one = known.get(member)
            state = one.state if one is not None and one.state is not None else own
            found.append(Seen(member, board, state, one.link_lost if one is not None else board.stale))
        return found

    def serving(self) -> Seen:
        """The member that clients talk to."""
        return next(one for one in self.seen() if one.member == self.group.serving)

    def by_host(self) -> list[Seen]:
        """A member of each host that has GPUs to show: of several on one host the first; each node of a job."""
        first: dict[str, Seen] = {}
        for one in self.seen():
            if one.member.role is not Role.ROUTER:
                first.setdefault(one.member.name if self.group.job else one.member.host, one)
        return list(first.values())

    @property
    def gpus_read(self) -> bool:
        """Whether its GPUs are: of a job they are not those of its host."""
        return not self.group.job or any(one.board.on_node is not None for one in self.seen())

    @property
    def outcome(self) -> Outcome:
        """Of the whole; starting until all members were seen."""
        return self.state.outcome if self.state is not None else Outcome.STARTING

    @property
    def alive(self) -> bool:
        """Whether a stop has something to end."""
        return self.outcome in (*ALIVE, Outcome.UNKNOWN) or any(
            one.state is not None and (not one.state.run.over or one.state.run.orphans) for one in self.seen()
        )

    @property
    def stop_verb(self) -> str:
        """What the key that stops it does."""
        if not self.group.job:
            return f"stop all {len(self.group.members)}"
        return "cancel the job" if self.outcome is Outcome.QUEUED else "stop the job"

    @property
    def stopping(self) -> bool:
        return self.stop is not None and self.alive

    def badge(self) -> Badge:
        """How the whole is shown: as the serving member would be, with the outcome of the group."""
        serving = self.serving().state
        if serving is None:
            return Badge("◌", "LAUNCH", "muted", "raised")
        from dataclasses import replace

        whole = replace(serving, outcome=self.outcome, suspicion=None)
        return badge(whole, stale=False, stopping=self.stopping)

    def eta_s(self) -> float | None:
        """Seconds to ready: of the member that takes longest, as far as earlier starts say."""
        return self.state.eta_s if self.state is not None and self.outcome is Outcome.STARTING else None

    def phases(self) -> list[GroupPhase]:
        """The phases of all members, in the order of the one that has come furthest."""
        seen = self.seen()
        tables = []
        for one in seen:
            rows = phase_rows(one.state, one.board.sglang_version()) if one.state is not None else []
            table, at = {}, 0.0
            for row in rows:
                if one.member.follows and row.phase is Phase.WARMUP:
                    continue  # it has none: it waits for that of rank 0
                rest = left_s(one.state, row, rows) if one.state is not None and row.mark == "◐" else 0.0
                table[row.phase] = (row, (at, at + row.took_s) if row.took_s is not None else None, rest)
                at += row.took_s or 0.0
            tables.append(table)
        ranks = [table for one, table in zip(seen, tables, strict=True) if one.member.role is not Role.ROUTER]
        order = dict.fromkeys(phase for table in sorted(ranks, key=len, reverse=True) for phase in table)
        found = []
        for phase in order:
            cells = [table.get(phase) for table in tables]
            marks = [
                cell[0].mark for cell, table in zip(cells, tables, strict=True) if cell is not None and table in ranks
            ]
            usual = [cell[0].usual_s for cell in cells if cell is not None and cell[0].usual_s is not None]
            found.append(
                GroupPhase(
                    phase,
                    _mark(marks),
                    tuple(cell[0].took_s if cell is not None else None for cell in cells),
                    tuple(cell[1] if cell is not None else None for cell in cells),
                    max(usual, default=None),
                    max((cell[2] for cell in cells if cell is not None), default=0.0),
                )
            )
        return found

    # -- who is late -----------------------------------------------------------------------------------------------

    def behind(self) -> Behind | None:
        """The member that the others wait for while weights are loaded, by the memory of all GPUs of each."""
        seen = [one for one in self.by_host() if one.member.role is Role.RANK and one.state is not None]
        if len(seen) < 2 or any(one.state is None or one.state.phase is not Phase.LOAD_WEIGHTS for one in seen):
            return None
        loaded: list[tuple[float, Seen]] = []
        for one in seen:
            known = [mib for mib in one.gpus.loaded_mib() if mib is not None]
            if not known:
                return None
            loaded.append((statistics.median(known), one))
        (least, last), (most, first) = min(loaded, key=lambda each: each[0]), max(loaded, key=lambda each: each[0])
        if most < _LEAST_MIB or least >= _BEHIND * most:
            return None
        took = first.state.phase_took_s.get(Phase.LOAD_WEIGHTS) if first.state is not None else None
        pace = most / took if took else None
        by_s = (most - least) / pace if pace else None
        return Behind(last, first, by_s) if by_s is None or by_s >= _BEHIND_S else None

    def late(self) -> tuple[str, str] | None:
        """Who keeps the others waiting, and the rest of that sentence."""
        behind = self.behind()
        if behind is not None:
            ranks = sum(self.ranks_of(one) for one in self.seen())
            by = f"{fmt.duration(behind.by_s)} behind" if behind.by_s is not None else "behind"
            who = f"all {ranks} ranks wait for it" if ranks else "all ranks wait for it"
            return f"{behind.member.label} is late:", f"{by} {behind.ahead.label}; {who}"
        if self.state is not None and self.state.late is not None:
            return self.state.late, ""
        return None

    def late_member(self) -> Member | None:
        """The member that is late now."""
        behind = self.behind()
        return behind.member.member if behind is not None else None

    @staticmethod
    def ranks_of(one: Seen) -> int:
        """How many ranks a member has, 0 where it is not known yet."""
        return len(one.state.startup.ranks) if one.state is not None else 0

    def rank_span(self, one: Seen) -> str:
        """`TP8–15`: the ranks of a member as its log names them; empty before it has."""
        tags = [rank.tag for rank in one.state.startup.ranks if rank.tag] if one.state is not None else []
        numbers = sorted(int(tag.removeprefix("TP")) for tag in tags if tag.removeprefix("TP").isdigit())
        if not numbers:
            return ""
        return f"TP{numbers[0]}–{numbers[-1]}" if len(numbers) > 1 else f"TP{numbers[0]}"


def _mark(marks: Sequence[str]) -> str:
    """Of a phase over all members: under way until the last of them has left it."""
    if "✗" in marks:
        return "✗"
    if "◐" in marks or {"✓", "·"} <= set(marks):
        return "◐"
    return "✓" if "✓" in marks else "·"
