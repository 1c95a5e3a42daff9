"""The monitors measured beside eagletui: how each is started with eight GPUs, and what its full screen shows."""

import os
import subprocess
import sys
import venv
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).parent
NVIDIA_SMI = """#!/bin/sh
# eight GPUs for programs that start nvidia-smi; the figures move with the clock
t=$(date +%s)
for i in 0 1 2 3 4 5 6 7; do
    echo "$i, NVIDIA RTX PRO 6000 Blackwell, $(( (t * (i + 7)) % 100 )), $(( 80000 + (t * i) % 900 )), 97887, $(( 200 + (t * (i + 3)) % 300 )).00, $(( 50 + t % 20 ))"
done
"""


@dataclass(frozen=True)
class Program:
    name: str
    argv: list[str]
    full_screen: str  # regular expression: the first whole frame, figures included
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: str | None = None
    keys: bytes = b""  # pressed after the first frame
    note: str = ""


def prepare(directory: Path, sglang: str | None = None) -> list[Program]:
    """Installs each peer into an environment of its own under `directory` (kept for the next time)."""
    directory.mkdir(parents=True, exist_ok=True)
    for line in (HERE / "peers.txt").read_text().splitlines():
        if not line or line.startswith("#"):
            continue
        home = directory / line.split("==")[0]
        if not (home / "done").exists():
            venv.create(home, with_pip=True, clear=True)
            subprocess.run([home / "bin/python", "-m", "pip", "install", "-q", line], check=True)
            (home / "done").touch()
    library = directory / "nvml"
    library.mkdir(exist_ok=True)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library / "libnvidia-ml.so.1", HERE / "nvml_eight.c"], check=True)
    smi = directory / "smi"
    smi.mkdir(exist_ok=True)
    (smi / "nvidia-smi").write_text(NVIDIA_SMI)
    (smi / "nvidia-smi").chmod(0o755)
    project = directory / "vllmops-project"
    if not project.exists():
        project.mkdir()
        vllmops = directory / "vllmops/bin/vllmops"
        model = ["--name", "tiny", "--model", "x/tiny", "--gpus", "0,1,2,3,4,5,6,7", "--port", "31000"]
        for arguments in (["init"], ["create-model", *model]):
            subprocess.run([vllmops, *arguments], cwd=project, check=True, stdout=subprocess.DEVNULL)
    host, _, port = (sglang or "").rpartition(":")
    watch = ["--host", host, "--port", port] if sglang else ["--no-full-scan"]
    path = f"{smi}:{os.environ['PATH']}"
    base = {"HOME": str(directory), "LANG": "C.UTF-8"}
    return [
        Program(
            "nvitop",
            [str(directory / "nvitop/bin/nvitop"), "--interval", "1"],
            r"(?s)NVITOP.*600W.*Processes",
            {**base, "PATH": os.environ["PATH"], "LD_LIBRARY_PATH": str(library)},
            note="local NVML stand-in, interval 1 s",
        ),
        Program(
            "vllmops",
            [str(directory / "vllmops/bin/vllmops"), "tui"],
            r"tiny",
            {**base, "PATH": path},
            cwd=str(project),
            keys=b"\x1b[B\x1b[B",
            note="local nvidia-smi stand-in, its own periods (0.5 to 5 s), one model, selected and stopped",
        ),
        Program(
            "sgtop",
            [str(directory / "sgtop/bin/sgtop"), "--interval", "1", *watch],
            r"(?i)sgtop",
            {**base, "PATH": os.environ["PATH"]},
            note="one SGLang server, no GPU panel, interval 1 s" if sglang else "no server to watch, interval 1 s",
        ),
    ]


def eagletui() -> str:
    """The command installed beside this interpreter."""
    command = Path(sys.executable).parent / "eagletui"
    if not command.exists():
        raise SystemExit(f"no {command}: run the benchmark with the Python that eagletui is installed in")
    return str(command)
