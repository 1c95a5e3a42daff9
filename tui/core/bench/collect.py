"""From the files that a measured run left on its host to the result that is stored: pure."""

import json
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from tui.core.bench.guards import Judgement, ServerChecks
from tui.core.bench.metrics import Figures, Meta, Row
from tui.core.bench.server_args_check import Difference, asked_flags, differences
from tui.core.errors import EagletuiError, Slug
from tui.core.model.profile import BenchProfile, LoadPoint
from tui.core.model.result import Load, MeasuredServer, Result, Tool
from tui.core.model.run import Run
from tui.core.records import from_json, to_json
from tui.core.sglang.server_info import args_sha, arguments, speculation
from tui.core.text import one_line

ROWS_LIMIT = 1 << 30  # bytes of rows, unpacked


@dataclass(frozen=True)
class Place:
    """Where in an experiment a bench belongs."""

    experiment: str | None = None
    arm: str | None = None
    launch_number: int | None = None
    pair_number: int | None = None


@dataclass(frozen=True)
class SampledHost:
    """A host beside the one that measures, with a part of the measured group on its GPUs (`other_hosts`)."""

    host: str
    run_id: str | None = None  # of what samples there
    ahead_s: float = 0.0  # of its /proc/uptime, to that of the host that measures
    missing: str | None = None  # why nothing samples there
    node: bool = False  # of the cluster of the host that measures, which has the run


@dataclass(frozen=True)
class Asked:
    """What a bench run was started with; kept in its cmd.json, so that any eagletui can collect it."""

    bench: BenchProfile
    server: MeasuredServer  # as far as it was known before
    api: str
    seed: int
    dataset: str
    dataset_sha: str | None = None
    input_len: int | None = None
    ignore_eos: bool = False
    gpus: int | None = None  # as many as the server was launched on
    version_meant: str | None = None
    container: str | None = None  # docker:NAME, the server's, beside which it was measured; None = by the host's Python
    from_profile: bool = False  # whether `server.argv` says what it should be
    others: tuple[SampledHost, ...] = ()
    experiment: str | None = None
    arm: str | None = None
    launch_number: int | None = None
    pair_number: int | None = None

    @property
    def place(self) -> dict[str, Any]:
        """Where in an experiment it belongs, as fields of a result."""
        names = ("experiment", "arm", "launch_number", "pair_number")
        return {name: getattr(self, name) for name in names}

    def to_extra(self) -> dict[str, Any]:
        """For `LaunchRequest.extra`."""
        return {"measure": to_json(self)}

    @classmethod
    def of(cls, run_id: str, extra: Mapping[str, Any]) -> "Asked":
        """Raises EagletuiError where a run was not started by `bench_run`."""
        try:
            return from_json(cls, extra.get("measure"))
        except ValueError as error:
            raise EagletuiError(
                f"{run_id} does not say what it measured: {one_line(str(error), 120)}",
                "it was started by another version, or is not a measurement",
                slug=Slug.NOT_COLLECTABLE,
            ) from None


def result_id(run_id: str, label: str, number: int) -> str:
    """So that collecting twice writes one file."""
    return f"{run_id}-{label}-{number}"


def unpack(rows_gz: bytes) -> list[Row]:
    """The rows of a run. Raises ValueError where they are damaged."""
    try:
        unpacker = zlib.decompressobj(wbits=31)
        text = unpacker.decompress(rows_gz, ROWS_LIMIT)
    except zlib.error as error:
        raise ValueError(str(error)) from None
    if not unpacker.eof:
        raise ValueError("the end is missing")
    rows = [json.loads(line) for line in text.splitlines() if line.strip()]
    if not all(isinstance(row, dict) for row in rows):
        raise ValueError("a row is not an object")
    return rows


def result_of(
    run_id: str,
    asked: Asked,
    meta: Meta,
    server: MeasuredServer,
    tool: Tool,
    requests: int,
    found: Figures,
    verdict: Judgement,
) -> Result:
    """The result of a run whose figures and guards are known. Errors as of `assemble`."""
    point = point_of(meta["point"])
    return Result(
        result_id=result_id(run_id, point.label, int(meta["run"])),
        bench=asked.bench.name,
        started_at=datetime.fromtimestamp(float(meta["started_at"]), UTC).isoformat(timespec="seconds"),
        tool=replace(tool, container=asked.container),
        server=server,
        load=Load(
            kind=kind_of(point),
            concurrency=point.concurrency,
            rate=point.rate,
            dataset=asked.dataset,
            dataset_sha=asked.dataset_sha,
            seed=asked.seed,
            requests=requests,
            input_len=asked.input_len,
            output_len=asked.bench.output_len,
            ignore_eos=asked.ignore_eos,
            temperature=0.0,
        ),
        run_index=int(meta["run"]),
        bench_run_id=run_id,
        window=found.window,
        duration_s=found.duration_s,
        counts=found.counts,
        throughput=found.throughput,
        latencies=found.latencies,
        speculation=found.speculation,
        gpu=found.gpu,
        client=found.client,
        slo=found.slo,
        guards=verdict.guards,
        valid=verdict.valid,
        suspicious=verdict.suspicious,
        **asked.place,
    )


