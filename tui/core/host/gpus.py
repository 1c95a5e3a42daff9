"""GPUs of a host: the figures, what they mean (docs/gpus.md), and how the command line prints them.

A figure is declared once, as a field of `Gpu`: where nvidia-smi and NVML have it, its JSON key, its column. Readers,
queries, the document and the table are made from that. Where figures come from: `gpu_sampler` (a live host), `gpu_csv`
(CSV of nvidia-smi, saved or streamed), `saved` (every form that people paste), `host_facts` (what is asked once per host).
"""

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any

from tui.core.errors import EagletuiError, UsageError

MIB = 1 << 20
MEMORY_IDLE_MIB = 1500.0  # a context or a desktop may hold that much; a model never holds so little
PROCESS_PERIOD_S = 5.0  # how often drivers are asked for processes


@dataclass(frozen=True)
class Column:
    """A column of the table that the command line prints.

    Attributes:
        beside: the figure that is printed behind it in the same column.
        cell: how one value, or both, are written.
        scale: from our unit to the column's.
    """

    title: str
    beside: str | None = None
    cell: str = "{:.0f}"
    scale: float = 1.0


@dataclass(frozen=True)
class Figure:
    """What is known of one field of `Gpu`.

    Attributes:
        key: its name in JSON documents.
        smi: fields of `nvidia-smi --query-gpu`, in the order in which they are asked for until one is known.
        saved: further names that saved output may have for it.
        nvml: getters, the present one and what it was called before.
        args: of the getter, behind the handle.
        part: attribute or position of its result that is meant.
        scale: from NVML's unit to ours.
        whole: never a fraction.
        word: text, or a set of words; the readers know how to read it.
        vital: an error in its place says that the GPU itself is ill.
    """

    name: str
    key: str
    smi: tuple[str, ...] = ()
    saved: tuple[str, ...] = ()
    nvml: tuple[str, ...] = ()
    args: tuple[int, ...] = ()
    part: str | int | None = None
    scale: float = 1.0
    column: Column | None = None
    whole: bool = False
    word: bool = False
    vital: bool = True


def _figure(key: str, smi: str = "", nvml: str = "", *, default: object = None, **more: Any) -> Any:
    """A field of `Gpu`; names are separated by spaces."""
    figure = {"key": key, "smi": tuple(smi.split()), "nvml": tuple(nvml.split()), **more}
    return field(default=default, metadata={"figure": figure})


@dataclass(frozen=True)
class GpuProcess:
    """A process that holds memory of a GPU."""

    pid: int  # as the driver reports it; shown, never signalled
    user: str | None
    name: str | None  # program, never its arguments: they may hold secrets
    memory_used_mib: float | None


