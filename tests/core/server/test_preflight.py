"""Pre-flight on this machine: real files, real sockets, real processes; only the GPUs are made up."""

import asyncio
import json
import os
import shutil
import socket
import sys
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from tui.core.config import HostEntry
from tui.core.errors import LinkLost, TimedOut
from tui.core.hints import Action, Hint
from tui.core.host.gpus import Gpu, GpuProcess, GpuSample, HostFacts
from tui.core.link.local import LocalTransport
from tui.core.link.transport import Completed
from tui.core.model.run import InContainer, PortHolder, Run, RunState
from tui.core.profiles.command import build_command
from tui.core.profiles.launch_profile import ContainerTable, LaunchProfile
from tui.core.server.finding import Finding, Level
from tui.core.server.preflight import look as look_there
from tui.core.server.preflight import preflight
from tui.core.sglang.flags import flags_of

FACTS = HostFacts(
    gpu_names=("NVIDIA RTX PRO 6000",) * 8,
    compute_capabilities=("12.0",) * 8,
    memory_total_mib=(97887.0,) * 8,
    driver="595.58.03",
    sglang="0.5.23",
    python="python3",
    user="alice",
)
RUN = Run(
    "kimi-20261004T201248Z-4f9c2a",
    "server",
    "kimi",
    "gpu1",
    RunState.RUNNING,
    pid=4242,
    started_at="2026-10-04T20:12:48Z",
)


def gpu(index: int, *processes: GpuProcess, used: float = 4.0, health: str | None = None) -> Gpu:
    return Gpu(
        index,
        f"GPU-{index}",
        "NVIDIA RTX PRO 6000",
        memory_used_mib=used,
        memory_total_mib=97887.0,
        processes=processes,
        health=health,
    )


def sample(*gpus: Gpu, count: int = 8) -> GpuSample:
    found = {one.index: one for one in gpus}
    return GpuSample(0.0, tuple(found.get(index) or gpu(index) for index in range(count)), "nvml")


@pytest.fixture
async def local() -> AsyncIterator[LocalTransport]:
    transport = LocalTransport()
    await transport.connect()
    yield transport
    await transport.close()


def write_model(path: Path, shards: int = 3, architecture: str = "LlamaForCausalLM") -> Path:
    path.mkdir(parents=True)
    names = [f"model-{number:05d}-of-{shards:05d}.safetensors" for number in range(1, shards + 1)]
    (path / "config.json").write_text(json.dumps({"architectures": [architecture]}, indent=2))
    index = {"metadata": {"total_size": 1}, "weight_map": {f"l.{i}.w": names[i % shards] for i in range(3 * shards)}}
    (path / "model.safetensors.index.json").write_text(json.dumps(index, indent=2))
    for name in names:
        with (path / name).open("wb") as file:
            file.truncate(2_000_000_000)  # sparse
    return path


@pytest.fixture
def model(tmp_path) -> Path:
    return write_model(tmp_path / "models" / "a model's")


def profile(model: Path | str, *, args: Mapping[str, object] | None = None, **changes) -> LaunchProfile:
    base = LaunchProfile("x", Path("x.toml"), args={"model-path": str(model), "tp": 8, **(args or {})})
    return replace(base, **changes)


async def look(
    transport,
    wanted: LaunchProfile,
    *,
    facts: HostFacts = FACTS,
    gpus: GpuSample | None = None,
    runs: tuple[Run, ...] = (),
    holder: PortHolder | None = None,
    flags: frozenset[str] | None = flags_of("0.5.23"),
    python: str = sys.executable,
) -> list[Finding]:
    async def nobody(_transport, _port):
        return holder

    entry = HostEntry("h", "h", python)
    command = build_command(wanted, entry, facts.sglang, flags)
    return list(
        await preflight(
            transport,
            wanted,
            command,
            facts=facts,
            sample=gpus or sample(),
            runs=runs,
            host_flags=flags,
            seen=await look_there(transport, wanted, command, nobody),
        )
    )


