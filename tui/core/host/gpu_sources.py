"""The ways to the figures of a host's GPUs, and the one stream that their samplers write.

Another vendor is a class here: the script of its sampler, and what its lines mean.
"""

from typing import Protocol

from tui.core.host.gpu_nvml import NvmlSource
from tui.core.host.gpu_smi import SmiSource
from tui.core.host.gpus import GpuSample


class GpuSource(Protocol):
    """One way to the figures.

    Attributes:
        name: `source` of its samples.
        kinds: the first words of its lines; no two sources share one.
        stalled_in: the driver's function that does not return, where the sampler says so.
        refused_field: a field over which the sampler ended; it is started again without it.
    """

    name: str
    kinds: frozenset[str]
    stalled_in: str | None
    refused_field: str | None

    def __init__(self, last: GpuSample | None) -> None:
        """`last` is what was known before this sampler was started."""

    @staticmethod
    def script(python: str, period_s: float, refused: tuple[str, ...]) -> str:
        """Shell text that samples until nobody reads. It comes to its end only where this way does not lead to GPUs."""

    def line(self, kind: str, rest: str) -> GpuSample | None:
        """The sample that a line completes, if any; never raises."""


# The first that works is used. Another one stands before SmiSource, whose script ends where there is no nvidia-smi.
SOURCES: tuple[type[GpuSource], ...] = (NvmlSource, SmiSource)


def sampler_script(python: str, period_s: float, refused: tuple[str, ...] = ()) -> str:
    """The script of a sampler; its lines are read by `Feed`."""
    return "export LC_ALL=C\n" + "".join(source.script(python, period_s, refused) for source in SOURCES)


class Feed:
    """Lines of a sampler to samples; the first word of a line says whose it is."""

    def __init__(self, last: GpuSample | None = None) -> None:
        self._sources = [source(last) for source in SOURCES]
        self._of_kind = {kind: source for source in self._sources for kind in source.kinds}
        self.named = False  # an error was reported

    def line(self, line: str) -> GpuSample | None:
        """The sample that a line completes, if any; noise completes none."""
        kind, _, rest = line.partition(" ")
        source = self._of_kind.get(kind)
        sample = source.line(kind, rest) if source else None
        if sample is not None and sample.error is not None:
            self.named = True
        return sample

    @property
    def stalled_in(self) -> str | None:
        """The driver's function that does not return."""
        return next((source.stalled_in for source in self._sources if source.stalled_in), None)

    @property
    def refused_field(self) -> str | None:
        """The field over which the sampler ended."""
        return next((source.refused_field for source in self._sources if source.refused_field), None)
