"""What a form's reader collects: GPUs with their cells by name, one sample after another; and which sample counts.

Each reader names cells as its tool does; `FIELDS` says which figure of ours each name is.
"""

import re
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tui.core.host.gpu_cells import Cells, in_mib, is_missing
from tui.core.host.gpus import Gpu, GpuProcess
from tui.core.text import one_line

# Our figures, then the names that tools have for each: the first that is not missing counts. A unit behind the colon is
# that of a figure without one. Names are keys of JSON and XML, labels of text and heads of columns, as `path_of` writes
# them; a point stands between a section and what is in it.
FIELDS: Mapping[str, Sequence[str]] = {
    field: names.split()
    for field, names in {
        "index": "index",
        "uuid": "uuid gpu_uuid",
        "name": "name product_name device_name card_series asic.market_name market_name board.product_name card_model",
        "bus_id": "bus_id bus.bdf bdf pci_bus",
        "memory_used_mib": "memory_used_mib fb_memory_usage.used shared_fb_memory_usage.used mem_usage.used_vram "
        "used_vram vram_used vram_total_used_memory_b:B gpu_memory_used_mib memory_used mem_used_mib dmon.fb",
        "memory_total_mib": "memory_total_mib fb_memory_usage.total shared_fb_memory_usage.total mem_usage.total_vram "
        "total_vram vram_total vram_total_memory_b:B memory_total mem_total_mib vram.size vram_size",
        "memory_reserved_mib": "fb_memory_usage.reserved shared_fb_memory_usage.reserved mem_reserved_mib",
        "memory_free_mib": "fb_memory_usage.free",
        "utilization_pct": "utilization_pct utilization.gpu utilization.gpu_util usage.gfx_activity gfx_activity gpu_use "
        "gpu_utilization utilization_gpu util_pct gpu_util gfx_util gfx dmon.sm",
        "power_w": "power_w gpu_power_readings.average_power_draw gpu_power_readings.power_draw power_readings.power_draw "
        "gpu_power_readings.instantaneous_power_draw gpu_power_readings.instant_power_draw power.socket_power "
        "power.current_socket_power power.average_socket_power socket_power average_graphics_package_power_w "
        "current_socket_graphics_package_power_w gpu_power_w power_draw dmon.pwr power",
        "power_limit_w": "power_limit_w gpu_power_readings.current_power_limit power_readings.enforced_power_limit "
        "power_readings.power_limit enforced_power_limit max_graphics_package_power_w limit.socket_power power.power_limit "
        "limit.max_power limit.power_limit limit.ppt0.socket_power_limit",
        "temperature_c": "temperature_c temperature.gpu_current_temp temperature.gpu_temp temperature.hotspot hotspot "
        "temperature.edge edge temperature_sensor_junction_c temperature_sensor_edge_c temperature_gpu "
        "gpu_core_temperature_celsius_degree gpu_core_temperature_c hotspot_temp gpu_temp gpu_t temp temp_c dmon.gtemp "
        "dmon.temp",
        "sm_clock_mhz": "sm_clock_mhz clocks.sm clocks.sm_clock clock.gfx_0.clk clock.gfx.clk gfx_0_clk gfx_clock gfx_clk "
        "sclk_clock_speed sclk_clock_level gpu_frequency_mhz gpu_clock dmon.pclk",
        "memory_clock_mhz": "memory_clock_mhz clocks.memory clocks.mem_clock clock.mem_0.clk mem_0_clk mem_clock mem_clk "
        "mclk_clock_speed mclk_clock_level mem_clock_mhz dmon.mclk",
        "pcie_link_gen": "pci.gpu_link_info.pcie_generation.current pci.pci_gpu_link_info.pcie_gen.current_link_gen "
        "pcie_gen",
        "pcie_link_width": "pci.gpu_link_info.link_width.current "
        "pci.pci_gpu_link_info.link_widths.current_link_width pcie.width pcie_width",
        "pcie_rx_mib_s": "pci.rx_throughput pci.rx_util dmon.rxpci pcie_rx_mib_s",
        "pcie_tx_mib_s": "pci.tx_throughput pci.tx_util dmon.txpci pcie_tx_mib_s",
        "mig_mode": "mig_mode mig_mode.current mig_mode.current_mig",
        "memory_used_pct": "memory_used_pct gpu_memory_allocated_vram",
        "ecc_uncorrected": "ecc_uncorrected ecc.total_uncorrectable_count double_ecc dmon.dbecc",
        "ecc_corrected": "ecc_corrected ecc.total_correctable_count single_ecc dmon.sbecc",
        "retirement_pending": "remapped_rows.pending remapped_rows.remapped_row_pending retired_pages.pending_page_blacklist "
        "retired_pages.pending_retirement retired_pages.pending_blacklist",
        "remap_failed": "remapped_rows.remapping_failure_occurred remapped_rows.remapped_row_failure",
        "reset_required": "gpu_reset_status.reset_required gpu_recovery_action",
    }.items()
}
KNOWN = {name.partition(":")[0] for names in FIELDS.values() for name in names}
_NEEDS_RESET = re.compile("reset", re.I)


