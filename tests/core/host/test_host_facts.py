"""What is asked once per host, with a stand-in for nvidia-smi (NVML's share is in test_gpu_sampler)."""

import getpass
import os
import shutil
import socket
import sys
from pathlib import Path

import pytest

from tui.core.host.host_facts import host_facts, read_facts
from tui.core.link.local import LocalTransport

TESTS = Path(__file__).parents[2]
NO_NVML = str(TESTS / "nvml" / "missing")


@pytest.fixture
async def host():
    """Makes hosts whose PATH begins with the stand-in."""
    opened = []

    def make(**variables: str) -> LocalTransport:
        env = {**os.environ, "PATH": f"{TESTS / 'bin'}:{os.environ['PATH']}", "PYTHONPATH": NO_NVML, **variables}
        opened.append(LocalTransport(env=env))
        return opened[-1]

    yield make
    for transport in opened:
        await transport.close()


async def test_all_by_nvidia_smi(host):
    facts = await host_facts(host(), sys.executable)
    assert facts.gpu_names == ("NVIDIA H200", "NVIDIA H200")
    assert facts.compute_capabilities == ("9.0", "9.0")
    assert facts.memory_total_mib == (143771, 143771)
    assert (facts.driver, facts.cuda) == ("580.95.05", "13.0")
    assert (facts.persistence_mode, facts.peer_access) == (True, True)
    assert facts.topology is not None
    assert "PHB" in facts.topology
    assert "\x1b" not in facts.topology
    assert (facts.home, facts.user) == (os.environ["HOME"], getpass.getuser())
    assert facts.hostname == socket.gethostname()
    assert facts.cpu_memory_total_mib is not None
    assert facts.cpu_memory_total_mib > 100
    assert (facts.python, facts.python_error) == (sys.executable, None)


async def test_old_driver_without_peer_access(host):
    facts = await host_facts(host(FAKE_SMI="old nopeer"), sys.executable)
    assert facts.gpu_names == ("NVIDIA H200", "NVIDIA H200")
    assert facts.compute_capabilities == ("", "")
    assert (facts.driver, facts.peer_access) == ("580.95.05", False)


@pytest.mark.parametrize("words", ["mismatch", "none"])
async def test_driver_in_trouble(host, words):
    facts = await host_facts(host(FAKE_SMI=words), sys.executable)
    assert (facts.gpu_names, facts.driver, facts.topology, facts.peer_access) == ((), None, None, None)
    assert facts.python == sys.executable


async def test_no_driver(host, tmp_path):
    for tool in ("sh", "sleep", "kill", "id", "uname"):
        (tmp_path / tool).symlink_to(shutil.which(tool) or tool)
    facts = await host_facts(host(PATH=str(tmp_path), HOME="/h"), sys.executable)
    assert (facts.gpu_names, facts.topology, facts.home) == ((), None, "/h")
    assert facts.python == sys.executable


async def test_versions_without_importing(host, tmp_path):
    for name, version in (("sglang", "0.5.20"), ("torch", "2.9.1+cu130")):
        info = tmp_path / f"{name}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        (tmp_path / f"{name}.py").write_text("raise SystemExit('imported')")
    facts = await host_facts(host(PYTHONPATH=f"{NO_NVML}:{tmp_path}"), sys.executable)
    assert (facts.sglang, facts.torch) == ("0.5.20", "2.9.1+cu130")


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (None, "was not found"),
        ("exit 3", "ended with status 3"),
        ("echo 'it: cannot run' >&2; exit 1", "it: cannot run"),
        ("""echo '{"python": "/usr/bin/python3", "version": "3.6.8"}'""", "Python 3.6.8; 3.8 or newer"),
    ],
)
async def test_python_in_trouble(host, tmp_path, body, why):
    python = tmp_path / "it's a python"
    if body:
        python.write_text(f"#!/bin/sh\n{body}\n")
        python.chmod(0o755)
    facts = await host_facts(host(), str(python))
    assert facts.python is None
    assert facts.python_error is not None
    assert why in facts.python_error
    assert facts.gpu_names  # the rest is there all the same


async def test_home_of_the_host(host, tmp_path):
    (tmp_path / "python").symlink_to(sys.executable)
    facts = await host_facts(host(HOME=str(tmp_path)), "~/python")
    assert facts.python_error is None


@pytest.mark.parametrize(
    "text", ["", "\n@@eagletui rows\n, , ,\n", "\n@@eagletui python\n[1]\n{\n\n@@eagletui status\n\n"]
)
def test_nonsense_is_no_facts(text):
    facts = read_facts(text, "python3")
    assert (facts.gpu_names, facts.python, facts.driver) == ((), None, None)
    assert facts.python_error
