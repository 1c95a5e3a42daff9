"""Experiments as the bench screen sees them, with the figures of the motivating case."""

from collections.abc import Mapping
from dataclasses import replace

from tui.core.bench.capacity import answer
from tui.core.model.experiment import ArmState, ArmStatus, ExperimentState, LiveRun
from tui.core.model.profile import BenchProfile, Limits, LoadPoint, Search
from tui.core.model.result import (
    Counts,
    Distribution,
    GpuUse,
    Guard,
    GuardStatus,
    Held,
    Latencies,
    Load,
    MeasuredServer,
    Result,
    SpecConfig,
    Speculation,
    Throughput,
    Tool,
    Window,
)
from tui.core.model.verdict import Alike, ArmFigure, SameText, TextExample, Verdict, VerdictKind

ONE = LoadPoint(concurrency=1)
BENCH = BenchProfile("speculation-real-prompts", (ONE,), dataset="prompts", output_len=512, duration_s=60.0, runs=3)
ORDER = tuple("ABCDDCBAABCD")
A_SET = {"cuda-graph-max-bs": 512}
B_SET = {"cuda-graph-max-bs": 128}
FLOOR = 0.006

# per-user tok/s of three launches with three runs each
RUNS = {
    "A": ((81.6, 81.9, 82.3), (82.2, 82.2, 82.6), (81.8, 81.8, 82.6)),
    "B": ((89.8, 89.8, 90.2), (89.2, 89.5, 89.5), (89.4, 89.4, 89.4)),
    "C": ((71.3, 71.6, 71.9), (72.0, 72.0, 72.3), (72.4, 72.4, 72.7)),
    "D": ((73.4, 73.4, 73.8), (73.1, 73.4, 73.4), (74.2, 73.5, 73.4)),
}
TPOT = {"A": 12.20, "B": 11.17, "C": 13.87, "D": 13.59}
TTFT = {"A": 214.0, "B": 209.0, "C": 231.0, "D": 236.0}
POWER = {"A": 1820.0, "B": 1860.0, "C": 1890.0, "D": 1910.0}
MEMORY = {"A": 86.3, "B": 87.0, "C": 88.2, "D": 88.4}
TAU = {"C": 2.31, "D": 2.62}
CYCLE = {"C": 32.0, "D": 35.6}
STEPS = {"C": 3, "D": 5}
PROFILE = {"A": "kimi-k2.5-baseline", "B": "kimi-k2.5-baseline", "C": "kimi-k2.5-eagle3", "D": "kimi-k2.5-eagle3"}
SETS = {"A": A_SET, "B": B_SET, "C": {"speculative-num-steps": 3}, "D": {"speculative-num-steps": 5}}
AGAINST = {"A": None, "B": "A", "C": "B", "D": "B"}


def guards(failed: str | None = None) -> tuple[Guard, ...]:
    """All of them; one may have failed."""
    found = (
        Guard("errors", GuardStatus.OK, "no request failed", 0, 0),
        Guard(
            "tokens", GuardStatus.OK, "the server counted 0.1 % other tokens than the replies, limit 0.5 %", 0.1, 0.5
        ),
        Guard("cache", GuardStatus.OK, "0.0 % of the prompt tokens came from the cache, limit 1 %", 0.0, 1.0),
        Guard("client", GuardStatus.OK, "the load generator took 4 % of a core, limit 80 %", 4.0, 80.0),
        Guard("window", GuardStatus.OK, "a window of 60.0 s with 41 requests, at least 10 s and 30", 60.0, 10.0),
        Guard("foreign", GuardStatus.OK, "no other process on the GPUs"),
        Guard("throttle", GuardStatus.NOT_APPLICABLE, "the driver reports no throttling"),
        Guard("graph", GuardStatus.OK, "every decode batch ran in a CUDA graph"),
    )
    text = "3.1 % of the prompt tokens came from the cache, limit 1 %"
    return tuple(
        replace(guard, status=GuardStatus.FAILED, text=text if guard.id == "cache" else guard.text)
        if guard.id == failed
        else guard
        for guard in found
    )


