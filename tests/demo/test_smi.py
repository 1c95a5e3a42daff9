"""The simulated nvidia-smi, and the GPUs behind it."""

import os
import subprocess
import time
from pathlib import Path
from typing import Any

from tui.core.host.gpu_csv import parse_smi
from tui.demo import gpus, place


def _smi(demo: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [str(demo / "bin" / "nvidia-smi"), *words],
        env=place.shell_env(demo, "0 0"),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_our_own_reader_understands_it(demo_place: Path) -> None:
    fields = "index,uuid,name,pci.bus_id,memory.used,memory.total,utilization.gpu,power.draw,enforced.power.limit,temperature.gpu"
    text = _smi(demo_place, f"--query-gpu={fields}", "--format=csv").stdout
    sample, _ = parse_smi(text)
    assert sample.error is None
    assert [gpu.index for gpu in sample.gpus] == list(range(8))
    assert {gpu.name for gpu in sample.gpus} == {gpus.NAME}
    assert {gpu.memory_total_mib for gpu in sample.gpus} == {97887.0}
    assert {gpu.power_limit_w for gpu in sample.gpus} == {600.0}
    assert len({gpu.uuid for gpu in sample.gpus}) == 8
    assert all(gpu.memory_used_mib is not None and gpu.memory_used_mib < 100 for gpu in sample.gpus)


def test_a_loop_is_one_process_that_goes_on(demo_place: Path) -> None:
    process = subprocess.Popen(
        [str(demo_place / "bin" / "nvidia-smi"), "--query-gpu=index", "--format=csv,noheader", "-lms", "20"],
        env=place.shell_env(demo_place, "0 0"),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        assert [process.stdout.readline().strip() for _ in range(24)] == [str(i) for i in range(8)] * 3
    finally:
        process.kill()
        process.wait(10)
        process.stdout.close()


def test_unknown_field_option_and_gpu(demo_place: Path) -> None:
    field = _smi(demo_place, "--query-gpu=index,colour", "--format=csv")
    assert (field.returncode, field.stdout.strip()) == (2, 'Field "colour" is not a valid field to query.')
    option = _smi(demo_place, "--paint")
    assert option.returncode == 2
    assert "Option --paint is not recognized." in option.stdout
    assert "No devices were found" in _smi(demo_place, "--query-gpu=index", "-i", "9").stdout


def test_topology_peers_list_and_table(demo_place: Path) -> None:
    matrix = _smi(demo_place, "topo", "-m").stdout.splitlines()
    assert matrix[1].split("\t")[:9] == ["GPU0", " X ", "NODE", "NODE", "NODE", "SYS", "SYS", "SYS", "SYS"]
    peers = _smi(demo_place, "topo", "-p2p", "r").stdout
    assert peers.splitlines()[1].split() == ["GPU0", "X", *["OK"] * 7]
    assert len(_smi(demo_place, "-L").stdout.splitlines()) == 8
    table = _smi(demo_place).stdout
    assert f"Driver Version: {gpus.DRIVER}" in table
    assert f"CUDA Version: {gpus.CUDA}" in table
    assert '"memory.used"' in _smi(demo_place, "--help-query-gpu").stdout


def test_figures_follow_the_load(launch: Any, demo_place: Path) -> None:
    server = launch([*launch.base, "--mem-fraction-static", "0.84"])
    server.wait_ready()
    apps = _smi(
        demo_place, "--query-compute-apps=gpu_uuid,pid,used_memory,process_name", "--format=csv,noheader,nounits"
    )
    rows = [line.split(", ") for line in apps.stdout.splitlines()]
    assert [row[0] for row in rows] == [gpus.uuid(i) for i in range(8)]
    assert {row[3] for row in rows} == {"sglang::scheduler"}
    for row in rows:
        assert gpus.process_start(int(row[1])) is not None
        assert os.path.exists(f"/proc/{row[1]}") or not os.path.exists("/proc/self")

    def wait(wanted: Any) -> list[gpus.GpuView]:
        end = time.monotonic() + 30
        while not wanted(views := gpus.read(demo_place / "root" / "gpu")):
            assert time.monotonic() < end, views
            time.sleep(0.05)
        return views

    idle = wait(lambda views: all(view.utilization_pct == 0 for view in views))
    body = {"text": "Go on", "stream": True, "sampling_params": {"max_new_tokens": 5000, "ignore_eos": True}}
    connection, response = server.open("POST", "/generate", body)
    response.readline()
    busy = wait(lambda views: all(view.utilization_pct > 85 for view in views))
    assert all(b.power_w > i.power_w + 50 for b, i in zip(busy, idle, strict=True))
    connection.close()
    wait(lambda views: all(view.utilization_pct == 0 for view in views))


def test_temperature_rises_and_falls_with_time() -> None:
    cold, warm = gpus._temperature(30.0, 1.0, 1.0), gpus._temperature(30.0, 1.0, 300.0)
    assert 30.0 < cold < 32.0 < 61.0 < warm <= gpus.LOADED_TEMP_C
    assert gpus._temperature(60.0, 0.0, 1000.0) < 31.0
