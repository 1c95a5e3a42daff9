"""Header: modes on number keys, the host, and the link with its age, in every mode."""

import time

from tui import format as fmt
from tui.core.config import HostKind
from tui.core.link.transport import LinkState
from tui.panel.host_view import Board
from tui.panel.protocol import panel_of
from tui.panel.widgets.paint import Canvas, Painted, Run, clip_runs, end_of, width_of

_MODES = (("1", "Dashboard"), ("2", "Logs"), ("3", "Profiles"), ("4", "Bench"), ("5", "Journal"))


class Header(Painted):
    """One row on `surface`."""

    GROUND = "surface"

    def __init__(self, board: Board, mode: str) -> None:
        super().__init__(id="header")
        self.board = board
        self.mode = mode

    def draw(self, canvas: Canvas) -> None:
        narrow = canvas.width < 100
        end = canvas.width - 1
        if self.board.viewing is not None:
            self._viewing(canvas, self.board.viewing, narrow=narrow)
            return
        x = 7 if narrow else 11
        gap = 2 if narrow else 3
        # Tabs keep their places while ages and round trips change: they are given what the widest usual link leaves.
        full = sum(len(f"{key} {name}") + gap for key, name in self._tabs)
        rtt = not narrow and end - x - self._usual_width(short=False, rtt=True) >= full
        link = self._link(short=narrow, rtt=rtt)
        usual = self._usual_width(short=narrow, rtt=rtt)
        wide = width_of(link)
        labels = self._labels(end - x - (usual if wide <= usual else -(-wide // 8) * 8), gap)
        tabs_end = x + sum(len(label) + gap for _, label in labels)
        link = clip_runs(link, max(8, end - tabs_end))
        canvas.right_runs(end, 0, link)
        canvas.put(1, 0, "eagle" if narrow else "eagletui", "strong!")
        for name, label in labels:
            if name == self.mode:
                canvas.fill(x, 0, len(label) + 2, 1, "raised")
                canvas.put(x + 1, 0, label[0], "accent!/raised")
                canvas.put(x + 2, 0, label[1:], "strong!/raised")
            else:
                canvas.put(x + 1, 0, label, "muted")
            x += len(label) + gap

    @property
    def _tabs(self) -> tuple[tuple[str, str], ...]:
        return (("0", "Hosts"), *_MODES) if len(panel_of(self).boards) > 1 else _MODES

    def _viewing(self, canvas: Canvas, name: str, *, narrow: bool) -> None:
        """One log and no modes."""
        link = clip_runs(self._link(short=narrow, rtt=not narrow), canvas.width // 2)
        end = canvas.right_runs(canvas.width - 1, 0, link) - 2
        x = canvas.put(1, 0, "eagletui logs", "strong!")
        canvas.put(x + 2, 0, end_of(name, end - x - 2), "text")

    def _labels(self, room: int, gap: int) -> list[tuple[str, str]]:
        """All tabs: with names, else the present one with its name, else numbers alone."""
        full = [(name, f"{key} {name}") for key, name in self._tabs]
        own = [(name, f"{key} {name}" if name == self.mode else key) for key, name in self._tabs]
        for labels in (full, own):
            if sum(len(label) + gap for _, label in labels) <= room:
                return labels
        return [(name, key) for key, name in self._tabs]

    def _usual_width(self, *, short: bool, rtt: bool) -> int:
        """Columns that a link which is up may take: an age below a minute, a round trip below a second."""
        board = self.board
        simulated = 0
        if board.simulated:
            speed, seed = board.speed_and_seed()
            simulated = len(f" SIMULATED  {speed}× seed {seed}  ")
        up = len("●  59.9 s") if short else len("  ● link  59 s ago")
        if rtt and HostKind.of(board.host) is not HostKind.LOCAL:
            up += len(" · rtt 999 ms")
        return len(board.host) + simulated + up

    def _link(self, *, short: bool, rtt: bool) -> list[Run]:
        board = self.board
        runs: list[Run] = []
        if board.simulated:
            speed, seed = board.speed_and_seed()
            runs.append((" SIMULATED ", "warn!/warnbg"))
            runs.append((f" {speed}× seed {seed}  ", "muted"))
        host = [(f"{board.host}", "strong!")]
        state = self._state(short=short, rtt=rtt)
        return [*runs, *state[:1], *host, *state[1:]] if short else [*host, ("  ", "muted"), *runs, *state]

    def _state(self, *, short: bool, rtt: bool) -> list[Run]:
        link = self.board.link
        now = time.monotonic()
        if link is None or link.state is LinkState.CONNECTING:
            since = now - link.since if link else now - self.board.started_at
            return [("◐ ", "accent"), (" connecting " if short else "connecting, ", "muted"), (fmt.age(since), "text")]
        if link.state is LinkState.UP:
            if HostKind.of(self.board.host) is HostKind.LOCAL:  # no link, so it has no age
                return [("● ", "ok"), ("" if short else "this machine", "muted")]
            age = fmt.age(self.board.link_age_s(now))
            if short:
                return [("● ", "ok"), (f" {age:>5}", "muted")]
            runs: list[Run] = [("● ", "ok"), ("link ", "muted"), (f"{age:>5}", "text"), (" ago", "muted")]
            if rtt and link.rtt_s is not None:
                runs += [(" · rtt ", "muted"), (fmt.milliseconds(link.rtt_s), "text")]
            return runs
        if link.state is LinkState.LOST:
            # A link that never was is not lost.
            word = "lost" if link.last_byte_at is not None else "not reached"
            if short:
                return [("▲ ", "warn"), (f" {word} {fmt.age(now - link.since)}", "text")]
            link_word = "link lost" if link.last_byte_at is not None else word
            runs = [("▲ ", "warn"), (f"{link_word} {fmt.age(now - link.since)}", "text")]
            if self.board.state is not None:
                runs += [(" · server last seen ", "muted"), (self.board.state.outcome, "text")]
            if link.retry_at is not None and link.retry_at > now:
                runs += [(" · next try in ", "muted"), (fmt.age(max(1.0, link.retry_at - now)), "text")]
            return runs
        if link.state is LinkState.WAITING:
            return [("◐ ", "accent"), (" asks you" if short else "waiting for your answer", "muted")]
        if link.state is LinkState.REFUSED:
            why = link.error.slug.replace("_", " ") if link.error else "refused"
            if short:
                return [("✗ ", "err"), (" refused", "muted")]
            return [("✗ ", "err"), ("not connected", "strong"), (f", {why}", "muted")]
        return [("– ", "muted"), (" closed", "muted")]