def result(letter: str, launch: int, run: int, tok_s: float, *, failed: str | None = None, number: int = 0) -> Result:
    """One run of an arm, its launch and run counted from 1."""
    run_id = f"{PROFILE[letter]}-20261006T{10 + launch:02d}0000Z-{letter.lower()}{launch:05d}"
    spec = letter in TAU
    tau = TAU.get(letter, 1.0)
    return Result(
        result_id=f"bench-{letter}{launch}-c1-{run}",
        bench=BENCH.name,
        started_at=f"2026-10-06T{10 + launch:02d}:{10 + run:02d}:00Z",
        tool=Tool("eagletui", "0.2.0", "generate", "c0ffee"),
        server=MeasuredServer(
            "gpu1", PROFILE[letter], run_id, f"2026-10-06T{10 + launch:02d}:00:00Z", "http://127.0.0.1:30000",
            sets=SETS[letter], model="/data/models/Kimi-K2.5", version="0.5.23",
            gpus=("NVIDIA RTX PRO 6000 Blackwell Workstation Edition",) * 8,
            spec=SpecConfig("EAGLE3", STEPS[letter], 1, STEPS[letter] + 1, "/data/models/Kimi-K2.5-Eagle3") if spec else None,
        ),
        load=Load("closed", 1, None, "prompts", seed=run, requests=41, output_len=512, ignore_eos=False, temperature=0.0),
        run_index=run,
        window=Window(2.0, 62.0),
        duration_s=64.0,
        counts=Counts(41, 0, 4100, 5000, 5003, 0, 2200, 40, 4900),
        throughput=Throughput(tok_s, tok_s * 0.98, tok_s * 0.95, 60.0, 150.0, 0.6, tok_s / 8),
        latencies=Latencies(
            ttft=Distribution(41, TTFT[letter] + 2, TTFT[letter] + run - 2, TTFT[letter] + 30, None, None, 300.0),
            tpot=Distribution(41, TPOT[letter], TPOT[letter], TPOT[letter] + 0.4, None, None, TPOT[letter] + 2),
        ),
        speculation=Speculation(1000, round((tau - 1) * 1000), 3000, tau, CYCLE[letter]) if spec else None,
        gpu=GpuUse(POWER[letter], 111_000.0, 22.0, 92.0, MEMORY[letter] * 1024),
        guards=guards(failed),
        valid=failed is None,
        experiment="graphs-and-eagle3",
        arm=letter,
        launch_number=number or launch,
    )  # fmt: skip


def results(letter: str, launches: int = 3, runs: int | None = None) -> tuple[Result, ...]:
    """Runs of an arm: whole launches, and `runs` of the one after them."""
    found = []
    for launch, values in enumerate(RUNS[letter], 1):
        wanted = len(values) if launch <= launches else (runs or 0) if launch == launches + 1 else 0
        found += [result(letter, launch, run, value) for run, value in enumerate(values[:wanted], 1)]
    return tuple(found)


def arm(letter: str, **changes: object) -> ArmState:
    """An arm whose three launches are measured."""
    base = ArmState(
        letter, PROFILE[letter], SETS[letter], AGAINST[letter], ArmStatus.MEASURED, launches_done=3, launches_total=3,
        results=results(letter),
    )  # fmt: skip
    return replace(base, **changes)  # type: ignore[arg-type]


SERIES = (None, None, 41.0, *[73.4 + 0.3 * ((n * 7) % 5 - 2) for n in range(33)], 70.2, 73.6, 73.4)
LIVE = LiveRun(ONE, 2, "window", 73.4, SERIES, 236.0, 13.6, 2.62, 1910.0, 88.4 * 1024, 1, 24, 0, 170.0)


def verdict(
    letter: str, kind: VerdictKind, ratio: float, ci: tuple[float, float], text: str, **changes: object
) -> Verdict:
    against = AGAINST[letter] or "A"
    means = {"A": 82.0, "B": 89.5, "C": 72.1, "D": 73.6}
    base = Verdict(
        "per_user_tok_s", ArmFigure(against, means[against], 3, 9), ArmFigure(letter, means[letter], 3, 9), ratio, ci, 3, "L2",
        kind, text, ONE, mde=0.012, noise_floor=FLOOR, result_ids=tuple(r.result_id for r in results(letter)),
    )  # fmt: skip
    return replace(base, **changes)  # type: ignore[arg-type]