def text(findings: list[Finding], check: str, level: Level | None = None) -> str:
    found = [f.text for f in findings if f.check == check and level in (None, f.level)]
    assert found, f"nothing about {check} among {findings}"
    return found[0]


def blocks(findings: list[Finding]) -> list[str]:
    return [f"{f.check}: {f.text}" for f in findings if f.level is Level.BLOCK]


async def test_a_launch_that_is_fine(local, model, tmp_path):
    draft = write_model(tmp_path / "draft", 1, "LlamaForCausalLMEagle3")
    wanted = profile(
        model,
        args={
            "speculative-algorithm": "EAGLE3",
            "speculative-draft-model-path": str(draft),
            "max-running-requests": 64,
        },
        requires={"sglang": ">=0.5.10", "compute_capability": "<=12.0", "memory_gib": ">=90", "gpus": ">=8"},
        cwd=str(tmp_path),
    )
    found = await look(local, wanted)
    assert blocks(found) == []
    assert text(found, "gpus") == "all 8 are free (NVIDIA RTX PRO 6000, 95.6 GiB each)"
    assert text(found, "port") == "30000 is free"
    assert text(found, "model").startswith(f"{model}: config.json and 3 of 3 shards, 6.0 GB")
    assert text(found, "draft") == f"{draft}: LlamaForCausalLMEagle3"
    assert text(found, "python") == "python3 has sglang 0.5.23"
    assert text(found, "flags") == "all 7 known to 0.5.23"
    assert text(found, "requires") == "all 4 met"
    assert "free for logs" in text(found, "disk")


async def test_two_copies_of_a_model_are_told_from_two_models(local, model, tmp_path):
    async def files(path: Path) -> str | None:
        return next(finding.files for finding in await look(local, profile(path)) if finding.check == "model")

    copy = write_model(tmp_path / "elsewhere" / "copy")
    assert await files(copy) == await files(model) is not None
    config = copy / "config.json"
    config.write_text(config.read_text().replace("  ", " "))
    assert await files(copy) != await files(model)
    write_model(tmp_path / "other", 2)
    assert await files(tmp_path / "other") != await files(model)


@pytest.mark.parametrize(
    ("inside", "level", "says"),
    [
        ("/models/a model's", Level.OK, "config.json and 3 of 3 shards"),
        ("/models/none", Level.BLOCK, "is not there"),
        ("/other/m", Level.WARN, "/other/m is under no mount of the container"),
    ],
)
async def test_a_model_of_a_container_is_looked_for_where_its_mount_has_it(local, model, inside, level, says):
    box = ContainerTable("img:1", mounts=(f"{model.parent}:/models:ro",))
    found = await look(local, profile(inside, container=box))
    assert says in text(found, "model", level)


async def test_worst_first(local, tmp_path):
    found = await look(local, profile(tmp_path / "no", args={"cuda-graph-max-bs": 1}))
    levels = [finding.level for finding in found]
    assert levels == sorted(levels, key=[Level.BLOCK, Level.WARN, Level.OK].index)
    assert {Level.BLOCK, Level.WARN, Level.OK} == set(levels)


# GPUs ------------------------------------------------------------------------------------------------------------


async def test_gpus_held_by_our_run_through_its_child(local, model):
    """A scheduler process is a child of the run's main process: its ancestors say whose it is."""
    child = await asyncio.create_subprocess_exec("sleep", "600")
    run = replace(RUN, pid=os.getpid())
    try:
        held = [gpu(i, GpuProcess(child.pid, "alice", "python3", 80000.0), used=84000.0) for i in range(8)]
        found = await look(local, profile(model), gpus=sample(*held), runs=(run,))
    finally:
        child.kill()
        await child.wait()
    assert text(found, "gpus", Level.BLOCK) == "all 8 are held by run 4f9c2a (kimi, running since 20:12:48)"
    assert next(f.run for f in found if f.check == "gpus") == RUN.run_id


