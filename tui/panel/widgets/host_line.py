"""The host in one line: GPUs, driver, SGLang, who else is on the GPUs."""

import time
from collections import Counter

from tui import format as fmt
from tui.panel.hints import in_panel
from tui.panel.host_view import Board
from tui.panel.widgets.jobs import your_jobs
from tui.panel.widgets.paint import Canvas, Painted, Run, join


def short_gpu_name(name: str) -> str:
    """A GPU's name without what all of its kind are called."""
    return name.removeprefix("NVIDIA ").removesuffix(" Workstation Edition").removesuffix(" Server Edition")


class HostLine(Painted):
    """Facts that are asked once per host, and what the workers cannot do just now."""

    def __init__(self, board: Board) -> None:
        super().__init__(id="host")
        self.board = board

    def draw(self, canvas: Canvas) -> None:
        canvas.runs(1, 0, self._runs(canvas.width), canvas.width - 2)

    def _runs(self, width: int) -> list[Run]:
        board, facts = self.board, self.board.facts
        if board.problem is not None:
            runs: list[Run] = [("▲ ", "warn"), (board.problem.message, "text")]
            return [*runs, (f"; {in_panel(board.problem.hint)}", "muted")] if board.problem.hint else runs
        parts: list[list[Run]] = []
        names = [gpu.name for gpu in board.sample.gpus if gpu.name] if board.sample else []
        if not names and facts is not None:
            names = list(facts.gpu_names)
        for name, count in Counter(names).most_common(2):
            part: list[Run] = [(f"{count} × ", "muted"), (short_gpu_name(name), "text")]
            totals = {gpu.memory_total_mib for gpu in board.sample.gpus if gpu.name == name} if board.sample else set()
            if width >= 100 and len(totals) == 1 and (total := next(iter(totals))):
                part.append((f" {fmt.gib(total)} GiB", "muted"))
            parts.append(part)
        if board.cluster is not None:
            cluster: list[Run] = [("login host of the cluster ", "muted"), (board.cluster.name or fmt.NONE, "text")]
            return join([cluster, your_jobs(board)])
        if facts is not None:
            parts += [
                [(f"{label} ", "muted"), (value, "text")]
                for label, value in (
                    ("driver", facts.driver),
                    ("CUDA", facts.cuda if width >= 150 else None),
                    ("SGLang", facts.sglang),
                )
                if value
            ]
            if facts.sglang is None:
                problem = facts.python_error or f"no SGLang in {facts.python or 'the Python of this host'}"
                parts.append([("▲ ", "warn"), (problem, "text")])
            if facts.persistence_mode is False:
                parts.append([("▲ ", "warn"), ("persistence mode off", "text")])
        if (
            (width < 100 or (width < 150 and board.simulated))
            and board.link is not None
            and board.link.rtt_s is not None
        ):
            parts.append([("rtt ", "muted"), (fmt.milliseconds(board.link.rtt_s), "text")])
        holders = board.other_holders()
        if holders:
            more = f" and {len(holders) - 2} more" if len(holders) > 2 else ""
            parts.append([("▲ ", "warn"), ("also on the GPUs: " + ", ".join(holders[:2]) + more, "text")])
        elif ending := board.ending():
            parts.append([(f"{ending} process{'' if ending == 1 else 'es'} of ours ending", "muted")])
        elif holders is not None and width >= 150:
            parts.append([("no other process on the GPUs", "muted")])
        if facts is not None and board.sample is not None and not names:
            parts.insert(0, [("no GPU that can be read", "muted")])
        if not parts:
            waited = time.monotonic() - board.started_at
            return [(f"asking {board.host} about itself, {fmt.age(waited)}", "muted")] if board.connected else []
        return join(parts)
