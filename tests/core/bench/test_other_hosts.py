"""What a sampler on another host said, as part of a run that was timed by the clock of the first."""

import json
from dataclasses import replace
from types import SimpleNamespace

import pytest

from tests.support import fakes
from tests.support import stored as stored_result
from tests.support.split_group import target_on
from tui.core.bench.collect import Asked, SampledHost
from tui.core.bench.driver import Order
from tui.core.bench.other_hosts import NO_LINK, OtherHosts, Told, longest_s, sample_others
from tui.core.bench.target import Seen
from tui.core.bench.workload import dataset_of
from tui.core.config import HostEntry
from tui.core.errors import EagletuiError, LinkLost
from tui.core.model.profile import BenchProfile, LoadPoint
from tui.core.model.result import GpuUse, HostGpuUse, MeasuredMember, MeasuredServer

BENCH = BenchProfile("quick", (LoadPoint(concurrency=2),), runs=3, duration_s=60.0)
RUN = {"uptime_s": 1000.0, "end_s": 10.0, "window": [2.0, 8.0]}


def line(t: float, samples=(), pids=()) -> bytes:
    return json.dumps({"t": t, "samples": samples, "pids": pids}).encode()


def told(zero: float = 0.0, last_s: int = 12) -> Told:
    """A sampler with a sample each second, from two before the run to two after it."""
    found = Told()
    for second in range(-2, last_s):
        found.take(line(zero + second, [[zero + second, 0, 100.0 + second, 50.0, 7e4, 1980.0, 0]]))
    return found


def test_the_samples_of_a_run_by_its_own_clock():
    found = told(zero=5000.0).during(5000.0, RUN)
    assert [(sample[0], sample[2]) for sample in found["samples"]] == [(n, 100.0 + n) for n in range(11)]
    assert found["foreign_pids"] is None  # nobody said whose processes are there


def test_processes_from_shortly_before_the_run_to_its_end():
    sampler = told()
    sampler.take(line(0, pids=[[-7, 1, False], [-5, 10, True], [-5, 20, False], [3, 30, False], [11, 40, False]]))
    assert sampler.during(0.0, RUN)["foreign_pids"] == [20, 30]
    # What became the server's is the server's; where none of it is seen, nothing can be told.
    sampler.take(line(0, pids=[[4, 20, True], [4, 30, True]]))
    assert sampler.during(0.0, RUN)["foreign_pids"] == []
    nobody = told()
    nobody.take(line(0, pids=[[3, 20, False]]))
    assert nobody.during(0.0, RUN)["foreign_pids"] is None


@pytest.mark.parametrize(("last_s", "missing_s"), [(4, None), (3, 6)])
def test_a_sampler_that_ended_during_the_window_is_missing(last_s, missing_s):
    found = told(last_s=last_s).during(0.0, RUN)
    assert found.get("missing") == (f"nothing was sampled for {missing_s} s of the run" if missing_s else None)


def test_without_a_sample_in_the_window_there_is_nothing_however_short():
    assert "missing" in told(last_s=-1).during(0.0, RUN | {"window": [1.0, 1.5]})


def test_what_is_none_of_its_lines_is_left_out():
    sampler = told()
    before = (list(sampler.samples), list(sampler.pids), sampler.latest)
    for bad in (
        b"", b"{", b"[]", b"7", b"null", b'{"t": 1}', b"[" * 100_000, line(NotANumber := float("nan")),
        b'{"t": 1, "samples": [[1, 0]], "pids": []}', b'{"t": 1, "samples": [7], "pids": []}',
        line(1, [[1, 0, "300 W", 1, 1, 1, 0]]), line(1, [["now", 0, 1, 1, 1, 1, 0]]), line(1, [[1, "0", 1, 1, 1, 1, 0]]),
        line(1, [[NotANumber, 0, 1, 1, 1, 1, 0]]), line(1, pids=[[1, "20", False]]), b'{"t": 1' + b"0" * 400 + b', "samples": [], "pids": []}',
    ):  # fmt: skip
        sampler.take(bad)
    assert (sampler.samples, sampler.pids, sampler.latest) == before


def test_what_it_says_of_itself_is_why_there_are_no_figures():
    sampler = Told()
    sampler.take(b'{"error": "there is no \\u001b[31mnvidia-smi"}')
    (why,) = sampler.during(0.0, RUN).values()
    assert why.startswith("there is no")
    assert "\x1b" not in why


def asked(*others: SampledHost, router_here: bool = False) -> Asked:
    names = [("rank 0", "gpu3"), ("rank 1", "gpu4")] if not router_here else [("decode 0", "gpu4"), ("router", "gpu3")]
    members = tuple(MeasuredMember(name, host, name) for name, host in names)
    return Asked(BENCH, MeasuredServer("gpu3", members=members), "generate", 1, "prompts", others=others)


