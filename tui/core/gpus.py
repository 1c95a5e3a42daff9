"""GPUs of a host: one long-lived sampler, no process started per tick."""

from dataclasses import dataclass


@dataclass(frozen=True)
class GpuProcess:
    """A process that holds memory of a GPU."""

    pid: int
    user: str | None
    name: str | None
    memory_used_mib: float | None


@dataclass(frozen=True)
class Gpu:
    """One GPU at one moment; None is "not reported", never 0."""

    index: int | None
    uuid: str | None
    name: str | None
    bus_id: str | None = None
    memory_used_mib: float | None = None
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
    pcie_rx_mib_s: float | None = None
    pcie_tx_mib_s: float | None = None
    mig_mode: bool | None = None
    parent_uuid: str | None = None  # of a MIG instance
    unified_memory: bool = False  # memory figures are the host's, the GPU has none of its own
    health: str | None = None  # requires_reset, lost, error; None = nothing wrong seen
    processes: tuple[GpuProcess, ...] | None = None


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
    compute_capabilities: tuple[str, ...] = ()  # "12.0", one per GPU
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
