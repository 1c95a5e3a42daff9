"""Hosts of the core's tests, this machine and the simulated host in a hurry; results made up from the figures of a launch."""

import socket
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import UTC, datetime, timedelta

import pytest

from tui.core.link.local import LocalTransport
from tui.core.link.transport import SilentAsker
from tui.core.model.result import Load, MeasuredServer, Result, SpecConfig, Speculation, Throughput, Tool, Window
from tui.core.server.session import HostSession, open_session
from tui.demo.client import stop_demo

EPOCH = datetime(2026, 11, 29, 8, 0, 0, tzinfo=UTC)
MakeLaunch = Callable[..., tuple[Result, ...]]


def _launch(
    profile: str,
    at: int,
    rates: Sequence[float],
    *,
    concurrency: int = 1,
    tau: float | None = None,
    cycle_ms: float | None = None,
    steps: int = 3,
    topk: int = 1,
    dataset: str = "prompts",
    bench: str = "decode-bs1",
    host: str = "gpu1",
    model: str = "/data/models/Kimi-K2.5",
    experiment: str | None = None,
    arm: str | None = None,
    pair: int | None = None,
    **server: object,
) -> tuple[Result, ...]:
    begin = EPOCH + timedelta(minutes=5 * at)
    run_id = f"{profile}-{begin:%Y%m%dT%H%M%SZ}-{at:06x}"
    spec = SpecConfig("EAGLE3", steps, topk, steps + 1) if tau is not None else None
    return tuple(
        Result(
            result_id=f"bench-{at:06x}-c{concurrency}-{number}",
            bench=bench,
            started_at=(begin + timedelta(seconds=61 * number)).isoformat(),
            tool=Tool("eagletui"),
            server=MeasuredServer(
                host, profile, run_id, begin.isoformat(), model=model, spec=spec, version="0.5.23", **server
            ),
            load=Load("closed", concurrency, None, dataset, "5ha", output_len=512),
            run_index=number,
            window=Window(0.5, 60.5),
            duration_s=61.0,
            throughput=Throughput(per_user_tok_s=rate),
            speculation=Speculation(tau=tau, cycle_ms=cycle_ms) if tau is not None else None,
            experiment=experiment,
            arm=arm,
            launch_number=at + 1 if experiment else None,
            pair_number=pair,
        )
        for number, rate in enumerate(rates, 1)
    )


@pytest.fixture(scope="session")
def make_launch() -> MakeLaunch:
    """make_launch(profile, at, rates, …): the results of the `at`-th launch on a host, one run a rate."""
    return _launch


@pytest.fixture
async def local() -> AsyncIterator[LocalTransport]:
    transport = LocalTransport()
    yield transport
    await transport.close()


@pytest.fixture
async def demo(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[HostSession]:
    monkeypatch.setenv("EAGLETUI_DEMO_SPEED", "2000")
    session = await open_session("demo", SilentAsker())
    await session.open()
    yield session
    await session.close()
    await stop_demo()


@pytest.fixture
def port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
