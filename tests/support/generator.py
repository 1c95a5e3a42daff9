"""The load generator as it is on a host: the files that travel, and the command that runs them."""

import sys
from pathlib import Path
from types import SimpleNamespace

from tui.core.bench.driver import Order
from tui.core.bench.drivers import DRIVERS
from tui.core.bench.target import Seen, Target
from tui.core.bench.workload import Dataset
from tui.core.model.profile import BenchProfile, LoadPoint

SERVER = Target("http://127.0.0.1:30000", SimpleNamespace(log_path=None, gpus=()))
ORDER = Order(
    BenchProfile("p", (LoadPoint(concurrency=4),)), Dataset("jsonl", "mine"), SERVER, Seen("generate"), 1, "", {}
)


def generator(
    directory: Path, python: str = sys.executable, driver: str = "eagletui", plan: str = "bench.json"
) -> list[str]:
    """Puts the program into the directory, from where the command runs it."""
    program = DRIVERS[driver].program(ORDER)
    for name, data in program.files.items():
        if name != "bench.json":
            (directory / name).parent.mkdir(parents=True, exist_ok=True)
            (directory / name).write_bytes(data)
    return [python, *(word if isinstance(word, str) else word.name for word in program.argv[1:-1]), plan]
