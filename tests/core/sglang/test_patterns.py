"""Each shipped pattern is found by its example line through the whole path: no cheap test before it can hide it."""

import html
import json
import re
import tomllib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tui.data
from tui.core.model.phases import Outcome, Phase
from tui.core.sglang.batch_lines import ANSWERS, DECODES, PREFILLS
from tui.core.sglang.flags import flag_table
from tui.core.sglang.patterns import Failure, Milestone, patterns
from tui.core.sglang.shortlist import Shortlist, needed_texts
from tui.core.sglang.state import StartupState
from tui.core.sglang.tracker import LogTracker

STAMP = "[2026-10-06 20:01:03 TP0] "
EXAMPLES = {item.id: item.example or "" for item in patterns().milestones}
LOADED = [EXAMPLES[id_] for id_ in ("load_begin", "load_end")]
# What brings a start to the phase that a pattern is limited to.
CONTEXT: dict[Phase, list[str]] = {
    Phase.LAUNCH: [],
    Phase.DISTRIBUTED_INIT: [EXAMPLES["dist_begin"]],
    Phase.MEMORY_POOL: [*LOADED, EXAMPLES["pool"]],
    Phase.CUDA_GRAPH: [*LOADED, EXAMPLES["capture_begin"]],
    Phase.DRAFT_MODEL: [*LOADED, EXAMPLES["load_begin"]],
    Phase.WARMUP: [EXAMPLES["http_up"]],
    Phase.SERVING: [EXAMPLES["fired_up"]],
}


def test_every_shipped_table_has_an_example_that_it_finds() -> None:
    for name in ("startup", "failures", "benign"):
        for tables in tomllib.loads(Path(tui.data.__path__[0], f"{name}.toml").read_text()).values():
            for table in tables if isinstance(tables, list) else ():
                assert re.search(table["regex"], table["example"]), table


def read(*lines: str, records: bool = True) -> tuple[StartupState, list[str]]:
    tracker = LogTracker(records=records)
    kinds = [record.kind for record in tracker.feed("".join(f"{line}\n" for line in lines).encode())]
    return tracker.state(), kinds


def _free_in(milestone: Milestone) -> float | None:
    match = milestone.regex.search(milestone.example or "")
    avail = match.groupdict().get("avail") if match is not None else None
    return float(avail) if avail is not None else None


@pytest.mark.parametrize("records", [True, False])
@pytest.mark.parametrize("milestone", patterns().milestones, ids=lambda item: item.id)
def test_each_milestone_is_found(milestone: Milestone, records: bool) -> None:
    before = LOADED if milestone.event == "memory" else []  # of a rank that no other line names there is no ledger
    state, _ = read(*(STAMP + line for line in (*before, milestone.example or "")), records=records)
    expected = {
        "memory": [row.free_gib for row in state.ledger] == [_free_in(milestone)],
        "dist_begin": state.phase == Phase.DISTRIBUTED_INIT,
        "dist_mark": state.phase == Phase.DISTRIBUTED_INIT,
        "dist_end": state.phase == Phase.DISTRIBUTED_INIT,
        "load_begin": state.phase == Phase.LOAD_WEIGHTS,
        "load_mark": state.phase == Phase.LOAD_WEIGHTS,
        "load_end": state.phase == Phase.LOAD_WEIGHTS,
        "pool": state.phase == Phase.MEMORY_POOL,
        "pool_mark": state.phase == Phase.MEMORY_POOL,
        "pool_end": state.phase == Phase.MEMORY_POOL,
        "capture_begin": state.phase == Phase.CUDA_GRAPH,
        "capture_list": state.phase == Phase.CUDA_GRAPH,
        "capture_end": state.phase == Phase.CUDA_GRAPH,
        "sched_ready": state.max_total_num_tokens == 147_840,
        "http": state.phase == Phase.WARMUP,
        "http_up": state.uvicorn_port == 30_000,
        "fired_up": state.fired_up,
        "follower_up": state.follower_up and not state.fired_up and state.phase == Phase.WARMUP,
        "working": state.working == milestone.example,
    }
    assert expected[milestone.event]