def kind_of(point: LoadPoint) -> str:
    """Of a load: open where requests arrive at a rate."""
    return "open" if point.rate is not None else "closed"


def point_document(point: LoadPoint) -> dict[str, float | None]:
    """A load as the generator reads and writes it."""
    return {"concurrency": point.concurrency} if point.rate is None else {"rate": point.rate}


def point_of(document: Mapping[str, Any]) -> LoadPoint:
    """A load as the generator writes it."""
    if "concurrency" in document:
        return LoadPoint(concurrency=int(document["concurrency"]))
    return LoadPoint(rate=float(document["rate"]))


def server_of(asked: Asked, file: Mapping[str, Any]) -> tuple[MeasuredServer, ServerChecks, int | None]:
    """The server as it resolved its arguments, what the guards ask of it, and how many GPUs it uses."""
    info = (file.get("first") or {}).get("server_info") or {}
    args = arguments(info)
    environment = file.get("env")
    env = {str(name): str(value) for name, value in (environment or {}).items()}
    known = asked.server.env if environment is None else {**asked.server.env, **env}
    version = file.get("version")
    server = replace(
        asked.server,
        args=args,
        args_sha=args_sha(args),
        env=dict(known),
        model=asked.server.model or info.get("model_path"),
        version=str(version) if version else asked.server.version,
        spec=speculation(info),
    )
    sglang = file.get("kind") == "sglang"
    differing = _differences(asked.server, file, info) if asked.from_profile and sglang else None
    checks = ServerChecks(
        differences=differing,
        version_meant=asked.version_meant,
        version=server.version,
        env=known if environment is not None or known else None,
        no_graphs=_no_graphs(info),
    )
    return server, checks, _gpus(asked, info)


def _differences(server: MeasuredServer, file: Mapping[str, Any], info: Mapping[str, Any]) -> tuple[Difference, ...]:
    """Of a server, or of each member of a group that says what it is, under its name."""
    said = {part["name"]: part["server_info"] for part in (file.get("first") or {}).get("members") or ()}
    if not said:
        return differences(asked_flags(server.argv), info)
    return tuple(
        replace(found, flag=f"{member.name}: {found.flag}")
        for member in server.members
        if member.name in said
        for found in differences(asked_flags(member.argv), said[member.name])
    )


def _gpus(asked: Asked, info: Mapping[str, Any]) -> int | None:
    if info.get("device") == "cpu":
        return None
    if asked.gpus:
        return asked.gpus

    def size(name: str) -> int:
        value = info.get(name)
        return value if isinstance(value, int) and value > 0 else 1

    if "tp_size" not in info:
        return None
    return size("tp_size") * size("pp_size") * (1 if info.get("enable_dp_attention") else size("dp_size"))


def _no_graphs(info: Mapping[str, Any]) -> str | None:
    if info.get("device") == "cpu":
        return "a server on a CPU has no CUDA graphs"
    decode = (info.get("cuda_graph_config") or {}).get("decode") or {}
    off = (info.get("disable_cuda_graph"), info.get("disable_decode_cuda_graph"))
    if True in off or "disabled" in (decode.get("backend"), info.get("cuda_graph_backend_decode")):
        return "CUDA graphs are switched off for this server"
    return None


def measurement_of(runs: Iterable[Run], server: str | None, url: str | None) -> Run | None:
    """The measurement of a server that is under way on a host.

    Args:
        runs: of the host where the server, or the member of a group that serves, runs.
        server: id of its run, of a group the group's.
        url: its address as that host reaches it.
    """
    for run in runs:
        if run.kind != "bench" or not run.active:
            continue
        try:
            measured = Asked.of(run.run_id, run.extra).server
        except EagletuiError:
            continue
        if (server and measured.run_id == server) or (url and measured.url == url):
            return run
    return None