async def test_gpus_held_by_an_orphan_of_our_run(local, model):
    """After the main process is gone, the mark in the environment still says whose it is."""
    child = await asyncio.create_subprocess_exec("sleep", "600", env={"EAGLETUI_RUN": RUN.run_id})
    try:
        held = gpu(1, GpuProcess(child.pid, "alice", "python3", 80000.0), used=84000.0)
        found = await look(local, profile(model), gpus=sample(held), runs=(replace(RUN, pid=None),))
    finally:
        child.kill()
        await child.wait()
    assert text(found, "gpus", Level.BLOCK).startswith("GPU 1 is held by run 4f9c2a")


@pytest.mark.fault("U5", "another user's process on the GPUs", sees="whose it is", holds="never ended")
async def test_gpus_held_by_somebody_else(local, model):
    held = [gpu(i, GpuProcess(2**22 + i, "bob", "/usr/bin/python3", 61440.0), used=62000.0) for i in (2, 3)]
    found = await look(local, profile(model), gpus=sample(*held))
    assert text(found, "gpus", Level.BLOCK) == (
        f"GPU 2, 3 are held by bob (PID {2**22 + 2}, {2**22 + 3} python3, 120.0 GiB)"
    )
    assert all(finding.run is None for finding in found)


@pytest.mark.fault(
    "G9",
    "processes on a GPU that may not be seen",
    sees='"a process that this account cannot see"',
    holds="never taken for a process to be ended",
)
async def test_memory_in_use_by_nobody_visible(local, model):
    found = await look(local, profile(model), gpus=sample(gpu(0, used=40960.0)))
    assert text(found, "gpus", Level.BLOCK) == (
        "GPU 0 has 40.0 of 95.6 GiB in use by a process that this account cannot see"
    )


async def test_a_display_server_is_no_reason(local, model):
    found = await look(local, profile(model), gpus=sample(gpu(0, GpuProcess(77, "gdm", "Xorg", 120.0), used=300.0)))
    assert blocks(found) == []


async def test_only_the_gpus_that_are_used_count(local, model):
    held = gpu(7, GpuProcess(77, "bob", "python3", 61440.0), used=62000.0)
    assert blocks(await look(local, profile(model, args={"tp": 4}), gpus=sample(held))) == []
    found = await look(local, profile(model, args={"tp": 2}, gpus=(6, 7)), gpus=sample(held))
    assert text(found, "gpus", Level.BLOCK).startswith("GPU 7 is held by bob")
    by_uuid = profile(model, args={"tp": 1}, env={"CUDA_VISIBLE_DEVICES": "GPU-7"})
    assert text(await look(local, by_uuid, gpus=sample(held)), "gpus", Level.BLOCK).startswith("GPU 7")
    every_second = profile(model, args={"tp": 2, "base-gpu-id": 5, "gpu-id-step": 2})
    assert text(await look(local, every_second, gpus=sample(held)), "gpus", Level.BLOCK).startswith("GPU 7")
    based = profile(model, args={"tp": 1, "base-gpu-id": 7})
    assert text(await look(local, based, gpus=sample(held)), "gpus", Level.BLOCK).startswith("GPU 7")


@pytest.mark.parametrize(
    ("options", "host", "says"),
    [
        (("--network", "lab"), "0.0.0.0", "30000 is in a network of the container's own and not published: add -p 30000:30000"),
        (("-p", "31000:30000"), None, "the server listens on its container's own 127.0.0.1, which -p does not reach"),
        (("-p", "31000:30000"), "0.0.0.0", None),
        ((), None, None),
    ],
)  # fmt: skip
async def test_a_container_must_let_its_host_reach_the_server(local, options, host, says):
    wanted = profile("m", container=ContainerTable("img:1", options=options), args={"host": host} if host else {})
    found = [one for one in await look(local, wanted) if one.check == "port"]
    warnings = [one.text for one in found if one.level is Level.WARN]
    assert len(warnings) == (says is not None)
    assert says is None or warnings[0].startswith(says)


