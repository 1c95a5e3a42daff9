"""Progress bars of a start: which one a frame belongs to, and what it measures."""

from dataclasses import dataclass

from tui.core.model.phases import Phase
from tui.core.sglang.lineshape import BarFrame

_BARS_KEPT = 16
_MEASURED = {"shards": (Phase.LOAD_WEIGHTS, Phase.DRAFT_MODEL), "capture": (Phase.CUDA_GRAPH,)}


@dataclass
class Bar:
    what: str  # shards, capture, "" for any other
    done: int
    total: int
    offset: int  # of its first frame
    number: int  # line of its first frame
    frames: int = 0


def measures(what: str, phase: Phase) -> bool:
    """Whether a bar of this kind is the progress of the phase."""
    return phase in _MEASURED.get(what, ())


class Bars:
    """The bars of the load or capture that is under way."""

    def __init__(self) -> None:
        self._bars: dict[tuple[str, int], Bar] = {}

    def clear(self) -> None:
        """Another load or capture begins: its frames are bars of their own."""
        self._bars.clear()

    def same(self, what: str, frame: BarFrame) -> Bar | None:
        """The bar that a frame belongs to; None where it begins one."""
        bar = self._bars.get((what, frame.total))
        return bar if bar is not None and frame.done >= bar.done else None

    def take(self, what: str, frame: BarFrame, number: int, offset: int) -> Bar:
        """The bar with this frame in it."""
        bar = self.same(what, frame)
        if bar is None:
            bar = self._bars[what, frame.total] = Bar(what, frame.done, frame.total, offset, number)
            if len(self._bars) > _BARS_KEPT:
                self._bars.pop(next(iter(self._bars)))
        bar.done = frame.done
        bar.frames += 1
        return bar


def kind_of_bar(frame: BarFrame, capturing: bool) -> str:
    """shards, capture, or "" for a bar that measures nothing of the start.

    Args:
        capturing: graphs are being captured. The first frame of a capture has no description; nor have the bars of clients.
    """
    text = frame.desc.lower()
    if "captur" in text:
        return "capture"
    if "loading" in text and ("shard" in text or "tensor" in text):
        return "shards"
    return "capture" if not text and capturing else ""