B_FASTER = verdict(
    "B", VerdictKind.FASTER, 1.091, (1.075, 1.108),
    "B is 9.1 % faster than A   (95 % CI 7.5 … 10.8, 3 launch pairs, paired ABBA)   82.0 → 89.5 tok/s",
)  # fmt: skip
C_SLOWER = verdict(
    "C", VerdictKind.SLOWER, 0.806, (0.789, 0.823),
    "C is 19.4 % slower than B   (95 % CI 17.7 … 21.1, 3 launch pairs, paired ABBA)   89.5 → 72.1 tok/s",
)  # fmt: skip
D_SLOWER = verdict(
    "D", VerdictKind.SLOWER, 0.822, (0.811, 0.833),
    "D is 17.8 % slower than B   (95 % CI 16.7 … 18.9, 3 launch pairs, paired ABBA)   89.5 → 73.6 tok/s",
)  # fmt: skip
C_CHANGES = verdict(
    "C", VerdictKind.INDISTINCT, 1.003, (0.996, 1.011),
    "B and C: not distinguishable (−0.4 … +1.1 %, 3 pairs). To see 1 % you need 5 pairs (~50 min). · C changes the text",
    reasons=("C changes the text: 120 of 240 replies differ, B against itself 0 of 230 (p < 0.001, over prompts)",),
    facts=("replies: 120 of 240 differ (B against itself: 0 of 230), first at token 3, median 41",),
    same_text=SameText(
        Alike(240, 120, 80, 40, 3, 41.0), Alike(230, 0, 78, 0), "launches", 0.0001, True,
        (TextExample(12, 3, "is the answer", "was\x1b[31m the answer"),),
    ),
)  # fmt: skip
INDISTINCT = verdict(
    "B", VerdictKind.INDISTINCT, 1.003, (0.996, 1.011),
    "A and B: not distinguishable (−0.4 … +1.1 %, 3 pairs). To see 1 % you need 5 pairs (~50 min).",
)  # fmt: skip
EQUIVALENT = verdict(
    "B", VerdictKind.EQUIVALENT, 1.003, (0.996, 1.011), "A and B: equivalent within 2 % (−0.4 … +1.1 %, 3 pairs)"
)  # fmt: skip

LOOKS_FASTER = replace(
    B_FASTER, verdict=VerdictKind.LOOKS_FASTER, ci=None, level="L1", n_pairs=1, mde=None, by_chance=0.05,
    text="B looks 9.1 % faster than A   (ONE launch each — screening only; launches of this host differ by up to 1.2 %; "
    "a drift would look the same)   82.0 → 89.5 tok/s",
)  # fmt: skip


def running(**changes: object) -> ExperimentState:
    """The last launch of four arms: two of its three runs are to come."""
    base = ExperimentState(
        "graphs-and-eagle3-20261006", "graphs-and-eagle3", "gpu1", BENCH,
        (
            arm("A"), arm("B"), arm("C"),
            arm("D", status=ArmStatus.RUNNING, launches_done=2, results=results("D", 2, 1), live=LIVE),
        ),
        ORDER, 11, 3, "does a smaller graph range help, and does EAGLE-3 pay at concurrency 1?", (B_FASTER, C_SLOWER),
        left_s=170.0, started_at="2026-10-06T10:00:00Z",
    )  # fmt: skip
    return replace(base, **changes)  # type: ignore[arg-type]


def launching() -> ExperimentState:
    """B's second launch loads its weights; no pair of C or D is complete."""
    return running(
        arms=(
            arm("A", launches_done=1, results=results("A", 1), status=ArmStatus.QUEUED),
            arm("B", launches_done=1, results=results("B", 1), status=ArmStatus.LAUNCHING, phase="load_weights"),
            arm("C", launches_done=1, results=results("C", 1), status=ArmStatus.QUEUED),
            arm("D", launches_done=0, results=(), status=ArmStatus.QUEUED),
        ),
        at=4,
        verdicts=(),
        left_s=3 * 3600.0,
        message="launching B, load weights 41/64",
    )


def failed() -> ExperimentState:
    """C ran out of memory on every launch; a run of B does not count."""
    broken = tuple(
        result("B", 2, 2, 61.0, failed="cache") if (r.result_id == "bench-B2-c1-2") else r for r in results("B")
    )
    return running(
        arms=(
            arm("A"),
            arm("B", results=broken),
            arm("C", status=ArmStatus.FAILED, results=(), launches_done=0, cause="oom_kv_pool",
                reason="3 of 3 launches ended out of memory: the KV pool has no room at mem-fraction-static 0.76"),
            arm("D", status=ArmStatus.SKIPPED, results=(), launches_done=0, reason="B + C decide it"),
        ),
        verdicts=(B_FASTER,),
        finished=True,
        left_s=None,
        at=12,
        message="finished; C has no result",
    )  # fmt: skip


def finished(**changes: object) -> ExperimentState:
    """All four arms done."""
    base = running(
        arms=(arm("A"), arm("B"), arm("C"), arm("D")),
        verdicts=(B_FASTER, C_SLOWER, D_SLOWER),
        at=12,
        finished=True,
        left_s=None,
    )
    return replace(base, **changes)  # type: ignore[arg-type]


