"""The dashboard of a group: card, GPUs, members and merged log, laid out by the width and height that there are."""

from collections import Counter

from tui import format as fmt
from tui.core.model.phases import Outcome
from tui.panel.hints import in_panel
from tui.panel.open_group import OpenGroup
from tui.panel.protocol import panel_of
from tui.panel.widgets.group import card, gpus, job, members, roles
from tui.panel.widgets.group.log import MergedLog
from tui.panel.widgets.header import Header
from tui.panel.widgets.host_line import short_gpu_name
from tui.panel.widgets.jobs import draw_jobs
from tui.panel.widgets.paint import Canvas, Painted, Run, join

_LOG_ROWS = 4


class GroupHeader(Header):
    """All hosts of the group, and how old what is known of each is."""

    def _link(self, *, short: bool, rtt: bool) -> list[Run]:
        opened = panel_of(self).group
        if opened is None or len(opened.group.hosts) < 2:
            return super()._link(short=short, rtt=rtt)
        boards = {one.member.host: one.board for one in opened.seen()}
        up = [board for board in boards.values() if board.connected]
        ages = [fmt.age(age) for board in up if (age := board.link_age_s()) is not None]
        shown = list(boards)[:3]
        more = f" +{len(boards) - len(shown)}" if len(boards) > len(shown) else ""
        names: list[Run] = [((" + " if not short else "+").join(shown) + more, "strong!"), ("  ", "muted")]
        simulated: list[Run] = [(" SIMULATED ", "warn!/warnbg"), ("  ", "muted")]
        said = [*names, *(simulated if any(board.simulated for board in boards.values()) else [])]
        if len(up) < len(boards):
            return [*said, ("▲ ", "warn"), (f"{len(up)} of {len(boards)} linked", "text")]
        if short or not ages:
            return [*said, ("● ", "ok"), (max(ages, default=""), "muted")]
        return [*said, ("● ", "ok"), ("links ", "muted"), (" and ".join(ages[:2]), "text"), (" ago", "muted")]

    def _usual_width(self, *, short: bool, rtt: bool) -> int:
        return sum(len(text) for text, _ in self._link(short=short, rtt=rtt))


