"""What the journal is made from: launches, results and experiments in this machine's stores."""

from datetime import UTC, datetime, timedelta
from typing import Any

from tests.support.stored import measured
from tui.core.experiment import record as experiment_record
from tui.core.experiment.record import Cell, ExperimentRecord
from tui.core.model.experiment import ArmStatus
from tui.core.model.profile import BenchProfile, ExperimentArm, ExperimentProfile, LoadPoint
from tui.core.model.result import Load, MeasuredServer, Result, Throughput
from tui.core.model.verdict import ArmFigure, Verdict, VerdictKind
from tui.core.results import store
from tui.core.server import launch_records
from tui.core.server.launch_records import Card, LaunchRecord

BEGAN = datetime(2026, 11, 20, 14, 2, tzinfo=UTC)
NO_KERNEL = Card(
    "no kernel for SM120",
    "TP0",
    1412,
    ("RuntimeError: no kernel image",),
    ("another backend",),
    {"attention-backend": "triton"},
)


def at(hours: float) -> str:
    return (BEGAN + timedelta(hours=hours)).strftime("%Y-%m-%dT%H:%M:%SZ")


def launch(number: int, profile: str = "base", host: str = "gpu1", **fields: Any) -> LaunchRecord:
    """A launch `number` hours after `BEGAN`; of one that ended, half an hour later."""
    if fields.get("outcome") in ("crashed", "stopped", "lost"):
        fields.setdefault("ended_at", at(number + 0.5))
    args = {"model-path": "/data/models/Kimi-K2.5", "tp": 8, "port": 30000, **fields.pop("args", {})}
    record = LaunchRecord(
        f"{profile}-20261120T140200Z-{number:06x}",
        host,
        "server",
        profile,
        at(number),
        args=args,
        model=args["model-path"],
        **fields,
    )
    launch_records.write(record)
    return record


def crash(number: int, profile: str = "base", cause: str = "unsupported_arch", **fields: Any) -> LaunchRecord:
    return launch(number, profile, **{"outcome": "crashed", "cause": cause, "card": NO_KERNEL} | fields)


def ready(number: int, profile: str = "base", **fields: Any) -> LaunchRecord:
    return launch(number, profile, **{"outcome": "ready", "ready_after_s": 669.0} | fields)


def result(run: LaunchRecord, number: int = 1, tok_s: float = 72.0, users: int = 1, **fields: Any) -> Result:
    found = measured(
        result_id=f"decode-{run.run_id}-c{users}-{number}",
        started_at=at(number),
        server=MeasuredServer(
            run.host, run.profile, run.run_id, gpus=("H200",) * 2, driver="580.95.05", version="0.5.23"
        ),
        load=Load("closed", users, None, "prompts"),
        throughput=Throughput(per_user_tok_s=tok_s),
        **{"guards": (), "suspicious": ()} | fields,
    )
    store.write(found)
    return found


def verdict(kind: VerdictKind, results: tuple[str, ...] = (), level: str = "L2", **fields: Any) -> Verdict:
    text = f"B is {kind} (95 % CI 17.7 … 21.1 %, 3 launch pairs, paired ABBA)"
    figures = ArmFigure("A", 89.5, 3), ArmFigure("B", 72.1, 3)
    return Verdict("per_user_tok_s", *figures, 0.81, (0.79, 0.82), 3, level, kind, text, result_ids=results, **fields)


def experiment(
    number: int,
    *verdicts: Verdict,
    hypothesis: str | None = "EAGLE-3 beats the baseline",
    host: str = "gpu1",
    **fields: Any,
) -> ExperimentRecord:
    """One of two arms, `base` and `eagle3`, over unless `outcome` says otherwise."""
    arms = ExperimentArm("A", "base"), ExperimentArm("B", "eagle3", {"tp": 4}, against="A")
    cells = fields.pop("cells", (Cell(1, "A", 1, ArmStatus.MEASURED), Cell(2, "B", 1, ArmStatus.MEASURED)))
    record = ExperimentRecord(
        f"does-eagle-pay-20261120T140200Z-{number:06x}",
        host,
        ExperimentProfile("does-eagle-pay", "decode", arms, pairs=3, hypothesis=hypothesis),
        BenchProfile("decode", (LoadPoint(1),)),
        1,
        cells,
        started_at=at(number),
        verdicts=verdicts,
        **{"outcome": "done", "ended_at": at(number + 1)} | fields,
    )
    experiment_record.write(record)
    return record
