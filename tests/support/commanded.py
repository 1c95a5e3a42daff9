"""`eagletui experiment x` on the simulated host, as processes that can be killed."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path

from tui.core.experiment import record as experiment_record
from tui.core.experiment.record import ExperimentRecord
from tui.core.model.run import RunState
from tui.core.server.session import HostSession

A, B = "kimi-k2.5-baseline-bs512", "kimi-k2.5-baseline-bs128"


class Command:
    """`eagletui experiment x` as a process that can be killed."""

    def __init__(self, home: Path, port: int, duration_s: float = 8.0) -> None:
        profiles = home / "profiles"
        profiles.mkdir()
        (profiles / "blink.toml").write_text(
            'kind = "bench"\ndataset = "random-ids"\nconcurrency = [8]\ninput_len = 16\noutput_len = 16\n'
            f"duration_s = {duration_s}\nruns = 2\n"
        )
        arms = "".join(f'[[arms]]\nprofile = "{name}"\nset = {{ port = {port} }}\n' for name in (A, B))
        (profiles / "x.toml").write_text(f'kind = "experiment"\nbench = "blink"\npairs = 1\n{arms}')
        self.home = home
        self.process: subprocess.Popen[str] | None = None

    def start(self, *words: str) -> subprocess.Popen[str]:
        where = ["--profiles", str(self.home / "profiles")]
        argv = [sys.executable, "-m", "tui", *where, "experiment", "x", "--host", "demo", "--json", "--force", *words]
        self.process = subprocess.Popen(
            argv, cwd=self.home, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        return self.process

    async def finish(self, *words: str) -> dict:
        process = self.start(*words)
        out, err = await asyncio.to_thread(process.communicate, timeout=120)
        assert "Traceback" not in err
        document = json.loads(out)
        assert document["error"] in (None, "nothing_comparable"), document
        assert process.returncode == (1 if document["error"] else 0)
        return document

    def record(self) -> ExperimentRecord | None:
        found = experiment_record.read_all()
        return found[0] if found else None

    async def on_host(self, session: HostSession, kind: str, number: int = 1) -> None:
        """Returns as soon as the server or the measurement of a launch runs there."""
        async with asyncio.timeout(120):
            while True:
                if (record := self.record()) is not None:
                    cell = record.cells[number - 1]
                    wanted = cell.run_id if kind == "server" else cell.bench_run_id
                    found = [one for one in await session.runs() if one.run_id == wanted]
                    if found and found[0].state is RunState.RUNNING:
                        return
                await asyncio.sleep(0.1)

    async def kill(self) -> ExperimentRecord:
        """SIGKILL, and what was written down by then."""
        assert self.process is not None
        self.process.kill()
        await asyncio.to_thread(self.process.communicate)
        record = self.record()
        assert record is not None
        return record
