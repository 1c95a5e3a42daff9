"""A stop ends the measurement of what is stopped: whoever can be asked hears of it, a script must mean it."""

import asyncio
import contextlib
import os
import signal
from dataclasses import replace
from types import SimpleNamespace

import pytest

from tests.support.groups import GROUP
from tests.support.nodes_lab import processes_of
from tests.support.run_lab import request
from tests.support.shell import Terminal
from tui.commands import experiment
from tui.commands import measured as measured_command
from tui.core.bench.collect import Asked, measurement_of
from tui.core.bench.measured_servers import ServerMeasured, measured_among
from tui.core.experiment.ahead import ArmAhead, refused_or_measured
from tui.core.link.local import LocalTransport
from tui.core.model.profile import BenchProfile, LoadPoint
from tui.core.model.result import MeasuredServer
from tui.core.model.run import Run, RunState
from tui.core.runs import control
from tui.panel.screens.plan_rows import stopped_rows
from tui.panel.widgets.rows import plain

QUICK = BenchProfile("quick", (LoadPoint(concurrency=2),))


def measuring(server: MeasuredServer) -> dict[str, object]:
    """What a bench run says of itself."""
    return Asked(QUICK, server, "generate", 1, "prompts").to_extra()


@pytest.fixture
def measured(shell, command, port):
    """Ids of a server that runs, and of what measures it."""
    name = command("sleeper", "sh", "-c", "sleep 600")
    run = shell("launch", name, "--host", "local", "--set", port, "--json").json["run"]
    bench = request(("sleep", "600"), kind="bench", extra=measuring(MeasuredServer("local", run_id=run)))

    async def start() -> None:
        host = LocalTransport(env=shell.env)
        await control.launch(host, bench)
        await host.close()

    asyncio.run(start())
    yield run, bench.run_id
    for pid in (*processes_of(run), *processes_of(bench.run_id)):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def test_who_cannot_be_asked_is_refused_and_told_the_way_out(shell, measured):
    run, bench = measured
    said = shell("stop", run, "--json").refused(1, "measured")
    assert f"is being measured by {bench}" in said["message"]
    assert f"eagletui wait {bench[-6:]} --for exit" in said["hint"]
    assert "--yes" in said["hint"]
    silent = shell("stop", run)
    assert (silent.code, bench in silent.err) == (1, True)
    assert shell.row(run)["state"] == "running"
    stopped = shell("stop", run, "--yes", "--grace", "0", "--json")
    assert (stopped.code, stopped.json["outcome"]) == (0, "stopped")
    assert shell("stop", bench, "--grace", "0", "--json").code == 0  # the measurement itself needs no word more


def test_who_is_asked_hears_it_in_the_question(shell, measured):
    run, bench = measured
    with Terminal(shell, "stop", run, "--grace", "0") as terminal:
        terminal.until(b"[yes/No] ")
        terminal.write(b"\n")
        shown = terminal.read_to_end()
    assert f"which {bench} is measuring now and which ends with it?".encode() in shown
    assert shell.row(run)["state"] == "running"


def test_it_is_found_by_the_server_by_its_address_or_by_its_group():
    def bench(state=RunState.RUNNING, **server) -> Run:
        extra = measuring(MeasuredServer("gpu1", **server))
        return Run("quick-20261130T120000Z-aaaaaa", "bench", "quick", "gpu1", state, extra=extra)

    def found(run: Run) -> bool:
        return measurement_of([run], GROUP.group_id, "http://127.0.0.1:30000") == run

    assert found(bench(run_id=GROUP.group_id))
    assert found(bench(url="http://127.0.0.1:30000"))
    assert not found(bench(run_id="another", url="http://127.0.0.1:30001"))
    assert not found(bench(RunState.EXITED, run_id=GROUP.group_id))
    assert not found(replace(bench(run_id=GROUP.group_id), extra={}))
    assert measurement_of([bench()], None, None) is None


