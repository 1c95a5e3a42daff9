"""`driver = "eagletui"`: the load generator of this program (`tui/remote/loadgen`)."""

import json
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources
from typing import Any

import tui
from tui.core.bench.collect import Asked, point_document, result_id, result_of, server_of, unpack
from tui.core.bench.driver import Finished, Measured, Order, Program
from tui.core.bench.guards import WINDOW_REPLIES, WINDOW_TOKENS, judge
from tui.core.bench.metrics import Meta, Row, figures
from tui.core.bench.target import Seen, Target
from tui.core.bench.workload import Dataset, dataset_of, vocabulary
from tui.core.host.gpus import HostFacts
from tui.core.link.programs import program
from tui.core.model.profile import BenchProfile
from tui.core.model.result import Result, Tool
from tui.core.runs.request import InRunDir
from tui.core.server.asking import KEY_VARIABLE

PLAN_VERSION = 1
PLAN = InRunDir("bench.json")


@cache
def package_files() -> Mapping[str, bytes]:
    """The modules of the load generator, in packages as here."""
    names = sorted(file.name for file in resources.files("tui.remote.loadgen").iterdir() if file.name.endswith(".py"))
    modules = {f"tui/remote/loadgen/{name}": program(f"loadgen/{name}") for name in names}
    return {
        name: text.encode() for name, text in {"tui/__init__.py": "", "tui/remote/__init__.py": "", **modules}.items()
    }


def plan(order: Order) -> dict[str, Any]:
    """bench.json (its format: docs/load-generator.md)."""
    profile, data, target = order.profile, order.data, order.target
    return {
        "version": PLAN_VERSION,
        "base_url": order.target.url,
        "api": order.seen.api,
        "model": None,
        "headers_env": KEY_VARIABLE if order.seen.key is not None else None,
        "points": [point_document(point) for point in profile.points if point.search is None],
        "runs": profile.runs,
        "duration_s": profile.duration_s,
        "duration_max_s": profile.duration_max_s,
        "needs": {"tokens": WINDOW_TOKENS, "replies": WINDOW_REPLIES},
        "max_requests": None,
        "output_len": profile.output_len,
        "input_len": order.input_len,
        "dataset": {"kind": data.kind, "sha": data.sha, "items": [dict(item) for item in data.items]},
        "vocab": list(vocabulary(order.seen.vocab_size)) if order.random_ids else None,
        "seed": order.seed,
        "ignore_eos": order.random_ids,
        "temperature": 0.0,
        "warmup_s": profile.warmup_s,
        "server": {"log": _log(target), "pid": target.pid, "gpus": gpus_of(target)} | _members(target),
    } | _search(profile)


def _log(target: Target) -> str | None:
    """The log that says whether steps ran in graphs, where it lies on the host that measures."""
    part = target.speaks
    if part is None or target.run is None:
        return target.run.log_path if target.run is not None else None
    return part.run.log_path if part.run.host == target.run.host else None


def gpus_of(target: Target, host: str | None = None) -> list[int] | None:
    """The GPUs to sample on a host of the target, by default that which measures: None for all, [] for none."""
    if target.group is None or target.run is None:
        return list(target.gpus) or None
    place = host or target.run.host
    servers = ([] if target.speaks else [target.run]) + [part.run for part in target.parts]  # a router takes none
    there = [run for run in servers if run.host == place]
    return [gpu for run in there for gpu in run.gpus] or (None if there else [])


def _members(target: Target) -> dict[str, Any]:
    """The parts of a group, as the router reaches them; a process is known on its own host only."""
    if target.run is None or target.speaks is None:
        return {}
    here = target.run.host
    return {
        "members": [
            {
                "name": part.member.name,
                "role": part.member.role.value,
                "url": part.url,
                "pid": part.run.pid if part.run.host == here else None,
            }
            for part in target.parts
        ]
    }


def _search(profile: BenchProfile) -> dict[str, Any]:
    """What a plan says of a search instead of points: each window lasts until it has the replies for its share."""
    search = profile.search
    if search is None:
        return {}
    limits, number = search.limits, int if search.kind == "concurrency" else float
    return {
        "points": [],
        "search": {
            "kind": search.kind,
            "low": number(search.low),
            "high": number(search.high),
            "ttft_ms": limits.ttft_ms,
            "tpot_ms": limits.tpot_ms,
            "e2e_ms": limits.e2e_ms,
            "share": limits.share,
            "most": search.most_points,
        },
        # The reply whose first chunk opens the window was due before it.
        "needs": {"tokens": WINDOW_TOKENS, "replies": limits.replies + 1},
    }


def python_program(python: str, script: str, document: Mapping[str, Any]) -> Program:
    """A script of `tui/remote/` with the load generator's packages beside it, and its plan.

    They lie in a directory of their own: what else runs in the run's directory must not take them for eagletui.
    """
    start = InRunDir(f"program/{script.replace('/__main__', '')}")
    packages = {f"program/{name}": data for name, data in package_files().items()}
    plan_json = json.dumps(document, ensure_ascii=False).encode()
    files = {start.name: program(script).encode(), **packages, PLAN.name: plan_json}
    return Program((python, "-B", start, PLAN), files)


class LoadgenDriver:
    """Measures with the load generator, by the interface that users have."""

    name = "eagletui"
    needs_python = True

    def dataset(self, profile: BenchProfile) -> Dataset:
        return dataset_of(profile)

    def seen_by(self, seen: Seen, data: Dataset, target: Target, facts: HostFacts) -> Seen:
        return seen

    def program(self, order: Order) -> Program:
        return python_program(order.python, "loadgen/__main__.py", plan(order))

    def result_id(self, run_id: str, label: str, number: int) -> str:
        return result_id(run_id, label, number)

    def files(self, event: Mapping[str, Any]) -> Mapping[str, tuple[str, str | None]]:
        return checked(event, "meta", "rows")

    def results(self, finished: Finished) -> tuple[Measured, ...]:
        meta, rows = finished.json("meta"), unpack(finished.files["rows"])
        server_file, sha = finished.json("server"), finished.generator_sha
        result = assemble(finished.run_id, finished.asked, meta, rows, server_file, sha)
        return (Measured(result, finished.files["rows"], meta),)


def checked(event: Mapping[str, Any], *names: str) -> dict[str, tuple[str, str | None]]:
    """Files of a run with the checksums that its line has of them, and the file about the server, which has none."""
    named = {name: (str(event[name]), str(event["sha256"][name])) for name in names}
    return named | {"server": ("server.json", None)}


def assemble(
    run_id: str,
    asked: Asked,
    meta: Meta,
    rows: Sequence[Row],
    server_file: Mapping[str, Any],
    generator_sha: str | None = None,
) -> Result:
    """The result of one measured run.

    Args:
        run_id: of the generator.
        meta, rows, server_file: its files, as docs/load-generator.md describes them.
        generator_sha: SHA-256 of its program.

    Raises ValueError, KeyError, TypeError where the files are not what they should be.
    """
    server, checks, gpus = server_of(asked, server_file)
    limits = asked.bench.search.limits if asked.bench.search else None
    found = figures(rows, meta, gpus=gpus, limits=limits)
    tool = Tool(LoadgenDriver.name, tui.__version__, asked.api, generator_sha)
    return result_of(run_id, asked, meta, server, tool, len(rows), found, judge(rows, meta, found, checks))
