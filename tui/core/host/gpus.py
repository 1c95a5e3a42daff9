"""GPUs of a host: the figures, what they mean (docs/gpus.md), and how the command line prints them.

Where they come from: `gpu_sampler` (a live host), `gpu_csv` (saved or streamed output of nvidia-smi), `host_facts`
(what is asked once per host).
"""

from dataclasses import dataclass

from tui.core.errors import EagletuiError

MIB = 1 << 20
MEMORY_IDLE_MIB = 1500.0  # a context or a desktop may hold that much; a model never holds so little


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

    index: int | None  # of the parent for a MIG instance
    uuid: str | None
    name: str | None
    bus_id: str | None = None
    memory_used_mib: float | None = None  # allocated + reserved; read from a file: memory.used as it stands there
    memory_total_mib: float | None = None
    utilization_pct: float | None = None
    power_w: float | None = None
    power_limit_w: float | None = None
    temperature_c: float | None = None
    sm_clock_mhz: float | None = None
    memory_clock_mhz: float | None = None
    throttle_reasons: tuple[str, ...] | None = None  # () = none active, None = not reported
    pcie_link_gen: int | None = None
    pcie_link_width: int | None = None
    pcie_rx_mib_s: float | None = None  # over 20 ms; only NVML gives traffic
    pcie_tx_mib_s: float | None = None
    mig_mode: bool | None = None
    parent_uuid: str | None = None  # of a MIG instance
    unified_memory: bool = False  # memory figures are the host's, the GPU has none of its own
    health: str | None = None  # requires_reset, lost, error; None = nothing wrong seen
    processes: tuple[GpuProcess, ...] | None = None
    memory_reserved_mib: float | None = None  # by driver and firmware; part of memory_used_mib


@dataclass(frozen=True)
class GpuSample:
    """All GPUs of a host at one moment.

    `error` is one of driver_mismatch, no_devices, nvidia_smi_missing, bad_query, gpu_lost, device_handle, unreadable;
    then `gpus` is empty and `detail` holds the host's own (sanitised) words.
    """

    taken_at: float  # time.time() of the host's clock where it gives one
    gpus: tuple[Gpu, ...]
    source: str  # nvml, nvidia-smi, file
    error: str | None = None
    detail: str | None = None
    stalled_s: float | None = None  # the driver has not answered for so long; `gpus` is the last known


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
    sglang: str | None = None  # version
    torch: str | None = None
    home: str | None = None
    user: str | None = None
    hostname: str | None = None
    cpu_memory_total_mib: float | None = None


# What a named error means, and how to mend it.
_ERRORS = {
    "driver_mismatch": (
        "the NVIDIA driver in the kernel and its libraries differ in version",
        "reboot the host, or unload and reload the nvidia kernel modules",
    ),
    "no_devices": ("no NVIDIA GPU was found", "check `lspci | grep -i nvidia`, and that the container got --gpus"),
    "nvidia_smi_missing": (
        "nvidia-smi is not installed, and this Python cannot load NVML",
        "install the NVIDIA driver, or set python in the host's entry to one that has nvidia-ml-py",
    ),
    "bad_query": ("nvidia-smi does not know a field or an option of the query", "remove that field from the query"),
    "gpu_lost": (
        "a GPU has fallen off the bus",
        "reboot the host; where it comes back, check `dmesg | grep Xid`, power and riser",
    ),
    "device_handle": (
        "the driver cannot open a GPU",
        "check `dmesg | grep -i -e xid -e nvrm`; a GPU reset or a reboot usually mends it",
    ),
    "unreadable": ("the GPU figures cannot be read", "run `nvidia-smi` on the host and see what it says"),
}


def sample_error(sample: GpuSample, where: str) -> EagletuiError | None:
    """The error of a sample as one line for a user (exit code 1), or None. `where` is a host or a file."""
    if sample.error is None:
        return None
    message, hint = _ERRORS.get(sample.error, _ERRORS["unreadable"])
    words = f" ({sample.detail})" if sample.detail else ""
    return EagletuiError(f"{where}: {message}{words}", hint, slug=sample.error)


def gpus_json(sample: GpuSample, samples: int) -> dict[str, object]:
    """The document of `eagletui gpus --json`: `{"gpus": [...], "samples": n, "error": slug or null}`.

    Memory in MiB, power in W, temperature in °C, clocks in MHz, traffic in MiB/s; null = not reported. With an error,
    `message` and `hint` say it in words; while the driver is silent, `stalled_s` says for how long.
    """
    document: dict[str, object] = {
        "gpus": [_gpu_json(gpu) for gpu in sample.gpus],
        "samples": samples,
        "error": sample.error,
    }
    error = sample_error(sample, "gpus")
    if error:
        document |= {"message": error.message.removeprefix("gpus: "), "hint": str(error.hint) if error.hint else None}
    if sample.stalled_s is not None:
        document["stalled_s"] = sample.stalled_s
    return document


