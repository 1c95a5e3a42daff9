"""What a bench driver is: a way to measure a server from its host, and to make results of the files that it leaves.

Another one is a module with a class like these, a line in `drivers.py`, and its name in `core/model/profile.py`, so that profiles may have it.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from tui.core.bench.collect import Asked
from tui.core.bench.target import Seen, Target
from tui.core.bench.workload import DEFAULT_INPUT_LEN, Dataset
from tui.core.config import HostEntry
from tui.core.host.gpus import HostFacts
from tui.core.model.profile import BenchProfile
from tui.core.model.result import Result
from tui.core.profiles.secrets import is_secret_env
from tui.core.runs.request import InRunDir, LaunchRequest


@dataclass(frozen=True)
class Order:
    """What is to be measured, once the server has been looked at."""

    profile: BenchProfile
    data: Dataset
    target: Target
    seen: Seen
    seed: int
    python: str  # the interpreter on the host
    env: Mapping[str, str]  # of the host's entry

    @property
    def random_ids(self) -> bool:
        return self.data.kind == "random-ids"

    @property
    def input_len(self) -> int | None:
        """Tokens of a prompt, of random ids; None where the data say."""
        return (self.profile.input_len or DEFAULT_INPUT_LEN) if self.random_ids else None


@dataclass(frozen=True)
class Program:
    """What runs on the host, in a directory that holds `files`."""

    argv: tuple[str | InRunDir, ...]
    files: Mapping[str, bytes]
    env: Mapping[str, str] = field(default_factory=dict)  # beside the server's API key


@dataclass(frozen=True)
class Finished:
    """A measured run that has ended: the line in which the program said so, and the files that the driver asked for."""

    run_id: str  # of the bench
    asked: Asked
    event: Mapping[str, Any]
    files: Mapping[str, bytes]  # by the names in `Driver.files`
    generator_sha: str | None  # SHA-256 of the program, as it said

    def json(self, name: str) -> Any:
        """A file as the JSON document that it is. Raises ValueError."""
        return json.loads(self.files[name])


@dataclass(frozen=True)
class Measured:
    """A result with what is stored beside it."""

    result: Result
    rows: bytes | None = None  # rows.jsonl.gz
    meta: Mapping[str, Any] | None = None


class Driver(Protocol):
    """A way to measure; its name is that in a profile and in the `tool` of results and of the program's lines."""

    @property
    def name(self) -> str: ...

    @property
    def needs_python(self) -> bool:
        """Whether it runs on the Python of the host."""

    def dataset(self, profile: BenchProfile) -> Dataset:
        """What is asked of the server; may read a file. Raises UsageError."""

    def seen_by(self, seen: Seen, data: Dataset, target: Target, facts: HostFacts) -> Seen:
        """The server by the interface that it is measured through. Raises UsageError where this driver cannot."""

    def program(self, order: Order) -> Program:
        """What runs on the host. Raises UsageError."""

    def result_id(self, run_id: str, label: str, number: int) -> str | None:
        """Of the one result that a run gives; None where it may give several."""

    def files(self, event: Mapping[str, Any]) -> Mapping[str, tuple[str, str | None]]:
        """The files that a run's line names, each with its SHA-256 where it has one. Raises KeyError, TypeError."""

    def results(self, finished: Finished) -> tuple[Measured, ...]:
        """What a run measured. Raises ValueError, KeyError, TypeError where a file is not what it should be."""


def host_python(entry: HostEntry, facts: HostFacts) -> str:
    """The interpreter of a host, by its whole path where that is known."""
    if facts.home and entry.python.startswith("~/"):
        return f"{facts.home}/{entry.python[2:]}"
    return entry.python


def launch_request(
    run_id: str, profile: str, program: Program, measures: Sequence[str | None] = (), uses: Sequence[int] = ()
) -> LaunchRequest:
    """A program as a run of kind bench, on a server that goes by the words `measures` and has the GPUs `uses`."""
    secret = {name: value for name, value in program.env.items() if is_secret_env(name, value)}
    return LaunchRequest(
        run_id=run_id,
        kind="bench",
        profile=profile,
        argv=program.argv,
        env={name: value for name, value in program.env.items() if name not in secret},
        secret_env=secret,
        files=program.files,
        measures=tuple(filter(None, measures)),
        uses=tuple(uses),
    )