@dataclass(frozen=True)
class Paste:
    """A text without what pasting did to it.

    Attributes:
        text: the whole of it.
        lines: those that are no longer than a line of a table is.
    """

    text: str
    lines: Sequence[str]


def path_of(label: str) -> str:
    """ "VRAM Total Memory (B)" -> "vram_total_memory_b": how `FIELDS` spells a label, a key or a head."""
    return re.sub("[^a-z0-9]+", "_", label[:100].lower()).strip("_")


@dataclass
class Seen:
    """A GPU, or an instance of one, as far as it was read.

    Attributes:
        values: cells by the names of `FIELDS`.
        instance: what a part of a divided GPU is called, "" for the GPU itself.
        throttle: the active reasons, None where nothing is said of them.
        processes: None where nothing is said of them.
        health: what the tool's own words say.
    """

    values: dict[str, str] = field(default_factory=dict)
    instance: str = ""
    throttle: list[str] | None = None
    processes: list[GpuProcess] | None = None
    health: str | None = None

    def add(self, listed: GpuProcess) -> None:
        """A process holds memory of it."""
        if self.processes is None:
            self.processes = []
        self.processes.append(listed)

    def gpu(self) -> Gpu:
        """The GPU that was read."""
        cells = Cells()
        for figure, names in FIELDS.items():
            for name in names:
                path, _, unit = name.partition(":")
                cell = self.values.get(path)
                if cell is None:
                    continue
                if figure == "reset_required" and _NEEDS_RESET.search(cell):
                    cell = "yes"
                if cells.add(figure, cell, unit or None) and not is_missing(cell):
                    break
        gpu = cells.gpu()
        if self.instance:
            gpu = replace(gpu, name=one_line(self.instance, 100), mig_mode=True)
        return replace(
            gpu,
            unified_memory=cells.memory_unsupported(gpu),
            throttle_reasons=gpu.throttle_reasons if self.throttle is None else tuple(self.throttle),
            processes=None if self.processes is None else tuple(self.processes),
            health=gpu.health or self.health,
        )


def process(pid: str, name: str, memory: str, user: str | None = None) -> GpuProcess | None:
    """A process as a tool prints it; its program without path and arguments, None for a line that names none."""
    if not re.fullmatch("[0-9]{1,10}", pid):
        return None
    name = "" if is_missing(name.strip()) else name.strip()
    if "\\" not in name:  # a path of Windows has spaces
        name = name.partition(" ")[0]
    name = re.split(r"[/\\]", name)[-1]
    return GpuProcess(int(pid), one_line(user or "", 40) or None, one_line(name, 80) or None, in_mib(memory.strip()))


class Frames:
    """The samples of a text, in its order; the last two are kept, for the last may be cut off."""

    def __init__(self) -> None:
        self.samples: deque[dict[tuple[str, str], Seen]] = deque(maxlen=2)
        self._count = 0
        self._begun = False
        self._closed = False

    def begin(self) -> None:
        """The next GPU begins a sample."""
        self._begun = False

    def close(self) -> Iterable[Seen]:
        """The GPUs of the sample have all been told: these, where that was not known before."""
        told = self.samples[-1].values() if self._begun and not self._closed else ()
        self._closed = True
        return told

    def get(self, key: str, instance: str = "") -> Seen | None:
        """A GPU of the sample that is being read."""
        return self.samples[-1].get((key, instance)) if self._begun else None

    def open(self, key: str, instance: str = "") -> Seen:
        """A GPU is named; one that comes again begins a sample."""
        if self.get(key, instance) is not None:
            self.begin()
        return self.at(key, instance)

    def at(self, key: str, instance: str = "") -> Seen:
        """A GPU of the sample that is being read, or that begins here."""
        if not self._begun:
            self.samples.append({})
            self._count += 1
            self._begun, self._closed = True, False
        return self.samples[-1].setdefault((key, instance), Seen(instance=instance))

    def put(self, key: str, path: str, value: str) -> None:
        """A cell that names its GPU; one that comes again begins a sample."""
        held = self.get(key)
        if held is not None and path in held.values:
            self.begin()
        self.at(key).values[path] = value

    def gpus(self) -> tuple[Gpu, ...]:
        """Those of the last whole sample; an instance stands behind its GPU."""
        if not self.samples:
            return ()
        last = self.samples[-2 if self._is_cut() else -1]
        order = {key: at for at, key in enumerate(dict.fromkeys(key for key, _ in last))}
        gpus = [(key, seen.gpu()) for key, seen in sorted(last.items(), key=lambda item: order[item[0][0]])]
        uuids = {key: gpu.uuid for (key, instance), gpu in gpus if not instance}
        return tuple(replace(gpu, parent_uuid=uuids.get(key)) if instance else gpu for (key, instance), gpu in gpus)

    def count(self) -> int:
        """How many samples there are, one that was cut off left out."""
        return self._count - self._is_cut()

    def _is_cut(self) -> bool:
        """Whether the text ends within its last sample."""
        if len(self.samples) < 2 or self._closed:
            return False
        before, last = self.samples
        if len(last) < len(before):
            return True
        key, seen = next(reversed(last.items()))
        return key in before and len(seen.values) < len(before[key].values)
