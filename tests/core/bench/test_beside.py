"""A host without Python: facts, GPUs and measurements by what is in the container of a server. Real dockerd, real podman."""

import json
from contextlib import aclosing
from pathlib import Path

import pytest

from tests.support.engines import MOUNTS, PYTHON_IMAGE, add_python_image, docker_engine, without_python
from tests.support.run_lab import free_port, kill_all, request, until
from tui.core.bench import bench_run, target
from tui.core.bench.beside import beside
from tui.core.bench.driver import Program
from tui.core.config import HostEntry
from tui.core.errors import EagletuiError, Slug
from tui.core.host.gpus import HostFacts
from tui.core.link.local import LocalTransport
from tui.core.model.profile import BenchProfile, LoadPoint
from tui.core.model.result import Result
from tui.core.model.run import InContainer
from tui.core.runs import control
from tui.core.runs.containers import container_of
from tui.core.runs.request import InRunDir
from tui.core.server.image import sglang_of_image
from tui.core.server.session import HostSession

QUICK = BenchProfile("quick", (LoadPoint(concurrency=2),), output_len=20, duration_s=0.5, runs=1)
PACKAGE = """
import asyncio, json, os, sys
sys.path.insert(0, "/t")
import truth_server

def started(port, server):
    print("INFO:     Uvicorn running on http://127.0.0.1:%d (Press CTRL+C to quit)" % port, file=sys.stderr)
    print("The server is fired up and ready to roll!", file=sys.stderr, flush=True)

settings = {"port": int(sys.argv[sys.argv.index("--port") + 1]), "tokens": 12, "tick_ms": 4}
asyncio.run(truth_server.serve(settings, started))
"""
SMI = Path(__file__).parents[2] / "bin/nvidia-smi"  # as a program of the container


@pytest.fixture(scope="module")
def dockerd(tmp_path_factory):
    directory = tmp_path_factory.mktemp("docker")
    for daemon in docker_engine(directory):
        add_python_image(daemon.engine, directory)
        yield daemon


