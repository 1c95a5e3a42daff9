"""Memory before a launch. Figures as the simulated host has them (docs/demo.md), and SGLang's logs of the same kind."""

from dataclasses import asdict, replace

import pytest

from tui.core.server.earlier_starts import last_ready, ledger_of
from tui.core.server.forecast import findings, forecast, graph_batches, prefer_worked, workable, workable_now
from tui.core.server.launch_records import LaunchRecord
from tui.core.sglang.diagnose import diagnose
from tui.core.sglang.diagnosis import Diagnosis
from tui.core.sglang.state import LedgerRow, StartupState
from tui.core.sglang.tracker import LogTracker

BASE = {"model-path": "/data/models/Kimi-K2.5", "tp": 8, "cuda-graph-max-bs": 128, "mem-fraction-static": 0.88}
EAGLE = {
    **BASE,
    "speculative-algorithm": "EAGLE3",
    "speculative-draft-model-path": "/data/models/Kimi-K2.5-Eagle3",
    "speculative-num-draft-tokens": 4,
}


def rank(number: int, fraction: float | None = None, *, draft: float | None = 7.4, graphs: float = 3.2) -> LedgerRow:
    """A rank of a start: of one that went all the way where a fraction is given, else of one without room for a pool."""
    weights = 71.7 if number == 0 else 71.6
    row = LedgerRow(f"TP{number}", before_gib=94.5, weights_gib=weights, draft_gib=draft)
    if fraction is None:
        return row
    pool = round(fraction * 94.5 - weights - (draft or 0.0), 2)
    free = round(94.5 - weights - (draft or 0.0) - pool - graphs, 2)
    return replace(row, kv_pool_gib=pool, graphs_gib=graphs, free_gib=free)


def launch(number: int, args: dict[str, object], **changes: object) -> LaunchRecord:
    """A record; ready unless a cause is given."""
    fraction = float(args["mem-fraction-static"])  # type: ignore[arg-type]
    drafted = 7.4 if "speculative-algorithm" in args else None
    ready = "cause" not in changes
    rows = [rank(n, fraction if ready else None, draft=drafted) for n in range(8)]
    record = LaunchRecord(
        run_id=f"kimi-202610{number:02}T200103Z-4f9c{number:02}",
        host="gpu1",
        kind="server",
        profile="kimi",
        launched_at=f"2026-10-{number:02}T20:01:03Z",
        model="/data/models/Kimi-K2.5",
        args=args,
        outcome="ready" if ready else "crashed",
        ready_after_s=700.0 if ready else None,
        ledger=tuple(asdict(row) for row in rows),
        mem_fraction=fraction,
        graph_batch=48 if drafted else 128,
    )
    return replace(record, **changes)  # type: ignore[arg-type]


def at(fraction: float, args: dict[str, object] = EAGLE) -> dict[str, object]:
    return {**args, "mem-fraction-static": fraction}


def test_a_fraction_that_leaves_no_pool_is_foretold_with_what_would_fit() -> None:
    made = forecast("gpu1", at(0.76), [launch(3, EAGLE)])
    assert made is not None
    assert made.fits is False
    assert made.short_gib == pytest.approx(79.1 - 0.76 * 94.5, abs=0.01)
    assert made.short_ranks == tuple(f"TP{n}" for n in range(8))
    assert made.text == "mem-fraction-static 0.76 will fail by 7.3 GiB on every rank; 0.84 to 0.90 fits"
    assert made.suggestion == 0.88  # which worked
    assert (made.workable.fraction_least, made.workable.fraction_most) == (0.84, 0.90)


def test_one_tight_rank_is_named() -> None:
    rows = [asdict(rank(n, 0.88)) for n in range(8)]
    rows[3]["weights_gib"] = 74.0
    made = forecast("gpu1", at(0.84), [launch(3, EAGLE, ledger=tuple(rows))])
    assert made is not None
    assert made.short_ranks == ("TP3",)
    assert "will fail by 2.0 GiB on TP3" in made.text


def test_a_crashed_start_teaches_too() -> None:
    made = forecast("gpu1", at(0.80), [launch(2, at(0.76), cause="oom_kv_pool", phase="memory_pool")])
    assert made is not None
    assert made.fits is False
    assert "will fail by 3.5 GiB on every rank" in made.text
    # The graphs were never measured: no upper bound is claimed.
    assert "0.84 is needed" in made.text
    assert made.suggestion == 0.9  # least and a useful pool