async def test_hosts_that_cannot_be_asked_are_named_with_the_reason():
    gpu = {"samples": [[3.0, 0, 1.0, 1.0, 1.0, 1.0, 0]], "foreign_pids": []}
    others = (SampledHost("gpu4", "x-7c31d0"), SampledHost("gpu5", missing="a sampler needs Python: none"))
    merged = await OtherHosts(asked(*others), {}).merged(RUN | {"gpu": gpu})
    assert merged["gpu"] == {
        "hosts": {"gpu3": gpu, "gpu4": {"missing": NO_LINK}, "gpu5": {"missing": "a sampler needs Python: none"}}
    }
    lacking = await OtherHosts(asked(*others), {}).merged(RUN | {"gpu": None})
    assert lacking["gpu"]["hosts"]["gpu3"] == {"missing": "no GPU figures"}


async def test_a_run_is_found_in_samples_by_how_far_the_clocks_are_apart(monkeypatch):
    async def read(log, transport, run_id):
        assert (transport, run_id) == ("way to gpu4", "x-7c31d0")
        log.told = told(zero=1000.0 + 4000.0)
        return False

    monkeypatch.setattr("tui.core.bench.other_hosts._Log.read", read)
    session = SimpleNamespace(transport="way to gpu4")
    others = OtherHosts(asked(SampledHost("gpu4", "x-7c31d0", ahead_s=4000.5)), {"gpu4": session})
    merged = await others.merged(RUN | {"gpu": None})
    assert [(sample[0], sample[2]) for sample in merged["gpu"]["hosts"]["gpu4"]["samples"]] == [
        (n - 0.5, 100.0 + n) for n in range(1, 11)
    ]


class Host:
    """A host that tells its uptime, and starts what it is given or fails to."""

    def __init__(self, name: str, uptime: bytes, **facts: object) -> None:
        self.entry, self.uptime = HostEntry(name, name), uptime
        self.transport = self.way = self
        self.host, self.told = name, replace(fakes.FACTS, **{"python_error": None} | facts)

    def words_for(self, variables):
        return ()

    async def facts(self):
        return self.told

    async def run(self, script: str):
        return SimpleNamespace(stdout=self.uptime)


@pytest.mark.parametrize(
    ("gpu2", "failure", "said"),
    [
        (Host("gpu2", b"5000.0 1"), None, None),
        (Host("gpu2", b"5000.0 1"), LinkLost("lost"), None),  # it may run
        (Host("gpu2", b"5000.0 1"), EagletuiError("the disk is full"), "the disk is full"),
        (Host("gpu2", b"5000.0 1", python_error="no python3"), None, "a sampler needs Python: no python3"),
        (Host("gpu2", b""), None, "gpu2: /proc/uptime cannot be read"),
        (None, None, NO_LINK),
    ],
)
async def test_a_sampler_on_the_other_host_or_why_there_is_none(monkeypatch, gpu2, failure, said):
    started = []

    async def launch(transport, request):
        if failure is not None:
            raise failure
        started.append(request)

    monkeypatch.setattr("tui.core.bench.other_hosts.control.launch", launch)
    order = Order(BENCH, dataset_of(BENCH), target_on((0, 1), (2, 3), decode_host="gpu2"), Seen("generate"), 1, "", {})
    run_id = "quick-20261130T120000Z-7c31d0"
    found = await sample_others(Host("gpu1", b"1000.0 1"), order, {"gpu2": gpu2} if gpu2 else {}, run_id)
    (other,) = found
    assert (other.host, other.missing) == ("gpu2", said)
    if said is None:
        assert other.ahead_s == pytest.approx(4000, abs=5)
        assert other.run_id.startswith("quick-20261130T120000Z-")
        assert other == replace(
            (await sample_others(Host("gpu1", b"1000.0 1"), order, {"gpu2": gpu2}, run_id))[0], ahead_s=other.ahead_s
        )  # asked twice, started once
    for request in started:
        plan = json.loads(request.files["bench.json"])
        assert (plan["gpus"], plan["pids"], request.extra) == ([2, 3], [101], {"samples_for": run_id})


async def test_a_router_s_host_has_no_gpus_to_be_missing():
    merged = await OtherHosts(asked(SampledHost("gpu4"), router_here=True), {}).merged(RUN | {"gpu": None})
    assert list(merged["gpu"]["hosts"]) == ["gpu4"]


async def test_the_run_of_a_single_host_stays_as_it_is():
    meta = RUN | {"gpu": None}
    assert await OtherHosts(asked(), {}).merged(meta) is meta


def test_only_what_lacked_a_link_is_asked_again():
    others = OtherHosts(asked(SampledHost("gpu4", "x-7c31d0")), {"gpu4": object()})
    for missing, again in ((NO_LINK, True), ("there is no nvidia-smi", False), (None, False)):
        stored = replace(stored_result.measured(), gpu=GpuUse(hosts=(HostGpuUse("gpu4", missing=missing),)))
        assert others.adds_to(stored) is again
    assert not OtherHosts(asked(SampledHost("gpu4", "x-7c31d0")), {}).adds_to(stored)


def test_a_sampler_lasts_as_long_as_the_bench_may():
    assert longest_s(BENCH) == 600 + 3 * (30 + 120 + BENCH.duration_max_s + 300)
    assert longest_s(replace(BENCH, driver="sglang")) == longest_s(BENCH) + 3 * 900
