"""How much a host's launches and runs differ when nothing was changed: what an A/A experiment says.

Nothing is stored beside the results themselves: a later verdict takes the noise from all results of its setting
(`pairing.noise_of`), those of an A/A experiment among them.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from tui.core.experiment.record import ExperimentRecord
from tui.core.model.profile import LoadPoint
from tui.core.model.result import Result
from tui.core.model.verdict import Noise
from tui.core.verdicts.comparison import launch_sd, noise_floor
from tui.core.verdicts.metric import default_for, metric
from tui.core.verdicts.pairing import noise_of, setting
from tui.core.verdicts.sentences import about, load_words
from tui.core.verdicts.stats import pairs_needed

EFFECTS = (0.01, 0.02, 0.05)  # shares: "to see so much you need so many pairs"


@dataclass(frozen=True)
class NoiseReport:
    """The noise of one host, model and bench at one load."""

    host: str
    model: str | None
    bench: str
    point: LoadPoint
    noise: Noise
    floor: float  # how far apart two launches of the same are, as a share
    pairs_needed: tuple[tuple[float, int | None], ...]  # effect (a share) to pairs; None: more than twenty
    launch_s: float | None  # what one launch with its runs takes

    @property
    def text(self) -> str:
        """`launch CV 0.9 %, run CV 0.4 % …; 1 % needs 8 pairs, ~1 h 40 min`."""
        run_cv = f", run CV {self.noise.run_cv:.1%}" if self.noise.run_cv is not None else ""
        effect, pairs = self.pairs_needed[0]
        needs = f"{effect:.0%} needs " + (f"{pairs} pairs" if pairs is not None else "more than 20 pairs")
        if pairs is not None and self.launch_s is not None:
            needs += f", {about(2 * pairs * self.launch_s)}"
        cvs = f"launch CV {self.noise.launch_cv:.1%}{run_cv}".replace("%", " %")
        where = f"{self.noise.launches} launches on {self.host}, {self.bench}, {load_words(self.point)}"
        return f"{cvs} ({where}); {needs.replace('% ', ' % ', 1)}"


def noise_report(record: ExperimentRecord, results: Iterable[Result]) -> tuple[NoiseReport, ...]:
    """What the launches of an A/A experiment say, a report for each load; () where there are fewer than three."""
    results = tuple(results)
    found = []
    for point in record.bench.points:
        here = [result for result in results if result.point == point and result.valid]
        noise = noise_of(here, metric(default_for(point)), setting(here[0])) if here else None
        if noise is None:
            continue
        sd = math.sqrt(2) * launch_sd(noise, record.bench.runs)
        found.append(
            NoiseReport(
                host=record.host,
                model=here[0].server.model,
                bench=record.bench.name,
                point=point,
                noise=noise,
                floor=noise_floor(noise, record.bench.runs),
                pairs_needed=tuple((effect, pairs_needed(math.log1p(effect), sd)) for effect in EFFECTS),
                launch_s=record.launch_s(),
            )
        )
    return tuple(found)