class GroupPanel(Painted):
    """Everything between header and footer. It paints itself whole: only cells that changed are sent."""

    can_focus = False

    def __init__(self) -> None:
        super().__init__(id="group")
        self.merged = MergedLog()

    def draw(self, canvas: Canvas) -> None:
        opened = panel_of(self).group
        if opened is None:
            return
        canvas.runs(1, 0, _host_line(opened, canvas.width), canvas.width - 2)
        if canvas.width < 100 or canvas.height < 30:
            self._narrow(canvas, opened)
        elif canvas.width < 150:
            self._stacked(canvas, opened)
        else:
            self._wide(canvas, opened)

    def _wide(self, canvas: Canvas, opened: OpenGroup) -> None:
        """Card beside GPUs, the rest below them."""
        width = canvas.width - 2
        left = (width - _GAP) * 15 // 31
        right = 1 + left + _GAP
        room = canvas.height - 2 - _LOG_ROWS - 4
        under = roles.wanted_height(opened, width) if opened.roles else members.wanted_height(opened) + 2
        starting = opened.outcome is Outcome.STARTING and gpus.loading(opened.seen()) and not opened.roles
        starting = starting and opened.gpus_read
        ranks = 2 + 2 * len(opened.by_host()) if starting else 0
        wanted = max(card.wanted_height(opened), gpus.wanted_height(opened) + 2 + ranks)
        height = max(8, min(wanted, room - under))
        canvas.title(1, 2, left, "Server", card.title_facts(opened))
        card.draw_card(canvas, 1, 3, left, height, opened)
        if opened.outcome is Outcome.QUEUED:
            self._others(canvas, right, 2, canvas.width - 1 - right, canvas.height - 3, opened)
            return
        canvas.title(right, 2, canvas.width - 1 - right, "GPUs", gpus.title_facts(opened))
        gpu_rows = min(gpus.wanted_height(opened), height - 1)
        gpus.draw_gpus(canvas, right, 3, canvas.width - 1 - right, gpu_rows, opened)
        canvas.runs(right, 3 + gpu_rows, gpus.power_line(opened), canvas.width - 1 - right)
        if ranks and gpu_rows + 2 + ranks <= height + 1:
            gpus.draw_ranks(canvas, right, 5 + gpu_rows, canvas.width - 1 - right, ranks, opened)
        else:
            self._others(canvas, right, 5 + gpu_rows, canvas.width - 1 - right, height - gpu_rows - 2, opened)
        self._below(canvas, 4 + height, opened)

    def _stacked(self, canvas: Canvas, opened: OpenGroup) -> None:
        """One below the other."""
        width = canvas.width - 2
        y = self._narrow_head(canvas, width, opened)
        if opened.outcome is Outcome.QUEUED:
            self._others(canvas, 1, y + 1, width, canvas.height - y - 1, opened)
            return
        if opened.outcome is Outcome.STARTING:
            card.draw_phases(canvas, 1, y, width, opened)
            y += 1 + len(opened.phases())
        rows = min(gpus.wanted_height(opened), canvas.height - y - 6)
        canvas.title(1, y, width, "GPUs", gpus.title_facts(opened))
        gpus.draw_gpus(canvas, 1, y + 1, width, rows, opened)
        self._below(canvas, y + 1 + rows, opened)

    @staticmethod
    def _others(canvas: Canvas, x: int, y: int, width: int, rows: int, opened: OpenGroup) -> None:
        """What else the user has on the cluster."""
        board = opened.serving().board
        if rows >= 3 and opened.group.job and board.cluster is not None and board.cluster.others:
            canvas.title(x, y, width, "Your other jobs", [("with GPUs, only shown", "muted")])
            draw_jobs(canvas, x, y + 1, width, rows - 1, board.cluster.others, board.utc_offset_s)

    def _below(self, canvas: Canvas, y: int, opened: OpenGroup) -> None:
        """Members, merged log, and what a fatal line does."""
        width, last = canvas.width - 2, canvas.height - 2
        if opened.roles:
            rows = max(0, min(roles.wanted_height(opened, width), last - y - _LOG_ROWS - 1))
            roles.draw_roles(canvas, 1, y, width, rows, opened)
            y += rows + 1
        else:
            canvas.title(1, y, width, "Group", [(members.ready_means(opened), "muted")])
            y += 2 + members.draw_members(canvas, 1, y + 1, width, max(3, last - y - _LOG_ROWS - 2), opened)
        rows = last - y
        if rows >= 2:
            self.merged.draw(canvas, 1, y, width, rows, opened)
        canvas.put(1, canvas.height - 1, members.fatal_line(opened), "muted", width)

    @staticmethod
    def _narrow_head(canvas: Canvas, width: int, opened: OpenGroup) -> int:
        """State, what deserves a look, and of a job what it waits for or the time that it has; the row below them."""
        card.narrow_headline(canvas, 1, 1, width, opened)
        found, offset = opened.job, opened.serving().board.utc_offset_s
        if found is not None and opened.outcome is Outcome.QUEUED:
            lines = job.queue_lines(found, offset, width)
            for row, runs in enumerate(lines, 2):
                canvas.runs(1, row, runs, width)
            return 2 + len(lines)
        canvas.runs(1, 2, card.alert(opened) or card.alive(opened), width)
        if found is None or not job.has_time(found):
            return 3
        job.draw_time(canvas, 1, 3, width, found, offset)
        return 4

    def _narrow(self, canvas: Canvas, opened: OpenGroup) -> None:
        """The essentials: state, who is late, phases across, GPUs, checks, the newest lines."""
        width, height = canvas.width - 2, canvas.height
        y = self._narrow_head(canvas, width, opened)
        if opened.outcome is Outcome.QUEUED:
            self._others(canvas, 1, y + 1, width, height - y - 1, opened)
            return
        if opened.outcome is Outcome.STARTING:
            y += card.draw_phases_across(canvas, 1, y, width, opened, 2 + min(4, len(opened.group.members)))
        else:
            rows = 1 + min(6, len(opened.group.members))
            y += members.draw_members(canvas, 1, y, width, rows, opened, checked=False)
        rows = min(gpus.wanted_height(opened), height - y - 4)
        if rows > 2:
            bars = [[(f"{one.label} ", "muted"), (bar, "text")] for one in opened.seen() if (bar := card.bar_of(one))]
            starting = bars if opened.outcome is Outcome.STARTING else []
            canvas.title(1, y, width, "GPUs", join([*starting, gpus.title_facts(opened)]))
            gpus.draw_gpus(canvas, 1, y + 1, width, rows, opened)
            y += 1 + rows
        parts = members.conditions(opened)
        canvas.runs(1, y, join(sorted(parts, key=lambda runs: runs[0][0] == "✓ ")), width)
        if height - y - 1 >= 2:
            self.merged.draw(canvas, 1, y + 1, width, height - y - 1, opened)


