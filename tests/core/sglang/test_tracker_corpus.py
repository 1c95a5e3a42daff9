"""Logs of public bug reports (tests/data/logs/corpus) and of real runs of 0.5.23 (tests/data/logs/recorded)."""

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.support.log_reports import live_report, report
from tui.core.model.phases import Outcome, Phase
from tui.core.sglang.diagnose import diagnose
from tui.core.sglang.report import report_text
from tui.core.sglang.tracker import LogTracker

DATA = Path(__file__).parents[2] / "data" / "logs"
# "pasted": with what people's tools put around a log; as a server's own output these are not.
CASES = [
    {**json.loads(line), "in": name}
    for name in ("corpus", "pasted")
    for line in (DATA / name / "cases.jsonl").read_text().splitlines()
]


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]


@pytest.mark.parametrize("case", CASES, ids=[case["id"] for case in CASES])
def test_corpus(case: dict[str, Any]) -> None:
    truth = case["truth"]
    found = report(DATA / case["in"] / case["file"])
    phases = {truth["phase_reached"], *_list(truth.get("phase_alt"))}
    assert found["phase"] in phases or (found["phase"] in ("ready", "serving") and phases & {"ready", "serving"})
    # Silence is judged by whoever follows the log live; its text alone says no more than this.
    outcomes = {"starting", "ready"} if truth["outcome"] == "hung" else {truth["outcome"]}
    assert found["outcome"] in outcomes
    causes = {truth["cause"], *_list(truth.get("alt_cause"))} | ({None} if truth["outcome"] == "hung" else set())
    assert found["cause"] in causes
    if truth["progress"]:
        assert f"{found['progress']['done']}/{found['progress']['total']}" == truth["progress"].split()[-1]
    if truth["n_ranks_seen"] is not None:
        assert found["ranks_seen"] == truth["n_ranks_seen"]
    if truth["last_decode"]:
        assert found["last_decode"].items() >= truth["last_decode"].items()
    elif truth["n_ranks_seen"] is not None:
        assert found["last_decode"] is None
    if truth.get("ledger"):
        assert all(row.items() >= truth["ledger"].items() for row in found["ledger"])
    assert truth.get("evidence", "").lower() in str(found["evidence"] and found["evidence"]["text"]).lower()
    advice = (" ".join(found["advice"]) + json.dumps(found["set"])).lower()
    if truth["outcome"] == "crashed" and truth["cause"] != "unknown" and truth["advice"]:
        wanted = [text.lower().replace("increase ", "").strip("-") for text in truth["advice"]]
        assert any(all(word in advice for word in text.split()) for text in wanted)
        assert found["evidence"]["line"] > 0
    if str(truth.get("direction")).startswith("increase"):
        assert "raise" in advice
        assert found["set"].get("mem-fraction-static", 1) > 0.88
    for text in _list(truth.get("not_advice")):
        assert text.lower() not in advice
    assert report_text(found)


def test_report_has_exactly_the_documented_keys() -> None:
    found = report(DATA / "corpus" / "log-oom-cuda-graph-h20.log")
    assert list(found) == (
        [
            "phase",
            "outcome",
            "cause",
            "rank",
            "evidence",
            "advice",
            "set",
            "progress",
            "ranks_seen",
            "last_decode",
            "ledger",
            "observations",
            "source",
            "engine",
            "wrapping",
            "container",
            "other_containers",
            "note",
        ]
    )
    json.dumps(found)


RECORDED: dict[str, tuple[Outcome, Phase, str | None]] = {
    "cpu_graph_torch_compile": (Outcome.STOPPED, Phase.SERVING, None),
    "fail_bad_choice": (Outcome.CRASHED, Phase.LAUNCH, "bad_flag"),
    "fail_bad_model_path": (Outcome.CRASHED, Phase.LAUNCH, "bad_model_path"),
    "fail_mem_fraction_too_small": (Outcome.CRASHED, Phase.MEMORY_POOL, "oom_kv_pool"),
    "fail_missing_draft_path": (Outcome.CRASHED, Phase.LAUNCH, "bad_model_path"),
    "fail_no_draft_flag": (Outcome.CRASHED, Phase.MEMORY_POOL, "draft_config"),
    "fail_tp2_threads_bind": (Outcome.CRASHED, Phase.DISTRIBUTED_INIT, "bad_flag"),
    "fail_unknown_flag": (Outcome.CRASHED, Phase.LAUNCH, "bad_flag"),
    "normal_start": (Outcome.STOPPED, Phase.SERVING, None),
    "pty_start": (Outcome.STOPPED, Phase.READY, None),
    "recipe_eagle3": (Outcome.STOPPED, Phase.SERVING, None),
    "retract": (Outcome.STOPPED, Phase.SERVING, None),
    "sglang_serve_logms": (Outcome.STOPPED, Phase.SERVING, None),
    "sigterm_to_process_group": (Outcome.STOPPED, Phase.READY, None),
    "spec_eagle3": (Outcome.STOPPED, Phase.SERVING, None),
    "spec_eagle3_start": (Outcome.READY, Phase.SERVING, None),
    "spec_ngram": (Outcome.STOPPED, Phase.SERVING, None),
}