def test_a_launch_in_its_place_is_asked_about_too(shell, measured, command, port):
    run, bench = measured
    other = command("other", "sh", "-c", "sleep 600")
    said = shell("launch", other, "--host", "local", "--set", port, "--replace", "--json").refused(1, "measured")
    assert f"{run} on local" in said["message"]
    assert f"is being measured by {bench}" in said["message"]
    with Terminal(shell, "launch", other, "--host", "local", "--set", port, "--replace") as terminal:
        terminal.until(b"[yes/No] ")
        terminal.write(b"\n")
        assert f"which {bench} is measuring now".encode() in terminal.read_to_end()
    assert shell.row(run)["state"] == "running"
    launched = shell("launch", other, "--host", "local", "--set", port, "--replace", "--yes", "--json")
    assert (launched.code, shell.row(run)["state"]) == (0, "exited")
    shell("stop", launched.json["run"], "--yes", "--grace", "0")


def test_each_server_is_asked_for_by_what_it_is():
    def server(run_id, **more) -> Run:
        return Run(run_id, "server", "p", "gpu1", RunState.RUNNING, argv=("sglang",), **more)

    def bench(**of) -> Run:
        return Run("quick-20261130T120000Z-aaaaaa", "bench", "quick", "gpu1", RunState.RUNNING, extra=measuring(MeasuredServer("gpu1", **of)))  # fmt: skip

    alone, member = server("a", port=30000), server(GROUP.members[0].run_id, port=30000, extra={"group": GROUP.extra()})
    assert measured_among([alone], [bench(url="http://127.0.0.1:30000")])[0][0] == alone
    assert measured_among([alone], [bench(run_id="b")]) == []
    assert measured_among([replace(alone, host="gpu2")], [bench(url="http://127.0.0.1:30000")]) == []
    assert measured_among([member], [bench(run_id=GROUP.group_id)])[0][0] == member
    assert measured_among([member], [bench(url="http://127.0.0.1:30000")]) == []


def ahead(*, measured_by: str) -> tuple[ArmAhead, ...]:
    """An arm whose launch would stop a server that a run measures."""
    server = Run("a", "server", "p", "gpu1", RunState.RUNNING)
    bench = Run(measured_by, "bench", "quick", "gpu1", RunState.RUNNING, extra=measuring(MeasuredServer("gpu1", run_id="a")))  # fmt: skip
    plan = SimpleNamespace(findings=(), replaces=(server,), seen=(server, bench))
    return (ArmAhead("A", "p", ("gpu1",), plan),)


def test_an_experiment_ends_no_measurement_but_its_own():
    with pytest.raises(ServerMeasured, match="a on gpu1 is being measured by b, which would end with it"):
        refused_or_measured(ahead(measured_by="b"), {None, "c"})
    refused_or_measured(ahead(measured_by="b"), {None, "b"})


@pytest.mark.parametrize(
    ("ask", "answer", "asked_for"), [(None, None, [True]), (True, "yes", [False, True]), (True, "no", [False]), (False, None, [False])]
)  # fmt: skip
def test_who_begins_an_experiment_is_asked_once(monkeypatch, ask, answer, asked_for):
    found = []

    async def run(may_end: bool) -> str:
        found.append(may_end)
        if not may_end:
            raise ServerMeasured("a", Run("b", "bench", "quick", "gpu1", RunState.RUNNING))
        return "the runner"

    async def answered(question: str) -> str:
        return answer

    monkeypatch.setattr(measured_command, "read_line", answered)
    if asked_for[-1]:
        assert experiment._run(run, ask) == "the runner"
    else:
        with pytest.raises(ServerMeasured):
            experiment._run(run, ask)
    assert found == asked_for


def test_the_panel_s_preview_says_what_ends_with_a_server_in_the_way():
    plan = ahead(measured_by="quick-20261130T120000Z-bbbbbb")[0].plan
    said = plain(stopped_rows(plan.replaces, plan.seen)).splitlines()
    assert "will first stop" in said[0]
    assert "quick, run bbbbbb, is measuring it now and would end with it." in said[1]
    assert len(stopped_rows(plan.replaces, plan.replaces)) == 1