async def test_a_published_port_is_looked_at_and_is_that_of_the_run_which_publishes_it(local):
    wanted = profile("m", container=ContainerTable("img:1", options=("-p", "31000:30000")), args={"host": "0.0.0.0"})
    (free,) = [one for one in await look(local, wanted) if one.check == "port"]
    assert free.text == "31000 is free"
    box = InContainer("c" * 64, "docker", network="lab", published=((30000, 31000),))
    held = PortHolder(31000, 99, "root", "/usr/bin/docker-proxy", None)
    runs = (replace(RUN, port=31000, container=box),)
    (taken,) = [one for one in await look(local, wanted, runs=runs, holder=held) if one.check == "port"]
    assert (taken.level, taken.run) == (Level.BLOCK, RUN.run_id)


@pytest.mark.parametrize(
    ("args", "gpus", "words"),
    [
        ({"tp": 16}, None, "the flags ask for 16 GPUs, the host has 8"),
        ({"tp": 4, "pp": 4}, None, "ask for 16 GPUs"),
        ({"tp": 8, "dp": 2}, None, "ask for 16 GPUs"),
        ({"tp": 8}, (0, 1), "the flags ask for 8 GPUs, the profile names 2"),
        ({"tp": 1}, (9,), "GPU 9 is not there: this host has GPU 0 to 7"),
    ],
)
async def test_too_few_gpus(local, model, args, gpus, words):
    found = await look(local, profile(model, args=args, gpus=gpus))
    assert words in text(found, "gpus", Level.BLOCK)


async def test_ranks_that_share_gpus_are_not_counted_twice(local, model):
    for args in ({"dp": 8, "enable-dp-attention": True}, {"tp": 16, "nnodes": 2, "node-rank": 0}):
        assert blocks(await look(local, profile(model, args=args))) == []


async def test_a_sick_gpu_and_unreadable_gpus(local, model):
    found = await look(local, profile(model), gpus=sample(gpu(3, health="requires_reset")))
    assert text(found, "gpus", Level.BLOCK) == "GPU 3: requires reset"
    broken = GpuSample(0.0, (), "nvidia-smi", error="driver_mismatch")
    assert "driver and library versions differ" in text(
        await look(local, profile(model), gpus=broken), "gpus", Level.WARN
    )
    cpu = await look(local, profile(model, args={"tp": 1, "device": "cpu"}), gpus=broken)
    assert text(cpu, "gpus", Level.OK) == "device cpu: no GPU is needed"


# Port ------------------------------------------------------------------------------------------------------------


async def test_port_of_a_real_listener(local, model):
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        port = server.getsockname()[1]
        wanted = profile(model, args={"port": port})
        command = build_command(wanted, HostEntry("h", "h", sys.executable), "0.5.23", None)
        found = list(await preflight(local, wanted, command, facts=FACTS, sample=sample()))
    said = text(found, "port", Level.BLOCK)
    assert said.startswith(f"{port} is in use by PID {os.getpid()}")
    assert next(finding.hint for finding in found if finding.check == "port") == Hint(Action.SET, "port=N")


async def test_port_of_our_run(local, model):
    holder = PortHolder(30000, 4242, "alice", "python3", RUN.run_id)
    found = await look(local, profile(model), holder=holder, runs=(RUN,))
    assert text(found, "port", Level.BLOCK) == "30000 is in use by run 4f9c2a (kimi)"
    assert next(f.run for f in found if f.check == "port") == RUN.run_id


# Model and draft -------------------------------------------------------------------------------------------------


