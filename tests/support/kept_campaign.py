"""A journal with something of everything in it, as files of this home."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta

from tui.core.journal import entries
from tui.core.journal.model import Ended, Entry, Environment, Kind, Launched, Measured, Tried
from tui.core.model.profile import DiffLine, ExperimentArm
from tui.core.model.verdict import ArmFigure, Verdict, VerdictKind
from tui.core.server.launch_records import Card

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
ON = Environment(("NVIDIA RTX PRO 6000 Blackwell",) * 8, "580.95.05", "0.5.23", "2.9.1")
NO_ROOM = "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static. Current value: 0.76"


def at(hours_ago: float) -> str:
    return (NOW - timedelta(hours=hours_ago)).isoformat().replace("+00:00", "Z")


def launch(
    digits: str,
    hours_ago: float,
    profile: str = "kimi-k2.5-eagle3-mem088",
    *,
    host: str = "gpu1",
    sets: Mapping[str, object] | None = None,
    ready_s: float | None = None,
    ran_s: float = 600.0,
    outcome: str = "stopped",
    cause: str | None = None,
    title: str = "The KV pool has no room: weights and draft model alone exceed the budget",
    line: int | None = 1871,
    tok_s: float | None = None,
    evidence: str = NO_ROOM,
) -> Iterable[Entry]:
    """What is written of one launch, from its start to its end."""
    run_id = f"{profile}-20261126T140000Z-{digits}"
    began, ended = at(hours_ago), (NOW - timedelta(hours=hours_ago) + timedelta(seconds=ran_s)).isoformat()
    args = {"model-path": "/data/models/Kimi-K2.5", "tp": 8, "mem-fraction-static": 0.88, **(sets or {})}
    difference = (
        DiffLine("+", "speculative-algorithm", None, '"EAGLE3"'),
        DiffLine("~", "mem-fraction-static", "0.84", "0.88"),
    )
    yield Entry(
        f"launch:{run_id}", began, Kind.LAUNCH, "eagletui", f"launched {profile}",
        launched=Launched(run_id, host, profile, f"{profile} {sets}", "/data/models/Kimi-K2.5", sets or {}, args, {},
                          "kimi-k2.5-baseline-bs128", difference, ON),
    )  # fmt: skip
    card = Card(title, "TP0", line, (evidence,), ("Raise mem-fraction-static to 0.88.",), {"mem-fraction-static": 0.88})
    yield Entry(
        f"end:{run_id}", ended.replace("+00:00", "Z"), Kind.END, "eagletui", f"{profile} {outcome}",
        ended=Ended(run_id, host, outcome, cause, "memory_pool" if cause else "serving", card if cause else None, ready_s,
                    1 if cause else 0, ended.replace("+00:00", "Z"), None if cause else "user1@desk"),
    )  # fmt: skip
    if tok_s is not None:
        yield Entry(
            f"result:{digits}", ended.replace("+00:00", "Z"), Kind.RESULT, "eagletui", "measured",
            measured=Measured(f"decode-{digits}", host, "decode", run_id, profile, "conc 1", tok_s),
        )  # fmt: skip


def verdict(kind: VerdictKind, text: str, a: float, b: float, level: str = "L2") -> Verdict:
    return Verdict(
        "per_user_tok_s", ArmFigure("A", a, 3, 9), ArmFigure("B", b, 3, 9), b / a, (0.79, 0.83), 3, level, kind, text
    )


def tried(
    name: str, hours_ago: float, hypothesis: str, said: Verdict, profile: str, runs: Iterable[str]
) -> Iterable[Entry]:
    """What is written of an experiment."""
    arms = (ExperimentArm("A", "kimi-k2.5-baseline-bs128"), ExperimentArm("B", profile, against="A"))
    one = Tried(f"{name}-1", name, "gpu1", "decode", hypothesis, arms, 6, 6, (), tuple(runs))
    yield Entry(f"experiment:{name}", at(hours_ago + 8), Kind.EXPERIMENT, "eagletui", f"began {name}", tried=one)
    done = Tried(f"{name}-1", name, "gpu1", "decode", hypothesis, arms, 6, 6, (), tuple(runs), "done", (said,))
    yield Entry(f"verdict:{name}", at(hours_ago), Kind.VERDICT, "eagletui", f"{name} ended", tried=done)


def campaign() -> list[Entry]:
    """The motivating case in short: what held, what was refuted, what died, what is open."""
    base, eagle = "kimi-k2.5-baseline-bs128", "kimi-k2.5-eagle3-mem088"
    slower = verdict(VerdictKind.SLOWER, "B is 19.4 % slower than A (95 % CI 17.7 … 21.1, 3 launch pairs)", 89.5, 72.1)
    faster = verdict(VerdictKind.FASTER, "B is 9.1 % faster than A (95 % CI 7.5 … 10.8, 3 launch pairs)", 82.0, 89.5)
    same = verdict(VerdictKind.EQUIVALENT, "A and B are equivalent within 2 % (−0.5 … +0.6 %, 3 pairs)", 89.5, 89.6)
    kernel = "RuntimeError: CUDA error: no kernel image is available for execution on the device"
    found = [
        *launch("90c1d2", 94, "kimi-k2.5-eagle3-mem076", sets={"mem-fraction-static": 0.76}, outcome="crashed", cause="oom_kv_pool", ran_s=558),
        *launch("61f0aa", 93.5, eagle, ready_s=669, ran_s=2400, tok_s=72.3),
        *launch("7a30fe", 70, eagle, ready_s=667, ran_s=2400, tok_s=71.6),
        *launch("0cd94b", 69, eagle, ready_s=669, ran_s=2400, tok_s=72.1),
        *launch("4f9c2a", 71, base, ready_s=662, ran_s=2400, tok_s=89.5),
        *launch("4f9c2b", 68, base, ready_s=671, ran_s=2400, tok_s=89.4),
        *launch("5e10f3", 21, eagle, sets={"mem-fraction-static": 0.92}, outcome="crashed", cause="oom_cuda_graph", ran_s=602,
                title="Capturing CUDA graphs ran out of memory", line=2377),
        *launch("b81e07", 18, "kimi-k2.5-eagle3-mem076", outcome="crashed", cause="oom_kv_pool", ran_s=561),
        *launch("aa0001", 230, "kimi-k2.5-fusion", outcome="crashed", cause="unsupported_arch", ran_s=720,
                title="no kernel for SM120", line=1412, evidence=kernel),
        *launch("aa0002", 200, "kimi-k2.5-symm-mem", outcome="crashed", cause="unsupported_arch", ran_s=710,
                title="no SM120 support", line=1398, evidence=kernel),
        *launch("aa0003", 190, "kimi-k2.5-nccl-tree", outcome="crashed", cause="nccl", ran_s=700, title="NCCL_ALGO=Tree fails under CUDA graphs", line=2377),
        *launch("c07b1e", 4, "qwen3-235b-tp8", host="gpu2", ready_s=543, ran_s=7200),
        *tried("does-eagle-pay", 64, "EAGLE-3 with 3 steps beats the baseline", slower, eagle,
               [f"{eagle}-20261126T140000Z-7a30fe", f"{eagle}-20261126T140000Z-0cd94b"]),
        *tried("graphs", 110, "graphs up to 128 are faster than graphs up to 512", faster, base, [f"{base}-20261126T140000Z-4f9c2a"]),
        *tried("a-a", 240, "the baseline equals itself (A/A)", same, base, []),
        Entry("hypothesis-1", at(80), Kind.HYPOTHESIS, "user1", "EAGLE-3 starts at 0.88", (f"profile:{eagle}", "host:gpu1")),
        Entry("settle-1", at(79), Kind.SETTLE, "user1", "six starts at 0.88", ("hypothesis-1",), "held"),
        Entry("hypothesis-2", at(90), Kind.HYPOTHESIS, "user1", "EAGLE-3 with 5 steps beats the baseline", ("host:gpu1",)),
        Entry("settle-2", at(60), Kind.SETTLE, "user1", "2 of 3 pairs; not worth the rest", ("hypothesis-2",), "parked"),
        Entry("hypothesis-3", at(2), Kind.HYPOTHESIS, "agent", "a tree (top-k 4) accepts enough", ("host:gpu1",)),
        Entry("idea-1", at(100), Kind.IDEA, "user1", "graphs up to 128 instead of 512", ("host:gpu1",)),
        Entry("tick-1", at(90), Kind.TICK, "user1", "", ("idea-1",), "done"),
        Entry("idea-2", at(50), Kind.IDEA, "user1", "fp8 KV cache: room for a larger batch", ("host:gpu1",)),
        Entry("idea-3", at(49), Kind.IDEA, "agent", "a draft trained on our own prompts: needs accept 2.86", ("host:gpu1",)),
        Entry("idea-4", at(48), Kind.IDEA, "user1", "report the A2A assertion upstream", ("host:gpu1",)),
        Entry("note-1", at(63), Kind.NOTE, "user1", "our prompts are German support mails; the draft learned English", ("experiment:does-eagle-pay-1",)),
        Entry("note-2", at(93), Kind.NOTE, "agent", "applied the advice (0.76 → 0.88); ready after 11:09", (f"run:{eagle}-20261126T140000Z-61f0aa",)),
        Entry("note-3", at(1), Kind.NOTE, "user1", "driver update tonight", ("host:gpu1",)),
    ]  # fmt: skip
    return found


def write(written: Iterable[Entry]) -> None:
    with entries.locked():
        entries.append(written)