@pytest.mark.parametrize("name", RECORDED)
def test_recorded(name: str) -> None:
    outcome, phase, cause = RECORDED[name]
    found = report(DATA / "recorded" / f"{name}.log")
    assert (found["outcome"], found["phase"], found["cause"]) == (outcome, phase, cause)


def test_recorded_start_goes_through_all_phases_and_is_never_ready_early() -> None:
    tracker = LogTracker()
    raw = (DATA / "recorded" / "spec_eagle3_start.log").read_bytes()
    ready_at = raw.index(b"The server is fired up")
    phases: list[Phase] = []
    for line in raw[:ready_at].splitlines(keepends=True):
        tracker.feed(line)
        state = tracker.state()
        assert state.outcome == Outcome.STARTING
        if not phases or phases[-1] != state.phase:
            phases.append(state.phase)
    assert phases == [
        Phase.LAUNCH,
        Phase.DISTRIBUTED_INIT,
        Phase.LOAD_WEIGHTS,
        Phase.DRAFT_MODEL,
        Phase.MEMORY_POOL,
        Phase.WARMUP,
    ]
    tracker.feed(raw[ready_at:])
    state = tracker.state()
    assert state.outcome == Outcome.READY
    assert state.fired_up
    assert state.uvicorn_port == 30011
    assert state.server_args is not None
    assert state.server_args["speculative_algorithm"] == "EAGLE3"
    assert state.last_decode is not None
    assert state.last_decode.accept_len == 1.73


def test_bad_flag_is_named_with_its_line() -> None:
    found = report(DATA / "recorded" / "fail_unknown_flag.log")
    assert found["evidence"]["line"] == 479
    assert "--no-such-flag" in found["advice"][0]


def test_missing_draft_is_told_from_a_missing_model() -> None:
    assert "draft" in " ".join(report(DATA / "recorded" / "fail_missing_draft_path.log")["advice"])
    advice = " ".join(report(DATA / "recorded" / "fail_bad_model_path.log")["advice"])
    assert "/no/such/model" in advice
    assert "or --speculative-draft-model-path" in advice


def _docker(line: bytes) -> bytes:
    inner = line.decode("utf-8", "replace") + "\n"
    return json.dumps({"log": inner, "stream": "stderr", "time": "2026-03-24T10:41:12.118402311Z"}).encode()


WRAPPERS: dict[str, Callable[[bytes], bytes]] = {
    "docker": _docker,
    "kubectl": lambda line: b"2026-03-24T10:41:12.118402311Z " + line,
    "cri": lambda line: b"2026-03-24T10:41:12.118402311+00:00 stderr F " + line,
    "compose": lambda line: b"sglang-1  | " + line,
    "pod": lambda line: b"[pod/sglang-0/server] " + line,
    "journald": lambda line: b"Oct 06 20:01:03 gpu1 sglang[4242]: " + line,
    "ci": lambda line: b"2025-04-03 12:06:29,953 - __main__ - INFO - " + line,
    "ray": lambda line: b"\x1b[36m(SGLangEngine pid=3111, ip=10.0.0.3)\x1b[0m " + line,
    "mpirun": lambda line: b"[1,0]<stderr>:" + line,
    "crlf": lambda line: line + b"\r",
}


@cache
def _plain(path: Path) -> dict[str, Any]:
    return live_report(path.read_bytes())


@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_wrappers_change_nothing(wrapper: str) -> None:
    for path in sorted([*(DATA / "corpus").glob("*.log"), *(DATA / "recorded").glob("*.log")]):
        lines = path.read_bytes().split(b"\n")
        wrapped = b"\n".join(WRAPPERS[wrapper](line) for line in lines[:-1]) + b"\n"
        if lines[-1]:
            wrapped += WRAPPERS[wrapper](lines[-1])
        plain, found = _plain(path), live_report(wrapped)
        for key in ("phase", "outcome", "cause", "rank", "progress", "ranks_seen", "last_decode", "advice", "set"):
            assert found[key] == plain[key], f"{path.name}: {key}"


def test_living_server_has_no_diagnosis() -> None:
    for name in ("spec_eagle3_start", "retract", "normal_start"):
        tracker = LogTracker(records=False)
        tracker.feed((DATA / "recorded" / f"{name}.log").read_bytes())
        found, _ = diagnose(tracker.state())
        assert found is None
