"""Facts behind the panels: GPUs in depth, and a run's command and files."""

from typing import TYPE_CHECKING

from tui import format as fmt
from tui.panel.host_view import Board
from tui.panel.screens.plan_rows import flag_rows, gpus_text
from tui.panel.widgets.paint import join
from tui.panel.widgets.rows import AnyRow, facts_of

if TYPE_CHECKING:
    from tui.core.server.server_state import ServerState


def gpu_rows(board: Board) -> list[AnyRow]:
    """Clocks, PCIe link and traffic, throttling and processes of each GPU; then the topology."""
    if board.sample is None:
        return [[("not connected", "muted")]]
    rows: list[AnyRow] = []
    for gpu in board.sample.gpus:
        name = f"GPU {gpu.index}" if gpu.index is not None else "GPU"
        rows.append([(name, "strong!"), (f"  {gpu.name or ''}  {gpu.bus_id or ''}", "muted")])
        facts = []
        if gpu.sm_clock_mhz is not None:
            facts.append([("SM ", "muted"), (f"{fmt.whole(gpu.sm_clock_mhz)} MHz", "text")])
        if gpu.memory_clock_mhz is not None:
            facts.append([("memory ", "muted"), (f"{fmt.whole(gpu.memory_clock_mhz)} MHz", "text")])
        if gpu.pcie_link_gen is not None:
            facts.append([("PCIe ", "muted"), (f"{gpu.pcie_link_gen} × {fmt.whole(gpu.pcie_link_width)}", "text")])
        if gpu.pcie_rx_mib_s is not None:
            traffic = f"{fmt.whole(gpu.pcie_rx_mib_s)} in, {fmt.whole(gpu.pcie_tx_mib_s)} out MiB/s"
            facts.append([(traffic, "text")])
        if gpu.throttle_reasons:
            facts.append([("▲ ", "warn"), ("slowed by " + ", ".join(gpu.throttle_reasons), "text")])
        elif gpu.throttle_reasons is not None:
            facts.append([("not slowed", "muted")])
        if gpu.mig_mode:
            facts.append([("MIG", "text")])
        if facts:
            rows.append([("  ", "text"), *join(facts)])
        if gpu.processes is None:
            rows.append([("  processes are not reported", "muted")])
        for process in gpu.processes or ():
            rows.append(
                [("  PID ", "muted"), (str(process.pid), "text"), (f"  {process.user or '?'}  {process.name or ''}  ", "muted"),
                 (f"{fmt.gib(process.memory_used_mib)} GiB", "text")]
            )  # fmt: skip
    if board.facts is not None and board.facts.topology:
        rows += [[], [("Topology", "strong!")]]
        rows += [[(text, "text")] for text in board.facts.topology.splitlines()]
    return rows


def run_rows(board: Board, state: "ServerState") -> list[AnyRow]:
    """Id, PID, port, times, files and the command of the current run."""
    run = state.run
    changed = fmt.overrides_of(run.extra.get("sets"))
    pairs = [
        ("run", run.run_id),
        ("host", board.host),
        ("profile", run.profile or fmt.NONE),
        *((("with", ", ".join(changed)),) if changed else ()),
        ("state", f"{state.outcome}, phase {str(state.phase).replace('_', ' ')}"),
        ("PID", str(run.pid) if run.pid is not None else fmt.NONE),
        ("port", str(run.port) if run.port is not None else fmt.NONE),
        ("GPUs", gpus_text(run.gpus)),
        ("started", fmt.day_clock(run.started_at, board.utc_offset_s)),
    ]
    if run.ended_at:
        pairs.append(("ended", fmt.day_clock(run.ended_at, board.utc_offset_s)))
    if run.exit_code is not None:
        pairs.append(("exit code", str(run.exit_code)))
    if run.container is not None:
        box = run.container
        pairs.append(("container", f"{box}, {box.image or box.unasked or 'image not known'}"))
        if box.restarts:
            pairs.append(("restarts", f"{box.restarts} by its engine"))
    if run.log_path:
        pairs.append(("log", run.log_path))
    if run.directory:
        pairs.append(("files", run.directory))
    rows = facts_of(pairs)
    if run.argv:
        texts: list[str] = []
        for word in run.argv:
            if word.startswith("--") or not texts:
                texts.append(f"  {word}" if texts else word)
            else:
                texts[-1] += f" {word}"
        rows += [[], [("Command", "strong!")], *flag_rows(texts)]
    return rows
