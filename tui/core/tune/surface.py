"""What a draft would do where it was not measured: acceptance and cycle from the cells that were, with a standard deviation.

    accept length = 1 + sum over positions of the product of p(i, w)      p(i, w) = 1 - (1 - a d^i) w^-g
    cycle = decode steps x (v + n x draft tokens + s x steps + b x steps x (top-k - 1))

w, the candidates a position, are the draft tokens without the root spread over the steps, top-k at most. The seven parameters
begin where `core/speculation/prediction` and public tables put them, wide, and are fitted to what is measured (Gauss-Newton on
logs, the beginnings as further observations). Whatever lies beyond the model is a deviation of each cell's own.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tui.core.speculation import prediction
from tui.core.tune.record import Draft

NOISE = 0.013  # of one measured launch, as a log: launches differ by 1 %, accept lengths of a minute by as much
_OWN = 0.015  # what a cell differs from the model by
_ITERATIONS = 12
_DAMPING, _SMALL = 1e-9, 1e-5

# a, d, g of acceptance, then v, n, s, b of the cycle in decode steps: where they begin, and how wide that is.
_BEGIN = (0.65, 0.98, 0.4, 1.0 + prediction.F, prediction.V / 2, prediction.D, 0.02)
_WIDE = (0.2, 0.03, 0.2, 1.0, 0.06, 0.05, 0.02)

Vector = list[float]


@dataclass(frozen=True)
class Measured:
    """A cell that was measured: over so many launches."""

    draft: Draft
    rate: float  # tok/s per user, geometric mean
    accept_length: float
    cycle_ms: float
    launches: int = 1


@dataclass(frozen=True)
class Estimate:
    """Of a cell, measured or not."""

    rate: float  # tok/s per user
    deviation: float  # of its log
    accept_length: float
    cycle_ms: float

    @property
    def most(self) -> float:
        """What it hardly exceeds."""
        return self.rate * math.exp(2 * self.deviation)


def accept_length(draft: Draft, alone: float, decay: float, gain: float) -> float:
    """Tokens a verify step, the bonus token counted."""
    width = min(float(draft.topk), max(1.0, (draft.tokens - 1) / draft.steps))
    total = reach = 1.0
    for position in range(min(draft.steps, draft.tokens - 1)):
        chance = min(0.995, max(0.005, alone * decay**position))
        reach *= 1.0 - (1.0 - chance) * width**-gain
        total += reach
    return total


def _cycle(draft: Draft, parts: Sequence[float]) -> float:
    verify, token, step, branch = parts
    return max(0.1, verify + token * draft.tokens + step * draft.steps + branch * draft.steps * (draft.topk - 1))


def _both(draft: Draft, at: Sequence[float]) -> tuple[float, float]:
    """Logs of accept length and of the cycle in decode steps."""
    return math.log(accept_length(draft, *at[:3])), math.log(_cycle(draft, at[3:]))


class Surface:
    """The model fitted to some cells; `of` estimates any."""

    def __init__(self, cells: Sequence[Measured], base_tok_s: float) -> None:
        """`base_tok_s` is the rate per user without speculation."""
        self._cells = {cell.draft: cell for cell in cells}
        self._step_ms = 1000 / base_tok_s
        self._at, self._spread = self._fit()

    def of(self, draft: Draft) -> Estimate:
        """Of a measured cell the model and its launches weighed by their precision."""
        accept, cycle = _both(draft, self._at)
        slope = [row[0] for row in _slopes(lambda at: [_rate(draft, at)], self._at)]
        variance = _dot([_dot(row, slope) for row in self._spread], slope) + _OWN**2
        log_rate = accept - cycle - math.log(self._step_ms / 1000)
        accepts, cycle_ms = math.exp(accept), math.exp(cycle) * self._step_ms
        if (cell := self._cells.get(draft)) is not None:
            noise = NOISE**2 / cell.launches
            weight = _OWN**2 / (_OWN**2 + noise)  # the model has seen the launches too: only the cell's own is open
            log_rate += weight * (math.log(cell.rate) - log_rate)
            variance = weight * noise
            accepts, cycle_ms = cell.accept_length, cell.cycle_ms
        return Estimate(math.exp(log_rate), math.sqrt(variance), accepts, cycle_ms)

    def _residuals(self, at: Sequence[float]) -> Vector:
        found = [(value - begin) / wide for value, begin, wide in zip(at, _BEGIN, _WIDE, strict=True)]
        for cell in self._cells.values():
            accept, cycle = _both(cell.draft, at)
            sigma = math.sqrt(NOISE**2 / cell.launches + _OWN**2)
            found.append((math.log(cell.accept_length) - accept) / sigma)
            found.append((math.log(cell.cycle_ms / self._step_ms) - cycle) / sigma)
        return found

    def _fit(self) -> tuple[Vector, list[Vector]]:
        """(parameters, their covariance)."""
        at = list(_BEGIN)
        for _ in range(_ITERATIONS):
            residuals, slopes = self._residuals(at), _slopes(self._residuals, at)
            normal = [[_dot(one, other) for other in slopes] for one in slopes]
            inverse = _inverse(normal)
            gradient = [_dot(one, residuals) for one in slopes]
            at = [value - _dot(row, gradient) for value, row in zip(at, inverse, strict=True)]
        return at, inverse


def _rate(draft: Draft, at: Sequence[float]) -> float:
    accept, cycle = _both(draft, at)
    return accept - cycle


def _dot(one: Sequence[float], other: Sequence[float]) -> float:
    return math.fsum(a * b for a, b in zip(one, other, strict=True))


def _slopes(values: Callable[[Vector], Vector], at: Sequence[float]) -> list[Vector]:
    """Of functions at a point by small differences: a row a parameter."""
    found = []
    for i in range(len(at)):
        up, down = list(at), list(at)
        up[i] += _SMALL
        down[i] -= _SMALL
        found.append([(a - b) / (2 * _SMALL) for a, b in zip(values(up), values(down), strict=True)])
    return found


def _inverse(matrix: list[Vector]) -> list[Vector]:
    """Of a positive definite matrix, by elimination."""
    size = len(matrix)
    rows = [[*row, *(float(i == j) for j in range(size))] for i, row in enumerate(matrix)]
    for i in range(size):
        pivot = rows[i][i] + _DAMPING
        rows[i] = [value / pivot for value in rows[i]]
        for j in range(size):
            if j != i:
                factor = rows[j][i]
                rows[j] = [a - factor * b for a, b in zip(rows[j], rows[i], strict=True)]
    return [row[size:] for row in rows]