@pytest.mark.skipif(not shutil.which("fincore"), reason="needs fincore: apt-get install util-linux")
@pytest.mark.parametrize(("written", "warm"), [(True, True), (False, False)])
async def test_a_model_in_the_page_cache_is_told_from_one_on_disk(local, model, written, warm):
    for shard in model.glob("*.safetensors"):
        if written:
            shard.write_bytes(bytes(200_000))  # what was just written is in memory
    found = await look(local, profile(model))
    assert [finding.warm for finding in found if finding.check == "model"] == [warm]
    ending = "in the page cache" if warm else "to be read from disk"
    assert text(found, "model").endswith(ending)


async def test_missing_shards_are_counted_and_named(local, model):
    (model / "model-00002-of-00003.safetensors").unlink()
    (model / "model-00003-of-00003.safetensors").unlink()
    (model / "model-00003-of-00003.safetensors").symlink_to("/nowhere")
    assert text(await look(local, profile(model)), "model", Level.BLOCK) == (
        f"{model}: 2 of 3 shards are missing (model-00002-of-00003.safetensors, model-00003-of-00003.safetensors)"
    )


async def test_what_is_wrong_with_a_model_directory(local, model, tmp_path):
    assert text(await look(local, profile(tmp_path / "no")), "model", Level.BLOCK).endswith("/no is not there")
    bare = tmp_path / "bare"
    bare.mkdir()
    assert text(await look(local, profile(bare)), "model", Level.BLOCK) == f"{bare} has no config.json"
    (bare / "config.json").write_text("{}")
    assert "no weights" in text(await look(local, profile(bare)), "model", Level.BLOCK)
    dummy = await look(local, profile(bare, args={"load-format": "dummy"}))
    assert blocks(dummy) == []
    (bare / "model.safetensors").write_bytes(b"x" * 5000)
    assert text(await look(local, profile(bare)), "model", Level.OK).startswith(
        f"{bare}: config.json and 1 weight file, 5 kB"
    )
    gguf = tmp_path / "m.gguf"
    gguf.write_bytes(b"x" * 2_000_000)
    assert text(await look(local, profile(gguf)), "model", Level.OK) == f"{gguf}, 2.0 MB"


class Canned(LocalTransport):
    """A host that answers every script with these lines."""

    def __init__(self, answer: str) -> None:
        super().__init__()
        self.answer = answer

    async def run(self, script, **_):
        return Completed(0, f"{self.answer}end\n".encode(), b"")


async def test_closed_directories_and_files_block():
    closed = Canned("model\tclosed\n")
    assert text(await look(closed, profile("/m")), "model", Level.BLOCK) == "/m cannot be read by alice"
    shard = Canned(
        "model\tthere\nmodel.ls\t-rw------- 1 0 0 9 Nov 29 16:04 a.safetensors\nmodel.closed\ta.safetensors\n"
    )
    assert text(await look(shard, profile("/m")), "model", Level.BLOCK) == "/m: a.safetensors cannot be read by alice"


@pytest.mark.fault(
    "J11",
    "the host ends a user's processes at logout",
    sees="a warning before the launch",
    holds="said before anything is started",
)
async def test_a_host_that_ends_processes_at_logout():
    found = await look(Canned("user\talice\nkill_user\tyes\nlinger\tno\n"), profile("/m"))
    assert text(found, "rights", Level.WARN) == "this host stops your processes at logout: loginctl enable-linger alice"
    found = await look(Canned("user\talice\nkill_user\tyes\nlinger\tyes\n"), profile("/m"))
    assert not any(finding.check == "rights" for finding in found)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
async def test_what_may_not_be_read(local, model):
    (model / "model-00001-of-00003.safetensors").chmod(0)
    assert "cannot be read by alice" in text(await look(local, profile(model)), "model", Level.BLOCK)
    model.chmod(0)
    assert "cannot be read by alice" in text(await look(local, profile(model)), "model", Level.BLOCK)
    model.chmod(0o700)


async def test_a_tilde_is_not_expanded(local, own_home):
    found = await look(local, profile("~/models/x"))
    assert text(found, "model", Level.BLOCK) == (
        f"~/models/x: ~ is not expanded on the host, write {own_home}/models/x"
    )


