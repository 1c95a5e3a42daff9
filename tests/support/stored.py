"""A result as the store keeps it."""

from dataclasses import replace

from tui.core.model.result import (
    Distribution,
    Guard,
    GuardStatus,
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


def measured(number: int = 1, **changes) -> Result:
    result = Result(
        result_id=f"decode-2026110{number}T100000Z-abc12{number}-c4-1",
        bench="decode",
        started_at=f"2026-11-0{number}T10:00:00Z",
        tool=Tool("eagletui", "0.2.0", "generate", "ab" * 32),
        server=MeasuredServer(
            "gpu1",
            profile="base",
            run_id=f"base-2026110{number}T090000Z-4f9c2{number}",
            argv=("python", "-m", "sglang.launch_server", "--tp", "8"),
            args={"tp_size": 8, "cuda_graph_bs": [1, 2], "nested": {"a": None}},
            gpus=("H200",) * 2,
            spec=SpecConfig("EAGLE3", 3, 1, 4),
        ),
        load=Load("closed", 4, None, "prompts", seed=1),
        bench_run_id=f"decode-2026110{number}T100000Z-abc12{number}",
        window=Window(2.0, 62.0),
        throughput=Throughput(per_user_tok_s=82.0),
        latencies=Latencies(ttft=Distribution(30, mean=50.0)),
        speculation=Speculation(verify_steps=100, tau=2.4),
        guards=(Guard("cache", GuardStatus.FAILED, "3 %", 3.0, "1 %"),),
        suspicious=("short",),
    )
    return replace(result, **changes)
