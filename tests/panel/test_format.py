"""Numbers, durations and clocks as the visual language writes them."""

import pytest

from tui import format as fmt
from tui.core.text import epoch_of


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "–"),
        (0, "0:00"),
        (9.4, "0:09"),
        (359, "5:59"),
        (3599.4, "59:59"),
        (3600, "1 h 00 min"),
        (8460, "2 h 21 min"),
        (-3, "0:00"),
    ],
)
def test_durations(seconds, text):
    assert fmt.duration(seconds) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, "–"), (0.44, "0.4 s"), (-1, "0.0 s"), (3.9, "3 s"), (59.9, "59 s"), (250, "4:10"), (7265, "2 h 01 min")],
)
def test_ages(seconds, text):
    assert fmt.age(seconds) == text


def test_missing_is_a_dash_and_minus_is_a_minus():
    assert fmt.gib(None) == fmt.whole(None) == fmt.ratio(None) == fmt.accept(None) == fmt.tok_s(None) == "–"
    assert fmt.gib_of(-1.52) == "−1.5"
    assert fmt.gib_of(-0.04) == "0.0"
    assert fmt.whole(0) == "0"


def test_figures():
    assert fmt.tok_s(89.5) == "89.5"
    assert fmt.accept(2.314) == "2.31"
    assert fmt.ratio(0.8056) == "0.81×"
    assert fmt.whole(147840) == "147,840"
    assert fmt.gib(96 * 1024) == "96.0"
    assert fmt.milliseconds(0.0114) == "11 ms"
    assert fmt.milliseconds(0.0004) == "0.4 ms"
    assert [fmt.size(n) for n in (812, 4100, 1_200_000)] == ["812 B", "4.1 kB", "1.2 MB"]


def test_a_spread_says_how_many_starts_it_rests_on():
    assert fmt.spread(667, 647, 687, 4) == "11:07 ± 0:20 (n = 4)"
    assert fmt.spread(667, 667, 667, 1) == "11:07 (n = 1)"


def test_clock_in_the_zone_of_the_host():
    epoch = epoch_of("2026-10-06T20:12:48Z")
    assert fmt.clock(epoch, 0) == "20:12:48"
    assert fmt.clock(epoch, 2 * 3600) == "22:12:48"
    assert fmt.clock(epoch, 5.5 * 3600, seconds=False) == "01:42"
    assert fmt.day_clock("2026-10-06T20:01:03Z", 0) == "6 Oct 20:01"
    assert fmt.day_clock("not a time") == "–"


@pytest.mark.parametrize("hours", [-7, 0, 2, 5.75, 11])
def test_the_zone_follows_from_a_stamp_of_the_log(hours):
    epoch = epoch_of("2026-10-06T20:01:03Z")
    stamp = fmt.clock(epoch + 12, hours * 3600)  # the first line comes some seconds after the launch
    assert fmt.utc_offset(stamp, epoch) == hours * 3600
    assert fmt.utc_offset("garbage", epoch) is None


def test_the_age_of_a_stamp():
    now = 1_791_318_000.0  # 20:20:00 UTC
    assert fmt.since_stamp("20:10:00", 0.0, now) == 600.0
    assert fmt.since_stamp("22:19:59", 7200.0, now) == 1.0
    assert fmt.since_stamp("20:20:03", 0.0, now) == 0.0  # clocks differ
    assert fmt.since_stamp(None, 0.0, now) > 3600
    assert fmt.since_stamp("nonsense", 0.0, now) > 3600