async def test_relative_paths_are_those_of_cwd(local, model):
    assert blocks(await look(local, profile("./a model's", cwd=str(model.parent)))) == []
    assert text(await look(local, profile("./a model's")), "model", Level.BLOCK).endswith("is not there")


async def test_a_repository_of_hugging_face(local, tmp_path):
    hub = tmp_path / "hf" / "hub"
    wanted = profile("Qwen/Qwen3-0.6B", env={"HF_HOME": str(tmp_path / "hf")})
    found = await look(local, wanted)
    assert text(found, "model", Level.WARN).startswith(
        "Qwen/Qwen3-0.6B is not in the cache of Hugging Face: it will be downloaded ("
    )
    offline = replace(wanted, env={**wanted.env, "HF_HUB_OFFLINE": "1"})
    assert text(await look(local, offline), "model", Level.BLOCK).endswith("and HF_HUB_OFFLINE is set")
    repository = hub / "models--Qwen--Qwen3-0.6B"
    write_model(repository / "snapshots" / "abc", 2)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("abc")
    assert text(await look(local, wanted), "model", Level.OK).startswith(
        "Qwen/Qwen3-0.6B (cached): config.json and 2 of 2 shards, 4.0 GB"
    )


async def test_a_draft_that_is_none(local, model, tmp_path):
    args = {"speculative-algorithm": "EAGLE3", "speculative-num-steps": 3}
    found = await look(local, profile(model, args=args))
    assert text(found, "draft", Level.BLOCK) == "EAGLE3 needs speculative-draft-model-path"
    assert text(found, "concurrency") == "SGLang caps running requests at 48 with speculation"
    assert text(found, "flags", Level.WARN) == (
        "speculative-eagle-topk, speculative-num-draft-tokens is missing: SGLang wants all three of them or none"
    )
    args["speculative-draft-model-path"] = str(model)
    found = await look(local, profile(model, args=args))
    assert text(found, "draft", Level.WARN) == f"{model}: LlamaForCausalLM does not look like an EAGLE-3 draft"


# SGLang, requirements, the host ----------------------------------------------------------------------------------


async def test_python_and_sglang(local, model):
    found = await look(local, profile(model), python="/nowhere/python")
    assert "is not there" in text(found, "python", Level.BLOCK)
    none = replace(FACTS, sglang=None)
    assert "has no sglang" in text(await look(local, profile(model), facts=none, flags=None), "python", Level.BLOCK)
    failed = replace(none, python_error="No module named 'torch'")
    assert "No module named" in text(await look(local, profile(model), facts=failed, flags=None), "python")


async def test_flags(local, model):
    wanted = profile(model, args={"cuda-graph-max-bs": 128, "enable-ep-moe": True})
    found = await look(local, wanted)
    assert text(found, "flags", Level.BLOCK) == "--enable-ep-moe is unknown to SGLang 0.5.23"
    assert text(found, "flags", Level.WARN) == (
        "cuda-graph-max-bs is called --cuda-graph-max-bs-decode since SGLang 0.5.20"
    )
    assert "not checked" in text(await look(local, profile(model), flags=None), "flags", Level.WARN)


async def test_requirements_are_said_one_by_one(local, model):
    wanted = profile(
        model, requires={"sglang": ">=0.6", "compute_capability": "<12.0", "driver": ">=500", "torch": ">=2"}
    )
    said = [f"{f.level} {f.text}" for f in await look(local, wanted) if f.check == "requires"]
    assert said == [
        "block sglang >=0.6: this host has 0.5.23",
        "block compute_capability <12.0: this host has 12.0",
        "warn torch >=2: not known on this host",
    ]


async def test_directory_and_programs(local, model):
    wanted = profile(model, cwd="/no/such", wrapper=("no-such-program",))
    assert blocks(await look(local, wanted)) == [
        "cwd: /no/such is not there",
        "wrapper: no-such-program is not installed there",
    ]
    other = LaunchProfile("x", Path("x"), command=("no-such-server", "--port", "1"))
    assert blocks(await look(local, other)) == ["wrapper: no-such-server is not installed there"]