def test_the_draft_of_one_start_and_the_weights_of_another() -> None:
    other_draft = {**EAGLE, "mem-fraction-static": 0.76, "speculative-draft-model-path": "/data/models/other"}
    past = [launch(4, other_draft, cause="oom_kv_pool"), launch(3, BASE)]
    made = forecast("gpu1", at(0.76), past)
    assert made is not None
    # This draft was never seen: only what the weights leave is known.
    assert made.fits is None
    assert "whose size is not known here yet" in made.text
    made = forecast("gpu1", at(0.76), [launch(5, at(0.76), cause="oom_kv_pool"), *past])
    assert made is not None
    assert made.fits is False


def test_too_much_for_the_pool_is_foretold_for_the_graphs() -> None:
    made = forecast("gpu1", at(0.94), [launch(3, EAGLE)])
    assert made is not None
    assert made.fits is False
    assert made.text.startswith("mem-fraction-static 0.94 leaves too little for the graphs by about 3.8 GiB; 0.84")


def test_what_worked_here_fits_whatever_arithmetic_says() -> None:
    past = [launch(5, at(0.92)), launch(4, at(0.92)), launch(3, EAGLE)]
    made = forecast("gpu1", at(0.92), past)
    assert made is not None
    assert made.fits is True
    assert made.text.startswith("mem-fraction-static 0.92 reached ready here 2 times")
    assert made.workable.fraction_most == 0.92


def test_what_failed_here_fails_again() -> None:
    past = [launch(5, at(0.89), cause="oom_cuda_graph"), launch(3, EAGLE)]
    made = forecast("gpu1", at(0.90), past)
    assert made is not None
    assert made.fits is False
    assert "fails in graph capture, as 0.89 did here" in made.text
    # With a smaller graph batch than the one that failed nothing is proved.
    smaller = forecast("gpu1", {**at(0.90), "cuda-graph-max-bs": 8}, past)
    assert smaller is not None
    assert smaller.fits is True


def test_no_value_works() -> None:
    past = [launch(5, at(0.85), cause="oom_cuda_graph"), launch(4, at(0.84), cause="oom_kv_pool")]
    made = forecast("gpu1", at(0.84), past)
    assert made is not None
    assert made.fits is False
    assert made.suggestion is None


@pytest.mark.parametrize(
    "record",
    [launch(3, EAGLE, host="gpu2"), launch(3, EAGLE, model="/data/models/other"), launch(3, EAGLE, kind="bench")],
)
def test_other_hosts_models_and_kinds_say_nothing(record: LaunchRecord) -> None:
    assert forecast("gpu1", at(0.76), [record]) is None
    assert findings("gpu1", at(0.76), [record]) == ()


def test_weights_spread_otherwise_are_not_compared() -> None:
    made = forecast("gpu1", {**EAGLE, "tp": 4}, [launch(3, EAGLE)])
    assert made is not None
    assert made.fits is None
    assert made.last_ready is not None
    assert made.last_ready.difference == (("tp-size", 8, 4),)


def test_findings_warn_and_never_block() -> None:
    lines = findings("gpu1", at(0.76), [launch(3, EAGLE)])
    assert [(line.check, str(line.level)) for line in lines] == [("memory", "warn"), ("history", "ok")]
    assert lines[0].text.endswith("0.84 to 0.90 fits (try 0.88)")
    assert lines[1].text == "last ready: kimi at 2026-10-03 20:12 with mem-fraction-static 0.88 (now 0.76)"
    assert [str(line.level) for line in findings("gpu1", EAGLE, [launch(3, EAGLE)])] == ["ok", "ok"]


def test_the_last_ready_configuration_with_the_difference() -> None:
    past = [launch(5, at(0.76), cause="oom_kv_pool"), launch(4, BASE), launch(3, EAGLE), launch(2, EAGLE)]
    found = last_ready("gpu1", {**at(0.76), "port": 31000}, past)
    assert found is not None
    assert found.run_id == past[1].run_id  # the newest; the flags that differ are named
    assert [name for name, _, _ in found.difference][:1] == ["mem-fraction-static"]
    same = last_ready("gpu1", {**EAGLE, "port": 31000}, past)
    assert same is not None
    assert (same.difference, same.times) == ((), 2)
    assert same.text == "this configuration reached ready here at 2026-10-03 20:12, 2 times so far"


