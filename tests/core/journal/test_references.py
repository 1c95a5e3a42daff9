"""What a note is about, from how a person names it."""

import pytest

from tests.support.journal_scenes import crash, experiment, ready, result
from tui.core.errors import UsageError
from tui.core.journal import reading, writing
from tui.core.journal.model import Journal, Kind
from tui.core.journal.references import canonical, entry_named, hypothesis_named

RUN = "eagle3-20261120T140200Z-000001"
EXPERIMENT = "does-eagle-pay-20261120T140200Z-000005"


@pytest.fixture
def journal() -> Journal:
    crash(1, "eagle3")
    result(ready(2), 3)
    experiment(4)
    experiment(5)
    writing.sync()
    return reading.read()


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("000001", f"run:{RUN}"),
        (RUN, f"run:{RUN}"),
        (f"run:{RUN}", f"run:{RUN}"),
        ("run:000001", f"run:{RUN}"),
        ("does-eagle-pay", f"experiment:{EXPERIMENT}"),
        (EXPERIMENT, f"experiment:{EXPERIMENT}"),
        ("experiment:does-eagle-pay", f"experiment:{EXPERIMENT}"),
        ("decode-base", "result:decode-base-20261120T140200Z-000002-c1-3"),
        ("eagle3", "profile:eagle3"),
        ("gpu1", "host:gpu1"),
        ("host:elsewhere", "host:elsewhere"),
        ("profile:later", "profile:later"),
        (f"end:{RUN}", f"end:{RUN}"),
    ],
)
def test_a_thing_is_named(journal, typed, meant):
    assert canonical(typed, journal) == meant


@pytest.mark.parametrize("typed", ["", "nothing", "run:nothing", "run:", "00000", "\x1b[31m"])
def test_nothing_and_several_are_refused(journal, typed):
    with pytest.raises(UsageError) as caught:
        canonical(typed, journal)
    assert caught.value.slug == "unknown_entry"
    assert caught.value.hint


def test_an_entry_of_a_person_is_named_by_its_beginning_or_its_digits(journal):
    idea = writing.idea("fp8")
    journal = reading.read()
    for typed in (idea.id, idea.id[:-3], idea.id.removeprefix("idea-")[:6]):
        assert canonical(typed, journal) == idea.id
        assert entry_named(typed, (Kind.IDEA,), journal) == idea
    with pytest.raises(UsageError):
        entry_named(idea.id, (Kind.NOTE,), journal)


def test_a_hypothesis_is_named_by_its_experiment_or_its_entry(journal):
    written = writing.hypothesis("graphs pay")
    journal = reading.read()
    assert hypothesis_named("does-eagle-pay", journal).text == "EAGLE-3 beats the baseline"
    assert hypothesis_named(EXPERIMENT, journal).text == "EAGLE-3 beats the baseline"
    assert hypothesis_named(written.id, journal).text == "graphs pay"
    with pytest.raises(UsageError):
        hypothesis_named("000001", journal)