def undecided(kind: VerdictKind = VerdictKind.INDISTINCT) -> ExperimentState:
    """Two arms that are all but the same."""
    alike = tuple(
        replace(r, throughput=replace(r.throughput, per_user_tok_s=(b.throughput.per_user_tok_s or 0.0) * 1.003))
        for r, b in zip(results("B"), results("A"), strict=True)
    )
    return finished(
        arms=(arm("A"), arm("B", results=alike)),
        order=tuple("ABBAAB"),
        verdicts=(INDISTINCT if kind is VerdictKind.INDISTINCT else EQUIVALENT,),
    )


def one_arm(**changes: object) -> ExperimentState:
    """A bench of the running server, in its second run."""
    server = arm(
        "A", profile="kimi-k2.5-eagle3-mem088", sets={}, against=None, status=ArmStatus.RUNNING, launches_done=0, launches_total=1,
        results=(result("C", 1, 1, 72.1),), live=replace(LIVE, tok_s=72.3, accept_length=2.31),
    )  # fmt: skip
    base = running(
        experiment_id="", name="speculation-real-prompts", arms=(server,), order=(), at=0, pairs=1, hypothesis=None,
        verdicts=(), left_s=95.0,
    )  # fmt: skip
    return replace(base, **changes)  # type: ignore[arg-type]


SEARCH = Search(Limits(ttft_ms=500.0, tpot_ms=30.0), "concurrency", 1.0, 64.0)
SHARES = {1: 100, 2: 100, 4: 99, 8: 41, 6: 98, 7: 94}  # of 100 replies, in the order measured


def searched(letter: str = "A", shares: Mapping[int, int] = SHARES) -> tuple[Result, ...]:
    """The loads of a search and its answer."""
    base = result(letter, 1, 1, 80.0)
    found = [
        replace(
            base,
            result_id=f"bench-{letter}1-c{load}-1",
            load=replace(base.load, concurrency=load),
            slo=Held(SEARCH.limits, 100, met),
            throughput=replace(base.throughput, per_user_tok_s=80.0 - load, goodput_req_s=met / 10),
        )
        for load, met in shares.items()
    ]
    return (*found, answer(found, SEARCH, f"bench-{letter}1-max-1"))


def searching(*, over: bool = True) -> ExperimentState:
    """A search for the highest load, over or in its third load."""
    bench = replace(BENCH, name="capacity", points=(LoadPoint(search="concurrency"),), search=SEARCH, runs=1)
    found = searched()
    live = replace(LIVE, point=LoadPoint(concurrency=4), run_index=1)
    server = arm(
        "A", profile="kimi-k2.5-baseline", sets={}, launches_done=int(over), launches_total=1,
        status=ArmStatus.MEASURED if over else ArmStatus.RUNNING,
        results=found if over else found[:2], live=None if over else live,
    )  # fmt: skip
    return one_arm(bench=bench, name="capacity", arms=(server,), finished=over, left_s=None if over else 95.0)


HOSTILE = "\x1b[31m[/bold]\x07\u202e名前 " + "x" * 200


def campaign() -> ExperimentState:
    """Six arms, a screening over, its winner confirmed: one dropped, two failed."""
    base = finished()
    measured = {one.letter: one for one in base.arms}
    dropped = "1 launch: 0.46x of A, single run (L0)"
    failed = {"status": ArmStatus.FAILED, "cause": "nccl", "reason": "NCCL_ALGO is set", "results": ()}
    arms = (
        measured["A"],
        replace(measured["B"], against="A"),
        replace(measured["C"], against="A", dropped=dropped),
        replace(measured["D"], against="A", dropped=dropped),
        replace(measured["D"], letter="E", against="A", profile="kimi-k2.5-nccl-tree", sets={}, **failed),
        replace(measured["D"], letter="F", against="A", profile="kimi-k2.5-symm-mem", sets={}, **failed),
    )
    order = tuple("BFADCEABBA")
    statuses = tuple(ArmStatus.FAILED if letter in "EF" else ArmStatus.MEASURED for letter in order)
    rungs = (*[1] * 6, *[None] * 4)
    return replace(base, arms=arms, order=order, statuses=statuses, rungs=rungs, finalist="B", at=10)


def hostile() -> ExperimentState:
    """Names that a file or a host made up."""
    return running(
        name=HOSTILE,
        hypothesis=HOSTILE,
        message=HOSTILE,
        arms=(
            arm("A", profile=HOSTILE),
            arm("B", profile=HOSTILE, sets={HOSTILE: HOSTILE}),
            arm("C", status=ArmStatus.FAILED, reason=HOSTILE, cause=HOSTILE, results=()),
            arm("D", status=ArmStatus.LAUNCHING, phase=HOSTILE, results=()),
        ),
        verdicts=(replace(B_FASTER, text=HOSTILE, reasons=(HOSTILE,)),),
    )