@pytest.fixture
def package(tmp_path):
    """Arguments that put a server into a container, which looks like SGLang's there and has its metadata."""
    root = tmp_path / "p"
    (root / "sglang").mkdir(parents=True)
    (root / "sglang/__init__.py").touch()
    (root / "sglang/launch_server.py").write_text(PACKAGE)
    for name, version in (("sglang", "0.5.23"), ("torch", "2.9.1")):
        (root / f"{name}-{version}.dist-info").mkdir()
        (root / f"{name}-{version}.dist-info/METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        )
    return ("-v", f"{root}:/p:ro", "-e", "PYTHONPATH=/p", *MOUNTS[-2:])


@pytest.fixture
async def bare(tmp_path, dockerd):
    """A session with this machine, which has no Python for us."""
    state = tmp_path / "state"
    env = {
        "PATH": without_python(tmp_path / "bin"),
        "HOME": str(tmp_path),
        "EAGLETUI_STATE": str(state),
        "DOCKER_HOST": f"unix://{dockerd.socket}",
    }
    session = HostSession(HostEntry("local", "local"), LocalTransport(env=env))
    yield session
    await session.close()
    kill_all(state)


def server_words(port):
    return (PYTHON_IMAGE, "python3", "-m", "sglang.launch_server", "--model-path", "m", "--port", str(port))


async def theirs(session, dockerd, package, *options):
    """A server that somebody else runs in a container with a network of its own."""
    port = free_port()
    dockerd.engine("run", "-d", "--name", "theirs", "--network", "none", *package, *options, *server_words(port))

    async def found():
        return next((run for run in await session.runs() if run.container and run.container.name == "theirs"), None)

    return await until(found, "the server in the table of processes")


@pytest.fixture
def cleared(dockerd):
    yield
    if names := dockerd.engine.names():
        dockerd.engine("rm", "-f", *names)


async def measured(session, run):
    started = await bench_run.start(session, QUICK, target.of_run(run))
    return started, [news async for news in bench_run.follow_run(session, started) if isinstance(news, Result)]


async def test_a_strangers_server_is_measured_from_its_own_network(bare, dockerd, package, cleared):
    run = await theirs(bare, dockerd, package)
    assert (await bare.facts()).python_error
    assert await bare.find_run("docker:theirs") == run
    started, (result,) = await measured(bare, run)
    assert result.tool.container == "docker:theirs"
    assert result.counts.errors == 0
    assert result.counts.output_tokens == result.counts.server_output_tokens == 12 * result.counts.ok
    assert result.server.version == "0.5.23"
    directory = Path(started.directory)
    assert json.loads((directory / "server.json").read_text())
    assert {path.stat().st_mode & 0o777 for path in directory.glob("c2-1.*")} == {0o644}
    await until(lambda: dockerd.engine.names() == ["theirs"], "the removal of what measured")


async def test_a_run_of_ours_is_measured_beside_its_container(bare, dockerd, package, cleared):
    port = free_port()
    argv = (*dockerd.engine.words, "run", "--network", "none", *package, *server_words(port))
    run = await control.launch(bare.transport, request(argv, port=port))
    await until(lambda: b"fired up" in Path(run.log_path).read_bytes(), "its start")
    run = await bare.find_run(run.run_id)
    assert run.container.own_network
    _, (result,) = await measured(bare, run)
    assert result.tool.container == f"docker:eagletui-{run.run_id}"
    assert result.counts.output_tokens == 12 * result.counts.ok
    await control.stop(bare.transport, run.run_id, 1)
    await until(lambda: dockerd.engine.names() == [], "the end of all containers")


def test_podman_gives_gpus_and_the_key_by_its_own_words():
    box = InContainer("c" * 64, "podman", image="img", call=("sudo", "-n", "podman"))
    program = Program(("python3", "-B", InRunDir("program/x"), InRunDir("bench.json")), {}, {"EAGLETUI_API_KEY": "k"})
    words = beside(program, box, HostFacts(gpu_names=("H200",)), "/runs/a/log").argv
    assert words[:6] == ("sudo", "-n", "podman", "run", "--network", f"container:{box.container_id}")
    assert container_of(words).image == "img"
    text = " ".join(word if isinstance(word, str) else f"{word.prefix}{word.name}" for word in words)
    assert "--device nvidia.com/gpu=all" in text
    assert "-e EAGLETUI_API_KEY " in text
    assert "readonly,target=/runs/a,source=/runs/a" in text
    assert text.endswith("sh python3 -B /eagletui/program/x /eagletui/bench.json")


async def test_what_the_host_lacks_is_the_containers(bare, dockerd, package, cleared):
    assert (await bare.facts()).sglang is None
    await theirs(bare, dockerd, package)
    facts = await bare.facts(refresh=True)
    assert (facts.container, facts.sglang, facts.torch) == ("docker:theirs", "0.5.23", "2.9.1")
    assert facts.python == "/usr/bin/python3"
    assert facts.python_error == "python3 was not found"


async def test_gpus_are_sampled_inside_where_the_host_has_no_way_to_them(bare, dockerd, package, cleared, tmp_path):
    assert (await bare.sample()).error == "nvidia_smi_missing"
    program = tmp_path / "nvidia-smi"
    program.write_text('#!/bin/sh\nexec python3 /smi.py "$@"\n')
    program.chmod(0o755)
    await theirs(bare, dockerd, package, "-v", f"{SMI}:/smi.py:ro", "-v", f"{program}:/bin/nvidia-smi:ro")
    sample = await bare.sample()
    assert (sample.error, sample.source) == (None, "nvidia-smi in docker:theirs")
    assert sample.gpus
    async with aclosing(bare.gpus(0.2)) as samples:
        async for sample in samples:
            assert sample.source == "nvidia-smi in docker:theirs"
            break


async def test_without_python_and_without_a_container_nothing_is_measured(bare):
    with pytest.raises(EagletuiError, match="the load generator needs Python") as refused:
        await bench_run.start(bare, QUICK, target.Target("http://127.0.0.1:1"))
    assert refused.value.slug == Slug.NO_PYTHON


async def test_the_image_itself_says_which_sglang_it_has(bare, dockerd, tmp_path, cleared):
    engine = dockerd.engine
    engine("create", "--name", "made", PYTHON_IMAGE, "sh")
    (tmp_path / "sglang-0.5.17.dist-info").mkdir()
    (tmp_path / "sglang-0.5.17.dist-info/METADATA").write_text("Metadata-Version: 2.1\nName: sglang\nVersion: 0.5.17\n")
    place = next(Path("/usr/lib").glob("python3.*/json")).parent
    engine("cp", str(tmp_path / "sglang-0.5.17.dist-info"), f"made:{place}/")
    engine("commit", "made", "lmsysorg/sglang:latest")
    engine("rm", "made")
    known = {}
    words = ("docker", "run", "lmsysorg/sglang:latest")
    assert await sglang_of_image(bare.transport, container_of(words), known) == "0.5.17"
    assert engine.names() == []
    assert list(known) == [engine("image", "inspect", "-f", "{{.Id}}", "lmsysorg/sglang:latest")]
    known.update(dict.fromkeys(known, "as known"))
    assert await sglang_of_image(bare.transport, container_of(words), known) == "as known"
    assert await sglang_of_image(bare.transport, container_of((*words[:2], "nobody/sglang:dev")), known) is None
    assert await sglang_of_image(bare.transport, container_of((*words[:2], "lmsysorg/sglang:v0.5.6")), {}) == "0.5.6"
