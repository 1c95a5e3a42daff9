"""A change of pace is seen with its size, where it was and beyond chance; one pace is none."""

import random

import pytest

from tests.support.rows import row
from tui.core.bench.steadiness import backlog, change
from tui.core.model.result import Window


def replies(
    users=1, *, chunks=200, gap_s=0.012, noise=0.05, by_reply=0.01, growth=0.1, seconds=60.0, factor=None, seed=1
):
    """Users one reply after the other: gaps that grow by `growth` over a reply; `factor(s)` is the server's pace."""
    rng = random.Random(seed)
    rows = []
    for _ in range(users):
        at = rng.uniform(0.0, 0.3)
        while at < seconds:
            first = at + rng.uniform(0.05, 0.3)
            pace = gap_s * (1 + by_reply * rng.gauss(0, 1))
            at, gaps_ms = first, []
            for place in range(rng.randint(chunks // 4, chunks)):
                gap = pace * (1 + growth * place / chunks) * max(0.2, 1 + noise * rng.gauss(0, 1))
                gap *= factor(at) if factor else 1.0
                gaps_ms.append(gap * 1000)
                at += gap
            rows.append(row(len(rows), send=first - 0.05, first=first, gaps_ms=gaps_ms))
    return rows, Window(0.5, seconds)


def test_a_step_is_found_where_it_was():
    found = change(*replies(factor=lambda at: 1.3 if at > 30.5 else 1.0))
    assert found.share == pytest.approx(0.3, abs=0.02)
    assert found.at_s == pytest.approx(30.0, abs=3.0)
    found = change(*replies(factor=lambda at: 0.77 if at > 30.5 else 1.0))
    assert found.share == pytest.approx(-0.23, abs=0.02)


@pytest.mark.parametrize(("users", "chunks", "gap_s"), [(1, 512, 0.026), (4, 512, 0.03), (16, 256, 0.04)])
def test_a_step_among_few_long_replies(users, chunks, gap_s):
    rows, window = replies(users, chunks=chunks, gap_s=gap_s, factor=lambda at: 1.3 if at > 30.5 else 1.0)
    assert change(rows, window).share == pytest.approx(0.3, abs=0.08)


def test_a_drift_is_told_over_the_whole_window():
    found = change(*replies(factor=lambda at: 1 + 0.1 * at / 60))
    assert found.at_s is None
    assert found.share == pytest.approx(0.1, abs=0.03)


def test_one_pace_is_no_change():
    """Contexts that grow, replies of unlike pace, a stall: none is another server. A seeded tenth of the benchmark's."""
    false = 0
    for seed in range(20):
        found = change(*replies(by_reply=0.02, growth=0.3, seconds=30.0, seed=seed))
        false += found is not None and abs(found.share) > 0.02
    assert false <= 1
    rows, window = replies(factor=lambda at: 150.0 if 30.0 < at < 30.02 else 1.0)
    assert abs(change(rows, window).share) < 0.02


def test_too_little_to_tell():
    assert change([], Window(0.0, 60.0)) is None
    rows, _ = replies(chunks=2000, gap_s=0.03)
    assert change(rows, Window(0.5, 60.0)) is None  # two replies
    rows, _ = replies(seconds=2.0)
    assert change(rows, Window(0.5, 0.9)) is None


def test_gaps_of_nothing_are_a_pace_too():
    """Events that come together, as behind a proxy."""
    rows = [row(n, send=0.5 * n, gaps_ms=[0, 0, 0, 0, 50] * 8, first=0.5 * n + 0.1) for n in range(60)]
    assert change(rows, Window(0.2, 30.0)).share == 0.0


def test_a_queue_that_grows():
    rows = [row(n, due=n / 4, send=n / 4, first=n / 3 + 0.3) for n in range(240)]
    found = backlog(rows, Window(0.5, 59.0))
    assert found.grows
    assert found.offered_req_s == pytest.approx(4.0, rel=0.02)
    assert found.served_req_s == pytest.approx(3.0, rel=0.02)
    assert found.growth == pytest.approx(58.5 * (4 - 3), rel=0.1)
    assert not backlog([row(n, due=n / 4, send=n / 4) for n in range(240)], Window(0.5, 59.0)).grows
    assert backlog([], Window(0.5, 59.0)) is None