@pytest.fixture
def programs(tmp_path, monkeypatch):
    """Puts a program in front of the host's PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")

    def put(name: str, script: str) -> None:
        (folder / name).write_text(f"#!/bin/sh\n{script}\n")
        (folder / name).chmod(0o755)

    return put


@pytest.mark.parametrize(
    ("script", "level", "words"),
    [
        ("exit 0", Level.OK, "sudo works without a password"),
        ("echo 'sudo: a password is required' >&2; exit 1", Level.BLOCK, "a password is required"),
        ('[ "$2" = true ]', Level.BLOCK, "could not be stopped"),
    ],
)
@pytest.mark.fault(
    "E9",
    "a command needs sudo with a password",
    sees="that it cannot be launched so",
    holds="no password is sent to sudo",
)
async def test_sudo(model, programs, script, level, words):
    programs("sudo", script)
    transport = LocalTransport()
    await transport.connect()
    found = await look(transport, profile(model, wrapper=("sudo", "-n")))
    await transport.close()
    assert words in text(found, "rights", level)


@pytest.mark.parametrize(
    ("free_kib", "share", "level", "words"),
    [
        (300_000_000, 10, Level.OK, "307 GB free for logs"),
        (3_000_000, 50, Level.WARN, "3.1 GB free for logs: /data x is 50 % full"),
        (300_000_000, 95, Level.WARN, "95 % full"),
        (12, 100, Level.BLOCK, "/data x is full"),
    ],
)
@pytest.mark.fault(
    "F9",
    "the home is full, but not where runs are kept",
    sees="the place that is used",
    holds="only what is in the way blocks",
)
async def test_disk(model, programs, free_kib, share, level, words):
    programs("df", f"echo 'Filesystem'; echo '/dev/x 1000000000 500 {free_kib} {share}% /data x'")
    transport = LocalTransport()
    await transport.connect()
    found = await look(transport, profile(model))
    await transport.close()
    assert words in text(found, "disk", level)


DF = """for place; do :; done
case $place in /var/tmp) free=200000000 ;; /tmp) free=100000000 ;; *) place=/home free=300000000 ;; esac
case " $FULL " in *" $place "*) free=0 ;; esac
echo "/dev/x 1000000000 5 $free 1% $place"
"""


@pytest.mark.parametrize(
    ("full", "words"),
    [
        ("", "307 GB free for logs"),
        ("/home", "205 GB free for logs"),  # a launch puts its files elsewhere then
        ("/home /var/tmp", "102 GB free for logs"),
        ("/home /var/tmp /tmp", "/home is full"),
    ],
)
async def test_the_disk_that_a_launch_would_take_is_looked_at(model, programs, monkeypatch, full, words):
    for name in ("EAGLETUI_STATE", "EAGLETUI_HOME", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("FULL", full)
    programs("df", DF)
    transport = LocalTransport()
    await transport.connect()
    found = await look(transport, profile(model))
    await transport.close()
    assert words in text(found, "disk")


class Stuck(LocalTransport):
    """A host whose file system hangs, or whose link dies."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error

    async def run(self, script, **_):
        raise self.error


async def test_a_host_that_hangs_is_said_and_a_lost_link_is_raised(model):
    found = await look(Stuck(TimedOut("30 s", "wait")), profile(model))
    assert "a file system may hang" in text(found, "disk", Level.WARN)
    with pytest.raises(LinkLost):
        await look(Stuck(LinkLost("gone")), profile(model))


async def test_text_of_the_host_is_one_safe_line(local, tmp_path):
    odd = tmp_path / "a\x1b[31mb\nc"
    wanted = profile(odd)
    assert not any(c in f.text for f in await look(local, wanted) for c in "\x1b\n")