@dataclass(frozen=True)
class Gpu:
    """One GPU, or one MIG instance, at one moment; None is "not reported", never 0."""

    # Of the parent for a MIG instance.
    index: int | None = _figure("index", "index", whole=True)
    uuid: str | None = _figure("uuid", "uuid gpu_uuid", "nvmlDeviceGetUUID", word=True)
    name: str | None = _figure("name", "name gpu_name", "nvmlDeviceGetName", word=True)
    bus_id: str | None = _figure("bus_id", "pci.bus_id gpu_bus_id", "nvmlDeviceGetPciInfo", part="busId", word=True)
    # Allocated + reserved; read from a file: memory.used as it stands there. NVML tells the three in one call.
    memory_used_mib: float | None = _figure(
        "mem_used_mib", "memory.used", column=Column("memory GiB", "memory_total_mib", "{:.1f}", 1 / 1024)
    )
    memory_total_mib: float | None = _figure("mem_total_mib", "memory.total")
    # By driver and firmware; part of memory_used_mib.
    memory_reserved_mib: float | None = _figure("mem_reserved_mib", "memory.reserved")
    # A share, of tools that give no amounts (rocm-smi's overview).
    memory_used_pct: float | None = _figure("mem_used_pct")
    utilization_pct: float | None = _figure(
        "util_pct",
        "utilization.gpu",
        "nvmlDeviceGetUtilizationRates",
        part="gpu",
        column=Column("util", cell="{:.0f} %"),
    )
    power_w: float | None = _figure(
        "power_w",
        "power.draw",
        "nvmlDeviceGetPowerUsage",
        scale=1e-3,
        saved=("power.draw.average", "power.draw.instant"),
        column=Column("power W", "power_limit_w"),
    )
    power_limit_w: float | None = _figure(
        "power_limit_w", "enforced.power.limit power.limit", "nvmlDeviceGetEnforcedPowerLimit", scale=1e-3
    )
    temperature_c: float | None = _figure(
        "temp_c", "temperature.gpu", "nvmlDeviceGetTemperature", args=(0,), column=Column("temp", cell="{:.0f} °C")
    )
    sm_clock_mhz: float | None = _figure(
        "sm_clock_mhz", "clocks.sm clocks.current.sm", "nvmlDeviceGetClockInfo", args=(1,), column=Column("SM MHz")
    )
    memory_clock_mhz: float | None = _figure(
        "mem_clock_mhz", "clocks.mem clocks.current.memory", "nvmlDeviceGetClockInfo", args=(2,)
    )
    # () = none active, None = not reported.
    throttle_reasons: tuple[str, ...] | None = _figure(
        "throttle_reasons",
        "clocks_event_reasons.active clocks_throttle_reasons.active",
        "nvmlDeviceGetCurrentClocksEventReasons nvmlDeviceGetCurrentClocksThrottleReasons",
        word=True,
    )
    pcie_link_gen: int | None = _figure(
        "pcie_gen",
        "pcie.link.gen.gpucurrent pcie.link.gen.current",
        "nvmlDeviceGetCurrPcieLinkGeneration",
        column=Column("PCIe", "pcie_link_width", "gen{} x{}"),
        whole=True,
    )
    pcie_link_width: int | None = _figure(
        "pcie_width", "pcie.link.width.current", "nvmlDeviceGetCurrPcieLinkWidth", whole=True
    )
    # Over 20 ms; only NVML gives traffic, in a thread of its own.
    pcie_rx_mib_s: float | None = _figure("pcie_rx_mib_s", column=Column("rx/tx MiB/s", "pcie_tx_mib_s"))
    pcie_tx_mib_s: float | None = _figure("pcie_tx_mib_s")
    mig_mode: bool | None = _figure("mig", "mig.mode.current", "nvmlDeviceGetMigMode", part=0, word=True)
    parent_uuid: str | None = _figure("parent_uuid", word=True)  # of a MIG instance
    # Memory figures are the host's, the GPU has none of its own.
    unified_memory: bool = _figure("unified_memory", default=False, word=True)
    # Memory errors since the driver was loaded; of saved output alone. Corrected ones are no illness.
    ecc_uncorrected: int | None = _figure(
        "ecc_uncorrected", saved=("ecc.errors.uncorrected.volatile.total",), whole=True, vital=False
    )
    ecc_corrected: int | None = _figure(
        "ecc_corrected", saved=("ecc.errors.corrected.volatile.total",), whole=True, vital=False
    )
    health: str | None = _figure("health", word=True)  # docs/gpus.md#health; None = nothing wrong seen
    processes: tuple[GpuProcess, ...] | None = _figure("processes", word=True)

    @property
    def is_instance(self) -> bool:
        """Whether it is a part of a divided GPU, which a file may name without its parent."""
        return self.parent_uuid is not None or bool(self.mig_mode and (self.name or "").startswith(("MIG ", "XCP ")))


FIGURES = tuple(Figure(each.name, **each.metadata["figure"]) for each in fields(Gpu))


@dataclass(frozen=True)
class GpuSample:
    """All GPUs of a host at one moment.

    `error` is one of driver_mismatch, no_devices, nvidia_smi_missing, bad_query, gpu_lost, device_handle, unreadable;
    then `gpus` is empty and `detail` holds the host's own (sanitised) words. `no_figures` is that of a file whose form has
    none: `detail` names it, and `instead` says what to run.
    """

    taken_at: float  # time.time() of the host's clock where it gives one
    gpus: tuple[Gpu, ...]
    source: str  # nvml, nvidia-smi, file
    error: str | None = None
    detail: str | None = None
    stalled_s: float | None = None  # the driver has not answered for so long; `gpus` is the last known
    kind: str | None = None  # of a file: the command that printed what was read
    also: tuple[str, ...] = ()  # of a file: what else it holds, which was not read
    instead: str | None = None