def test_old_and_new_flag_names_are_one() -> None:
    old, new = {**BASE, "cuda-graph-max-bs": 128}, {**BASE, "tp-size": 8, "cuda-graph-max-bs-decode": 128}
    del new["tp"], new["cuda-graph-max-bs"]
    found = last_ready("gpu1", new, [launch(3, old)])
    assert found is not None
    assert found.difference == ()


HYBRID = {"model-path": "/data/models/Qwen3.5-9B", "tp": 2, "cuda-graph-max-bs": 24, "mem-fraction-static": 0.8}


def hybrid(number: int, args: dict[str, object], **changes: object) -> LaunchRecord:
    """A posted start of a model with linear attention at 0.80, which chose 5.00 GiB of KV pool and 4.48 of state caches."""
    row = LedgerRow("TP0", 22.93, 8.85, None, 5.0, 0.26, 3.79, state_cache_gib=4.48, other_gib=0.55)
    changes = {"ledger": (asdict(row),), "model": args["model-path"], "graph_batch": 24, **changes}
    return launch(number, args, **changes)


def test_state_caches_share_the_budget_with_the_pool() -> None:
    made = forecast("gpu1", at(0.6, HYBRID), [hybrid(3, HYBRID)])
    assert made is not None
    assert made.text == "mem-fraction-static 0.6 leaves about 2.6 GiB for the KV pool; 0.39 to 0.90 fits"
    assert made.fits is True
    fixed = {**HYBRID, "max-mamba-cache-size": 186}
    made = forecast("gpu1", at(0.55, fixed), [hybrid(3, fixed)])
    assert made is not None
    # 8.85 + 4.48 - 0.55 x 22.93
    assert made.text == "mem-fraction-static 0.55 will fail by 0.7 GiB; 0.59 to 0.90 fits"


def test_a_draft_of_an_old_release_is_measured_beside_the_budget() -> None:
    rows = [replace(rank(n, 0.80), draft_after_pools=True) for n in range(8)]
    rows = [
        replace(row, kv_pool_gib=3.9, free_gib=8.3) for row in rows
    ]  # 0.80 x 94.5 - 71.7 and 94.5 - 71.7 - 7.4 - 3.2
    made = forecast("gpu1", at(0.78), [launch(3, at(0.80), ledger=tuple(asdict(row) for row in rows))])
    assert made is not None
    assert made.short_gib == pytest.approx(71.7 - 0.78 * 94.5, abs=0.01)  # negative: what the pool gets
    assert made.workable.fraction_least == 0.76  # 71.7 / 94.5
    # Graphs, the draft and 6 % of the memory stay outside: 1 - (3.2 + 7.4 + 5.67) / 94.5
    assert made.workable.fraction_most == 0.82


def test_a_server_on_a_cpu_leaves_nothing_to_compare() -> None:
    state = StartupState(ledger=(LedgerRow("", 20.0, 0.0, None, 0.1, None, 19.0),), host_memory=True)
    assert workable_now(state, ready=True) == workable_now(StartupState(), ready=True)


# ---- bounds of one start ------------------------------------------------------------------------------------------------


def test_graph_batch_bounds() -> None:
    rows = [rank(n, 0.88, graphs=3.2) for n in range(8)]
    found = workable(rows, 0.88, 48, True, ready=True)
    assert found.measured
    assert found.batch_most is not None
    assert found.batch_most > 48  # 8.1 GiB are free
    assert workable(rows, 0.96, 48, True, ready=True).batch_most == 0
    # More batches need more: the most that works sinks.
    more = workable(rows, 0.88, 512, True, ready=True, batch_measured=48)
    assert more.fraction_most is not None
    assert found.fraction_most is not None
    assert more.fraction_most < found.fraction_most


@pytest.mark.parametrize(
    ("largest", "speculative", "count"), [(512, False, 52), (16, False, 6), (48, True, 22), (3, True, 3)]
)
def test_how_many_graphs_sglang_captures(largest: int, speculative: bool, count: int) -> None:
    assert len(graph_batches(largest, speculative)) == count


def test_no_figures_no_bounds() -> None:
    assert workable_now(StartupState(), ready=False).fraction_least is None


# ---- records ------------------------------------------------------------------------------------------------------------


