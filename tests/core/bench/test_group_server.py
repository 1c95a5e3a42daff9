"""A group as a target, and what its members said of themselves held against how each was launched."""

from dataclasses import replace

from tests.support.split_group import GROUP, target_on
from tui.core.bench.collect import Asked, server_of
from tui.core.bench.driver import Order
from tui.core.bench.loadgen_driver import gpus_of, plan
from tui.core.bench.target import Seen, Target
from tui.core.bench.workload import dataset_of
from tui.core.model.profile import BenchProfile, LoadPoint
from tui.core.model.result import MeasuredMember, MeasuredServer

BENCH = BenchProfile("quick", (LoadPoint(concurrency=2),))


def server_plan(target: Target) -> dict[str, object]:
    return plan(Order(BENCH, dataset_of(BENCH), target, Seen("generate"), 1, "python3", {}))["server"]


def test_a_group_on_one_host_is_sampled_whole():
    target = target_on((0, 1), (2, 3), decode_host="gpu1")
    assert (target.gpus, target.gpu_count, str(target)) == ((0, 1, 2, 3), 4, GROUP.group_id)
    assert server_plan(target) == {
        "log": "/log/1", "pid": 102, "gpus": [0, 1, 2, 3],
        "members": [
            {"name": "prefill 0", "role": "prefill", "url": "http://gpu1:1", "pid": 100},
            {"name": "decode 0", "role": "decode", "url": "http://gpu1:1", "pid": 101},
        ],
    }  # fmt: skip


def test_what_is_on_another_host_is_counted_but_not_seen():
    target = target_on((0, 1), (0, 1, 2), decode_host="gpu2")
    assert (target.gpus, target.gpu_count) == ((0, 1), 5)
    found = server_plan(target)
    assert (found["log"], found["gpus"]) == (None, [0, 1])  # no graphs are looked for in the wrong log
    assert gpus_of(target, "gpu2") == [0, 1, 2]
    assert [part["pid"] for part in found["members"]] == [100, None]


def test_gpus_that_are_not_declared_are_not_counted():
    assert target_on((0, 1), (), decode_host="gpu1").gpu_count is None
    assert gpus_of(target_on((0, 1), (), decode_host="gpu2"), "gpu2") is None  # all are sampled


def test_on_a_host_that_has_the_router_alone_nothing_is_sampled():
    target = target_on((0, 1), (2, 3), decode_host="gpu2")
    there = tuple(replace(part, run=replace(part.run, host="gpu2")) for part in target.parts)
    assert gpus_of(replace(target, parts=there)) == []
    assert gpus_of(replace(target, parts=there), "gpu2") == [0, 1, 2, 3]


def members(*argv: tuple[str, ...]) -> MeasuredServer:
    names = ("prefill 0", "decode 0", "router")
    return MeasuredServer(
        "gpu1", "split", members=tuple(MeasuredMember(n, "gpu1", n, argv=a) for n, a in zip(names, argv, strict=True))
    )


def test_each_member_must_run_with_its_own_arguments():
    launched = members(("--tp", "2", "--disaggregation-mode", "prefill"), ("--tp", "4"), ("--policy", "random"))
    asked = Asked(BENCH, launched, "generate", 1, "prompts", from_profile=True)
    prefill = {"version": "0.5.23", "tp_size": 2, "disaggregation_mode": "prefill", "speculative_algorithm": None}
    decode = {"version": "0.5.23", "tp_size": 8, "model_path": "/m"}
    said = [
        {"name": "prefill 0", "role": "prefill", "server_info": prefill},
        {"name": "decode 0", "role": "decode", "server_info": decode},
    ]
    file = {"kind": "sglang", "version": "0.5.23", "first": {"server_info": decode, "members": said}}
    server, checks, _ = server_of(asked, file)
    assert [str(one) for one in checks.differences or ()] == ["decode 0: tp-size is 8, asked for 4"]
    assert (server.model, server.args["tp_size"]) == ("/m", 8)
    # Of nodes nobody but rank 0 says anything.
    alone = replace(asked, server=replace(launched, argv=("--tp", "8")))
    assert server_of(alone, {**file, "first": {"server_info": decode}})[1].differences == ()