@dataclass(frozen=True)
class HostFacts:
    """What is asked once per host and cached: hardware, driver, topology, SGLang and torch."""

    gpu_names: tuple[str, ...] = ()
    compute_capabilities: tuple[str, ...] = ()  # "12.0", one per GPU; "" where it is not reported
    memory_total_mib: tuple[float | None, ...] = ()
    driver: str | None = None
    cuda: str | None = None
    persistence_mode: bool | None = None
    topology: str | None = None  # text of `nvidia-smi topo -m`, sanitised
    peer_access: bool | None = None
    python: str | None = None  # the interpreter that was asked
    python_error: str | None = None  # why it could not be asked, one line
    container: str | None = None  # docker:NAME, which has what is missing on the host: SGLang and torch, Python, GPUs
    sglang: str | None = None  # version
    torch: str | None = None
    home: str | None = None
    user: str | None = None
    hostname: str | None = None
    cpu_memory_total_mib: float | None = None


# Slug of a sample's error: what it means, what to do about it, and the words for a screen with less room.
ERRORS = {
    "driver_mismatch": (
        "the NVIDIA driver in the kernel and its libraries differ in version",
        "reboot the host, or unload and reload the nvidia kernel modules",
        "driver and library versions differ; the host needs a reboot or its modules reloaded",
    ),
    "no_devices": (
        "no NVIDIA GPU was found",
        "check `lspci | grep -i nvidia`, and that the container got --gpus",
        "the driver finds no GPU",
    ),
    "nvidia_smi_missing": (
        "nvidia-smi is not installed, and this Python cannot load NVML",
        "install the NVIDIA driver, or set python in the host's entry to one that has nvidia-ml-py",
        "no nvidia-smi and no NVML in the host's Python",
    ),
    "bad_query": (
        "nvidia-smi does not know a field or an option of the query",
        "remove that field from the query",
        "this driver does not know a column that was asked for",
    ),
    "gpu_lost": (
        "a GPU has fallen off the bus",
        "reboot the host; where it comes back, check `dmesg | grep Xid`, power and riser",
        "a GPU has fallen off the bus",
    ),
    "device_handle": (
        "the driver cannot open a GPU",
        "check `dmesg | grep -i -e xid -e nvrm`; a GPU reset or a reboot usually fixes it",
        "the driver cannot open a GPU",
    ),
    "no_figures": ("no GPU figures", "run `nvidia-smi` and save what it prints", "no GPU figures"),
    "unreadable": (
        "the GPU figures cannot be read",
        "run `nvidia-smi` on the host and see what it says",
        "the driver's answer could not be read",
    ),
}


def error_words(slug: str) -> str:
    """What the error of a sample means, within a sentence."""
    return ERRORS[slug][2] if slug in ERRORS else slug.replace("_", " ")


def sample_error(sample: GpuSample, where: str) -> EagletuiError | None:
    """The error of a sample as one line for a user, or None. `where` is a host or a file.

    Its exit code is 1, for a file without figures 2.
    """
    if sample.error is None:
        return None
    message, hint, _ = ERRORS.get(sample.error, ERRORS["unreadable"])
    words = f" ({sample.detail})" if sample.detail else ""
    kind = UsageError if sample.error == "no_figures" else EagletuiError
    return kind(f"{where}: {message}{words}", sample.instead or hint, slug=sample.error)


