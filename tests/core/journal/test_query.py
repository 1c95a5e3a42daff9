"""The filter of all runs."""

from datetime import datetime, timedelta

import pytest

from tests.support.journal_scenes import crash, launch, ready, result
from tui.core.errors import UsageError
from tui.core.journal import reading, writing
from tui.core.journal.query import KEYS, Query, earliest


@pytest.fixture
def runs() -> None:
    crash(1, "eagle3-mem076", "oom_kv_pool", args={"mem_fraction_static": 0.76})
    result(ready(2, "eagle3-mem088", args={"mem-fraction-static": 0.88}, env={"NCCL_ALGO": "Tree"}), 1)
    launch(3, "base", "gpu2", outcome="stopped", stopped_by="user1@laptop", sets={"tp": 4})
    writing.sync()
    writing.note("the mails are German", ["run:base-20261120T140200Z-000003"], "user1")


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("", "base eagle3-mem088 eagle3-mem076"),
        ("eagle3", "eagle3-mem088 eagle3-mem076"),
        ("EAGLE3 host:gpu1 outcome:crashed,stopped", "eagle3-mem076"),
        ("outcome:crashed,stopped", "base eagle3-mem076"),
        ("host:gpu1,gpu2 outcome:stopped", "base"),
        ("profile:mem", "eagle3-mem088 eagle3-mem076"),
        ("cause:oom_kv_pool", "eagle3-mem076"),
        ("sm120", "eagle3-mem076"),
        ("german user1@laptop", "base"),
        ("flag:mem-fraction-static", "eagle3-mem088 eagle3-mem076"),
        ("flag:--mem-fraction-static=0.88", "eagle3-mem088"),
        ("flag:env.NCCL_ALGO=tree", "eagle3-mem088"),
        ("flag:tp=4", "base"),
        ("flag:tensor-parallel-size=8", "eagle3-mem088 eagle3-mem076"),
        ("level:l0", "eagle3-mem088"),
        ("level:L2", ""),
        ("since:2026-11-20T16:30:00+00:00", "base"),
        ("since:2027-01-01", ""),
        ("host:", "base eagle3-mem088 eagle3-mem076"),  # its value is still being typed
        ("tp=4", "base"),
        ("nothing", ""),
    ],
)
def test_a_filter_finds(runs, query, found):
    assert [row.profile for row in reading.all_runs(query)] == found.split()


@pytest.mark.parametrize("query", ["hots:gpu1", "outcome:dead", "level:L9", "since:soon", "since:31Feb"])
def test_what_means_nothing_is_refused_with_what_would(query):
    with pytest.raises(UsageError) as caught:
        Query.of(query)
    assert caught.value.hint
    assert "\n" not in caught.value.message


def test_every_key_has_a_case(runs):
    for key in KEYS:
        value = {"outcome": "lost", "level": "L1", "since": "today"}.get(key, "\x1b[31mnone")
        assert [row.profile for row in reading.all_runs(f"{key}:{value}") if key != "since"] == []


def test_times():
    now = datetime.now().astimezone()
    assert earliest("2d") == pytest.approx((now - timedelta(days=2)).timestamp(), abs=60)
    assert earliest("12h") == pytest.approx((now - timedelta(hours=12)).timestamp(), abs=60)
    assert earliest("today") - earliest("yesterday") in (23 * 3600, 24 * 3600, 25 * 3600)
    assert earliest("2026-11-20") == datetime(2026, 11, 20).astimezone().timestamp()
    assert earliest("20Nov2026".replace("2026", "")) <= now.timestamp()
    later = now + timedelta(days=40)
    assert earliest(f"{later.day}{later:%b}") < now.timestamp()  # that of last year