@pytest.mark.parametrize("stamp", ["", STAMP], ids=["bare", "stamped"])
@pytest.mark.parametrize("failure", patterns().failures, ids=lambda item: item.id)
def test_each_failure_is_found(failure: Failure, stamp: str) -> None:
    """With records and without; where its phase allows it, behind the fast way of a serving server, too."""
    places = failure.phases & set(CONTEXT) if failure.phases is not None else {Phase.LAUNCH, Phase.SERVING}
    assert places
    for phase in places:
        for records in (True, False):
            state, _ = read(
                *(STAMP + line for line in CONTEXT[phase]), stamp + (failure.example or ""), records=records
            )
            if failure.level == "stop":
                assert state.outcome == Outcome.STOPPED
            else:
                assert [clue.id for clue in state.clues] == [failure.id]


@pytest.mark.parametrize("id_", patterns().of_kinds)
def test_each_kind_is_found(id_: str) -> None:
    kind = next(item for item in patterns().kinds if item.id == id_)
    marker = next(item.example for item in patterns().failures if item.id == "exception_marker")
    context = [] if kind.phases is None else CONTEXT.get(next(phase for phase in Phase if phase in kind.phases), [])
    example = patterns().of_kinds[id_].example or ""
    state, _ = read(*(STAMP + line for line in context), STAMP + (marker or ""), *example.splitlines())
    assert state.clues[-1].id == id_


def test_advice_names_flags_that_exist() -> None:
    others = {
        "enable-reasoning",
        "help",
        "ipc",
        "privileged",
        "shm-size",
        "upgrade",
        *"device gpus name network output rm runtime user".split(),
        # of SGLang's server of images and videos
        *"dit-cpu-offload dit-layerwise-offload num-gpus performance-mode text-encoder-cpu-offload vae-cpu-offload".split(),
    }  # of other programs
    texts = [*patterns().causes.values(), *patterns().words.values(), *patterns().features, *patterns().failures]
    advice = " ".join(text for item in (*texts, *patterns().of_kinds.values()) for text in item.advice)
    named = set(re.findall(r"(?<![\w-])--([a-z][\w-]+)", advice))
    assert len(named) > 50
    assert [name for name in named - others if not flag_table().known(name)] == []


@pytest.mark.parametrize("kind", ["note", "warning"])
def test_each_note_and_warning_is_found(kind: str) -> None:
    shipped = tomllib.loads(Path(tui.data.__path__[0], "benign.toml").read_text())
    for table in shipped[kind]:
        assert read(table["example"])[1] == [kind], table


def test_no_harmless_line_is_a_failure() -> None:
    for table in tomllib.loads(Path(tui.data.__path__[0], "benign.toml").read_text())["benign"]:
        assert read(STAMP + table["example"])[0].clues == (), table


ALL = [*patterns().milestones, *patterns().failures]


@pytest.mark.parametrize("item", ALL, ids=lambda item: item.id)
@settings(max_examples=10, deadline=None, derandomize=True)
@given(data=st.data())
def test_whatever_a_pattern_matches_has_it_on_the_shortlist(item: Milestone | Failure, data: st.DataObject) -> None:
    line = data.draw(st.from_regex(item.regex, alphabet=st.characters(max_codepoint=126)))
    shortlist = patterns().milestones_for if isinstance(item, Milestone) else patterns().failures_for
    assert item in shortlist.of(line.encode())


@pytest.mark.parametrize(
    ("regex", "texts"),
    [
        ("^abc", {"abc"}),
        ("(?i)Out of (?:Memory|RAM)", {"out of "}),
        ("a|bc|[Dd]ef", {"a", "bc", "def"}),
        (r"x\d+longer", {"longer"}),
        ("(?:left){2}|right+", {"left", "righ"}),
        ("exit -9", {"exit -"}),
        (".*", set()),
        ("(?:maybe)?", set()),
        ("sure|.", set()),
    ],
)
def test_texts_that_a_pattern_needs(regex: str, texts: set[str]) -> None:
    assert needed_texts(re.compile(regex)) == texts


def test_a_pattern_that_names_no_text_is_on_every_shortlist() -> None:
    shortlist = Shortlist([(re.compile("abc"), "first"), (re.compile(r"\d"), "second")])
    assert shortlist.of(b"nothing") == ("second",)
    assert shortlist.of(b"aBc") == ("first", "second")


def test_no_pattern_hides_behind_a_search_of_its_words_or_among_usual_lines() -> None:
    tables = patterns()
    assert all(tables.search_words)
    for item in (*tables.milestones, *tables.failures):
        assert item.example is not None
        assert not any(text in item.example for text in (*DECODES, *PREFILLS, *ANSWERS)), item.id
        wrapped = (item.example, json.dumps({"log": item.example + "\n"}), html.escape(item.example))
        for line in wrapped:
            assert any(word in line.lower() for word in tables.search_words), (item.id, line)