def gpus_json(sample: GpuSample, samples: int) -> dict[str, object]:
    """The document of `eagletui gpus --json`: `{"gpus": [...], "samples": n, "error": slug or null, "kind": ..., "also": []}`.

    Memory in MiB, power in W, temperature in °C, clocks in MHz, traffic in MiB/s; null = not reported. With an error,
    `message` and `hint` say it in words; while the driver is silent, `stalled_s` says for how long. `kind` is the command
    that printed what a file holds (null for a host), `also` names what else it holds, which was not read.
    """
    document: dict[str, object] = {
        "gpus": [_gpu_json(gpu) for gpu in sample.gpus],
        "samples": samples,
        "error": sample.error,
        "kind": sample.kind,
        "also": list(sample.also),
    }
    error = sample_error(sample, "gpus")
    if error:
        document |= {"message": error.message.removeprefix("gpus: "), "hint": str(error.hint) if error.hint else None}
    if sample.stalled_s is not None:
        document["stalled_s"] = sample.stalled_s
    return document


def _gpu_json(gpu: Gpu) -> dict[str, object]:
    document = {figure.key: getattr(gpu, figure.name) for figure in FIGURES}
    if gpu.throttle_reasons is not None:
        document["throttle_reasons"] = list(gpu.throttle_reasons)
    if gpu.processes is not None:
        document["processes"] = [
            {"pid": p.pid, "user": p.user, "name": p.name, "mem_used_mib": p.memory_used_mib} for p in gpu.processes
        ]
    return document


def gpu_table(sample: GpuSample) -> str:
    """A sample as aligned text for a terminal: one line a GPU, then one a process; "–" where nothing is reported."""
    columns: list[tuple[str, Callable[[Gpu], str]]] = [
        ("gpu", lambda gpu: f"{_or_dash(gpu.index)}/mig" if gpu.is_instance else _or_dash(gpu.index)),
        ("name", lambda gpu: gpu.name or "–"),
        *((figure.column.title, figure_cell(figure)) for figure in FIGURES if figure.column),
        ("state", _state),
    ]
    rows = [[title for title, _ in columns]] + [[cell(gpu) for _, cell in columns] for gpu in sample.gpus]
    widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
    left = (1, len(columns) - 1)  # words to the left, figures to the right
    lines = [
        "  ".join(
            cell.ljust(w) if i in left else cell.rjust(w) for i, (cell, w) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    ]
    for gpu in sample.gpus:
        for process in gpu.processes or ():
            memory = "–" if process.memory_used_mib is None else f"{process.memory_used_mib / 1024:.1f} GiB"
            lines.append(
                f"gpu {_or_dash(gpu.index)}: {process.user or '–'}  pid {process.pid}  {memory}  {process.name or '–'}"
            )
    if sample.also:
        lines.append(f"not read, but in it too: {', '.join(sample.also)}")
    if sample.stalled_s is not None:
        lines.append(f"the driver has not answered for {sample.stalled_s:.0f} s; these are the last known figures")
    return "\n".join(line.rstrip() for line in lines)


def _or_dash(value: object) -> str:
    return "–" if value is None else str(value)


def figure_cell(figure: Figure) -> Callable[[Gpu], str]:
    """Writes a figure that has a column, and what stands beside it."""
    column = figure.column
    assert column is not None

    def cell(gpu: Gpu) -> str:
        values = [getattr(gpu, name) for name in (figure.name, column.beside) if name]
        if all(value is None for value in values):
            return "–"
        if column.cell.count("{") == 2:
            return column.cell.format(*map(_or_dash, values))
        return " / ".join("–" if value is None else column.cell.format(value * column.scale) for value in values)

    return cell


def _state(gpu: Gpu) -> str:
    words = [gpu.health.replace("_", " ")] if gpu.health else []
    if gpu.ecc_uncorrected or gpu.ecc_corrected:
        words.append(
            f"ECC errors: {_or_dash(gpu.ecc_uncorrected)} uncorrected, {_or_dash(gpu.ecc_corrected)} corrected"
        )
    if gpu.memory_used_mib is None and gpu.memory_used_pct is not None:
        words.append(f"memory {gpu.memory_used_pct:.0f} %")
    if gpu.mig_mode and not gpu.is_instance:
        words.append("MIG on")
    if gpu.unified_memory:
        words.append("unified memory: the host's")
    known = bool(gpu.health) or gpu.throttle_reasons is not None
    return ", ".join([*words, *(gpu.throttle_reasons or ())]) or ("ok" if known else "–")
