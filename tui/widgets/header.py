"""Header: modes on number keys, the host, and the link with its age, in every mode."""

import time

from tui import format as fmt
from tui.board import Board
from tui.core.transport import LinkState
from tui.widgets.paint import Canvas, Painted, Run, width_of

MODES = (("1", "Dashboard"), ("2", "Logs"), ("3", "Profiles"), ("4", "Bench"), ("5", "Journal"))


class Header(Painted):
    """One row on `surface`."""

    GROUND = "surface"

    def __init__(self, board: Board, mode: str) -> None:
        super().__init__(id="header")
        self.board = board
        self.mode = mode

    def draw(self, canvas: Canvas) -> None:
        narrow = canvas.width < 100
        link = self._link(short=narrow)
        end = canvas.width - 1
        link_at = canvas.right_runs(end, 0, link) if width_of(link) < end - 1 else 1
        canvas.put(1, 0, "eagle" if narrow else "eagletui", "strong!", link_at - 2)
        x = 7 if narrow else 11
        for key, name in MODES:
            label = f"{key} {name}"
            # What does not fit loses its name, never the age of the link.
            if x + len(label) + 2 > link_at:
                label = key
            if x + len(label) + 2 > link_at:
                break
            if name == self.mode:
                canvas.fill(x, 0, len(label) + 2, 1, "raised")
                canvas.put(x + 1, 0, key, "accent!/raised")
                canvas.put(x + 2, 0, label[1:], "strong!/raised")
            else:
                canvas.put(x + 1, 0, label, "muted")
            x += len(label) + (2 if narrow else 3)

    def _link(self, *, short: bool) -> list[Run]:
        board = self.board
        runs: list[Run] = []
        if board.simulated:
            speed, seed = board.speed_and_seed()
            runs.append((" SIMULATED ", "warn!/warnbg"))
            runs.append((f" {speed}× seed {seed}  ", "muted"))
        host = [(f"{board.host}", "strong!")]
        state = self._state(short=short)
        return [*runs, *state[:1], *host, *state[1:]] if short else [*host, ("  ", "muted"), *runs, *state]

    def _state(self, *, short: bool) -> list[Run]:
        link = self.board.link
        now = time.monotonic()
        if link is None or link.state is LinkState.CONNECTING:
            since = now - link.since if link else now - self.board.started_at
            return [
                ("◐ ", "accent"),
                (" connecting " if short else "connecting, ", "muted"),
                (fmt.age(since), "text"),
            ]
        if link.state is LinkState.UP:
            age = fmt.age(self.board.link_age_s(now))
            if short:
                return [("● ", "ok"), (f" {age:>5}", "muted")]
            runs: list[Run] = [("● ", "ok"), ("link ", "muted"), (f"{age:>5}", "text"), (" ago", "muted")]
            if link.rtt_s is not None:
                runs += [(" · rtt ", "muted"), (fmt.milliseconds(link.rtt_s), "text")]
            return runs
        if link.state is LinkState.LOST:
            runs = [("▲ ", "warn"), (f" lost {fmt.age(now - link.since)}" if short else "", "text")]
            if short:
                return runs
            runs.append((f"link lost {fmt.age(now - link.since)}", "text"))
            if self.board.state is not None:
                runs += [(" · server last seen ", "muted"), (str(self.board.state.outcome), "text")]
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
