"""A stop, and the wait for the GPU memory: what a driver or a link that does not answer may delay."""

import asyncio
from collections.abc import Sequence

import pytest

from tui.core.errors import LinkLost
from tui.core.host.gpus import Gpu, GpuProcess, GpuSample
from tui.core.model.run import Run, RunState, StopState
from tui.core.server import stop as stopping

RUN = Run("x-20261130T000000Z-4f9c2a", "server", "x", "gpu1", RunState.RUNNING, pid=41)


def gpu(index: int, used_mib: float, *pids: int) -> Gpu:
    return Gpu(
        index,
        f"GPU-{index}",
        memory_used_mib=used_mib,
        processes=tuple(GpuProcess(pid, "me", "python", 9_000.0) for pid in pids),
    )


class Host:
    """Answers samples in turn, the last one again and again; `None` is a driver that hangs."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, samples: Sequence[GpuSample | Exception | None]) -> None:
        self.samples, self.asked_to_stop = list(samples), asyncio.Event()
        monkeypatch.setattr(stopping.control, "stop", self._stop)
        monkeypatch.setattr(stopping.control, "stop_state", self._state)
        monkeypatch.setattr(stopping, "_SAMPLE_LIMIT_S", 0.01)

    async def _stop(self, *_: object, **__: object) -> None:
        self.asked_to_stop.set()

    async def _state(self, *_: object) -> StopState:
        return StopState(None, "done")

    async def sample(self) -> GpuSample:
        found = self.samples.pop(0) if len(self.samples) > 1 else self.samples[0]
        if isinstance(found, Exception):
            raise found
        return found if found is not None else await asyncio.Event().wait()  # type: ignore[return-value]

    async def stop(self, run: Run) -> list[tuple[str, bool]]:
        return [(p.text, p.done) async for p in stopping.stop(None, run, self.sample, 1.0)]  # type: ignore[arg-type]


def sample(*gpus: Gpu, error: str | None = None) -> GpuSample:
    return GpuSample(0.0, gpus, "nvidia-smi", error=error)


@pytest.mark.fault(
    "F1",
    "a driver hangs while a server is stopped or launched",
    sees="the stop's steps; of the GPUs that nothing is known",
    holds="the stop is sent first",
)
async def test_a_driver_that_hangs_delays_no_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    host = Host(monkeypatch, [None])
    texts = await host.stop(RUN)
    assert host.asked_to_stop.is_set()
    assert texts[-1] == ("stopped", True)


async def test_a_link_lost_beside_it_does_not_end_it(monkeypatch: pytest.MonkeyPatch) -> None:
    host = Host(monkeypatch, [LinkLost("gpu1: lost", "wait")])
    assert (await host.stop(RUN))[-1] == ("stopped", True)
    declared = Run(**{**vars(RUN), "gpus": (0,)})
    text = "stopped; whether the GPU memory is back is not known (the link is lost)"
    assert (await host.stop(declared))[-1] == (text, True)


@pytest.mark.parametrize("gpus", [(), (0,)])
@pytest.mark.fault(
    "P8",
    "GPU memory is still used after the end",
    sees="by whom, after 10 s",
    holds="waited for on the run's GPUs alone",
)
async def test_memory_of_its_gpus_is_waited_for_and_no_other(
    monkeypatch: pytest.MonkeyPatch, gpus: tuple[int, ...]
) -> None:
    others = gpu(1, 50_000, 77)
    before = [sample(gpu(0, 9_000, 41), others)] if not gpus else []
    host = Host(monkeypatch, [*before, sample(gpu(0, 9_000), others), sample(gpu(0, 3), others)])
    texts = [text for text, _ in await host.stop(Run(**{**vars(RUN), "gpus": gpus}))]
    assert texts[-2:] == ["waiting for 8.8 GiB to come back", "stopped, the GPU memory is back"]