_GAP = 3


def _host_line(opened: OpenGroup, width: int) -> list[Run]:
    """Hosts, GPUs, versions, who else is on the GPUs; what keeps one of them from being read."""
    boards = {one.member.host: one.board for one in opened.seen()}
    for name, board in boards.items():
        if board.problem is not None:
            hint = f"; {in_panel(board.problem.hint)}" if board.problem.hint else ""
            return [("▲ ", "warn"), (f"{name}: {board.problem.message}", "text"), (hint, "muted")]
    if opened.group.job:
        return job.host_line(opened, width)
    what = "host" if opened.roles else "node"
    parts: list[list[Run]] = [[(fmt.plural(len(boards), what), "text")]]
    kinds = Counter(
        (gpu.name, gpu.memory_total_mib)
        for board in boards.values()
        for gpu in (board.sample.gpus if board.sample is not None else ())
        if gpu.name
    )
    for (name, total), count in kinds.most_common(2):
        size = f" {fmt.gib(total)} GiB" if total and width >= 100 else ""
        parts.append([(f"{count} × ", "muted"), (short_gpu_name(name or "GPU"), "text"), (size, "muted")])
    versions = {
        name: board.facts.sglang for name, board in boards.items() if board.facts is not None and board.facts.sglang
    }
    if len(set(versions.values())) == 1:
        parts.append([("SGLang ", "muted"), (next(iter(versions.values())) or "", "text")])
        if len(versions) == len(boards) > 1 and width >= 100:
            parts[-1].append((" on all of them" if len(boards) > 2 else " on both", "muted"))
    elif versions:
        told = ", ".join(f"{version} on {name}" for name, version in versions.items())
        parts.append([("▲ ", "warn"), (f"SGLang {told}", "text")])
    addresses = {
        str(address)
        for one in opened.seen()
        if one.state is not None and (address := (one.state.startup.server_args or {}).get("dist_init_addr"))
    }
    if len(addresses) == 1 and width >= 100:
        parts.append([("rank 0 at ", "muted"), (addresses.pop(), "text")])
    others = {name: board.other_holders() for name, board in boards.items()}
    strangers = [f"{holder} on {name}" for name, holders in others.items() for holder in holders or ()]
    if strangers:
        more = f" and {len(strangers) - 2} more" if len(strangers) > 2 else ""
        parts.append([("▲ ", "warn"), ("also on the GPUs: " + ", ".join(strangers[:2]) + more, "text")])
    elif all(holders is not None for holders in others.values()) and width >= 150:
        parts.append([("no other process on the GPUs", "muted")])
    return join(parts)