def test_a_ledger_that_is_none_is_left_out() -> None:
    record = launch(3, EAGLE, ledger=({"rank": 3}, {"rank": "TP0", "before_gib": "much"}, {"rank": "TP1", "new": 1}))
    assert ledger_of(record) == (LedgerRow("TP1"),)


# ---- advice -------------------------------------------------------------------------------------------------------------

POOL = "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static. Current value: self.server_args.mem_fraction_static=0.76"


def pool_failure() -> tuple[Diagnosis, StartupState]:
    lines = [
        "[2026-10-06 20:01:03] server_args={'mem_fraction_static': 0.76, 'speculative_algorithm': 'EAGLE3', 'cuda_graph_max_bs_decode': 48}",
        "[2026-10-06 20:01:15 TP0] Load weight begin. avail mem=94.50 GB",
        "[2026-10-06 20:02:01 TP0] Load weight end. elapsed=45.90 s, type=KimiK25, avail mem=22.80 GB, mem usage=71.70 GB.",
        "[2026-10-06 20:02:02 TP0] Load weight begin. avail mem=22.80 GB",
        "[2026-10-06 20:02:04 TP0] Load weight end. elapsed=1.92 s, type=LlamaForCausalLMEagle3, avail mem=15.4 GB, mem usage=7.40 GB.",
        "[2026-10-06 20:02:05 TP0] Scheduler hit an exception: Traceback (most recent call last):",
        '  File "/x/model_runner.py", line 1, in init_memory_pool',
        POOL,
    ]
    tracker = LogTracker(records=False)
    tracker.feed("\n".join(lines).encode() + b"\n")
    found, _ = diagnose(tracker.state())
    assert found is not None
    return found, tracker.state()


def test_a_value_that_worked_here_comes_before_a_computed_one() -> None:
    found, state = pool_failure()
    assert found.set == {"mem-fraction-static": 0.9}
    worked = prefer_worked(found, state, "gpu1", at(0.76), [launch(4, EAGLE), launch(3, EAGLE)])
    assert worked.set == {"mem-fraction-static": 0.88}
    assert worked.advice[0].startswith("Raise --mem-fraction-static to 0.88: with it")
    assert "reached ready here 2 times" in worked.advice[0]
    assert len(worked.advice) == len(found.advice)
    assert prefer_worked(found, state, "gpu1", at(0.76), []) == found


def test_a_computed_value_that_failed_here_is_not_suggested() -> None:
    found, state = pool_failure()
    between = prefer_worked(found, state, "gpu1", at(0.76), [launch(4, at(0.90), cause="oom_cuda_graph"), launch(3, at(0.82), cause="oom_kv_pool")])  # fmt: skip
    assert between.set == {"mem-fraction-static": 0.86}
    none = prefer_worked(found, state, "gpu1", at(0.76), [launch(4, at(0.85), cause="oom_cuda_graph"), launch(3, at(0.84), cause="oom_kv_pool")])  # fmt: skip
    assert none.set == {}
    assert none.advice[0].startswith("No value works: here 0.84 failed in the memory pool and 0.85 in graph capture")
    assert not any("to 0.9" in text for text in none.advice)


def test_capture_is_never_advised_upwards() -> None:
    _, state = pool_failure()
    found = Diagnosis("oom_cuda_graph", "", None, None, None, ("Lower it.",), {"mem-fraction-static": 0.7})
    state = replace(state, server_args={**(state.server_args or {}), "mem_fraction_static": 0.92})
    lowered = prefer_worked(found, state, "gpu1", at(0.92), [launch(5, at(0.94)), launch(4, EAGLE)])
    assert lowered.set == {"mem-fraction-static": 0.88}
    assert lowered.advice[0].startswith("Lower --mem-fraction-static to 0.88")


def test_a_smaller_graph_batch_is_named_where_it_would_do() -> None:
    base = {**BASE, "cuda-graph-max-bs": 512, "mem-fraction-static": 0.93}
    rows = tuple(asdict(rank(n, 0.88, draft=None, graphs=4.0)) for n in range(8))
    measured = launch(3, {**base, "mem-fraction-static": 0.88}, ledger=rows, mem_fraction=0.88, graph_batch=512)
    made = forecast("gpu1", base, [measured])
    assert made is not None
    assert made.fits is False
    assert "leaves too little for the graphs" in made.text
    assert made.workable.batch_most is not None
    assert 0 < made.workable.batch_most < 512
    assert made.text.endswith(f"or graphs up to batch {made.workable.batch_most}")