def _gpu_json(gpu: Gpu) -> dict[str, object]:
    return {
        "index": gpu.index,
        "name": gpu.name,
        "uuid": gpu.uuid,
        "bus_id": gpu.bus_id,
        "mem_used_mib": gpu.memory_used_mib,
        "mem_total_mib": gpu.memory_total_mib,
        "mem_reserved_mib": gpu.memory_reserved_mib,
        "util_pct": gpu.utilization_pct,
        "power_w": gpu.power_w,
        "power_limit_w": gpu.power_limit_w,
        "temp_c": gpu.temperature_c,
        "health": gpu.health,
        "sm_clock_mhz": gpu.sm_clock_mhz,
        "mem_clock_mhz": gpu.memory_clock_mhz,
        "throttle_reasons": None if gpu.throttle_reasons is None else list(gpu.throttle_reasons),
        "pcie_gen": gpu.pcie_link_gen,
        "pcie_width": gpu.pcie_link_width,
        "pcie_rx_mib_s": gpu.pcie_rx_mib_s,
        "pcie_tx_mib_s": gpu.pcie_tx_mib_s,
        "mig": gpu.mig_mode,
        "parent_uuid": gpu.parent_uuid,
        "unified_memory": gpu.unified_memory,
        "processes": None
        if gpu.processes is None
        else [{"pid": p.pid, "user": p.user, "name": p.name, "mem_used_mib": p.memory_used_mib} for p in gpu.processes],
    }


def gpu_table(sample: GpuSample) -> str:
    """A sample as aligned text for a terminal: one line a GPU, then one a process; "–" where nothing is reported."""
    head = ["gpu", "name", "memory GiB", "util", "power W", "temp", "SM MHz", "PCIe", "rx/tx MiB/s", "state"]
    rows = [head] + [_table_row(gpu) for gpu in sample.gpus]
    widths = [max(len(row[i]) for row in rows) for i in range(len(head))]
    left = (1, len(head) - 1)  # words to the left, figures to the right
    lines = [
        "  ".join(
            cell.ljust(w) if i in left else cell.rjust(w) for i, (cell, w) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    ]
    for gpu in sample.gpus:
        where = "–" if gpu.index is None else str(gpu.index)
        for process in gpu.processes or ():
            memory = "–" if process.memory_used_mib is None else f"{process.memory_used_mib / 1024:.1f} GiB"
            lines.append(f"gpu {where}: {process.user or '–'}  pid {process.pid}  {memory}  {process.name or '–'}")
    if sample.stalled_s is not None:
        lines.append(f"the driver has not answered for {sample.stalled_s:.0f} s; these are the last known figures")
    return "\n".join(line.rstrip() for line in lines)


def _table_row(gpu: Gpu) -> list[str]:
    def whole(value: float | None, unit: str = "") -> str:
        return "–" if value is None else f"{value:.0f}{unit}"

    def gib(value: float | None) -> str:
        return "–" if value is None else f"{value / 1024:.1f}"

    link = "–"
    if gpu.pcie_link_gen is not None or gpu.pcie_link_width is not None:
        link = f"gen{whole(gpu.pcie_link_gen)} x{whole(gpu.pcie_link_width)}"
    state = [gpu.health] if gpu.health else []
    if gpu.mig_mode and not gpu.parent_uuid:
        state.append("MIG on")
    if gpu.unified_memory:
        state.append("unified memory: the host's")
    state += gpu.throttle_reasons or ()
    index = "–" if gpu.index is None else str(gpu.index)
    return [
        f"{index}/mig" if gpu.parent_uuid else index,
        gpu.name or "–",
        f"{gib(gpu.memory_used_mib)} / {gib(gpu.memory_total_mib)}",
        whole(gpu.utilization_pct, " %"),
        f"{whole(gpu.power_w)} / {whole(gpu.power_limit_w)}",
        whole(gpu.temperature_c, " °C"),
        whole(gpu.sm_clock_mhz),
        link,
        f"{whole(gpu.pcie_rx_mib_s)} / {whole(gpu.pcie_tx_mib_s)}",
        ", ".join(word.replace("_", " ") for word in state) or "ok",
    ]
