"""Before a launch: each finding one line, so that nothing comes as a surprise ten minutes later.

`look` asks the host (`tui/remote/preflight.sh`), `preflight` puts that beside what else is known (facts, GPUs, runs)
and says what blocks, what to know and what is fine. What holds memory on the GPUs, if anything does, is asked last.
"""

import asyncio
import re
import shlex
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from shlex import quote

from tui.core.errors import TimedOut
from tui.core.hints import Action, Hint
from tui.core.host.gpus import Gpu, GpuProcess, GpuSample, HostFacts, error_words
from tui.core.link.programs import program
from tui.core.link.transport import Transport
from tui.core.model.conflict import in_use
from tui.core.model.run import PortHolder, Run
from tui.core.profiles.command import METRICS_NOTE, LaunchCommand, container_of
from tui.core.profiles.launch_profile import LaunchProfile
from tui.core.runs import leases
from tui.core.runs.docker_run import Container
from tui.core.runs.foreign import listener
from tui.core.server.finding import Finding, Findings, ordered
from tui.core.server.gpu_claim import GpuClaim, claimed_gpus
from tui.core.sglang.engine import SGLANG
from tui.core.sglang.flags import flag_table, normalise, unknown_flags, version_at_least, version_matches
from tui.core.text import one_line, read_json

_IDLE_MIB = 300.0  # what a display server or a driver keeps on a GPU is no reason to refuse a launch
_LOW_DISK_BYTES = 5_000_000_000
_FULL_DISK_BYTES = 100_000_000
_YES = ("1", "true", "yes", "on")

_HANGS = "the host takes too long to look at its files: a file system may hang"

Listener = Callable[[Transport, int], Awaitable[PortHolder | None]]


@dataclass(frozen=True)
class Seen:
    """What the host said of a profile."""

    facts: Mapping[str, list[str]] | None  # of `tui/remote/preflight.sh`, None where it took too long
    listener: PortHolder | None
    held: tuple[leases.Lease, ...] = ()  # GPUs of others, who have their GPUs between launches too


async def look(
    transport: Transport, profile: LaunchProfile, command: LaunchCommand, find_listener: Listener = listener
) -> Seen:
    """What the host has of that which a profile needs. Its versions and flags need not be known: the command may be built without.

    Raises:
        LinkLost, HostError: from the transport.
    """
    script = _script(profile, command)
    asked = _ask(transport, script), find_listener(transport, command.port), leases.on_host(transport)
    return Seen(*await asyncio.gather(*asked))


def _script(profile: LaunchProfile, command: LaunchCommand) -> str:
    flags = () if profile.command else ("model-path", "speculative-draft-model-path")
    container = container_of(profile)
    paths = [_path(profile, flag) for flag in flags]
    model, draft = ["" if path.startswith("~") else path for path in paths] or ("", "")
    wrapper = _wrapper(profile)
    values = {
        "PF_CWD": profile.cwd or "",
        "PF_ENGINE": shlex.join(container.engine) if container else "",
        "PF_IMAGE": container.image if container else "",
        "PF_WRAPPER": wrapper[0] if wrapper else "",
        "PF_PROGRAM": "" if wrapper else command.argv[0],
        "PF_MODEL": model,
        "PF_DRAFT": draft,
        "PF_REVISION": str(profile.arg("revision") or ""),
    }
    values |= {name: value for name, value in command.env.items() if name in ("HF_HOME", "HF_HUB_CACHE")}
    return "".join(f"{name}={quote(value)}\n" for name, value in values.items()) + program("preflight.sh")


def _path(profile: LaunchProfile, flag: str) -> str:
    """A path or a name of the profile, as the host knows it; "" where a container alone does."""
    value, container = profile.arg(flag), container_of(profile)
    if not isinstance(value, str) or container is None:
        return value if isinstance(value, str) else ""
    return container.on_host(value) or ""


def _wrapper(profile: LaunchProfile) -> tuple[str, ...]:
    container = container_of(profile)
    return profile.wrapper if container is None else container.engine


async def preflight(
    transport: Transport,
    profile: LaunchProfile,
    command: LaunchCommand,
    *,
    facts: HostFacts,
    sample: GpuSample | None,
    runs: Iterable[Run] = (),
    host_flags: frozenset[str] | None = None,
    seen: Seen | None = None,
) -> tuple[Finding, ...]:
    """Everything that can be known before a launch: what blocks first, then what to know, then what is fine.

    Args:
        command: what would run, from `build_command`.
        facts: of the host; the versions it names decide `[requires]`.
        sample: the GPUs now, None where they could not be read.
        runs: ours and foreign ones, to name who holds a GPU or the port.
        host_flags: flags of the host's SGLang, None = not known: they are then not checked.
        seen: of `look`; None: it looks now.

    Raises:
        LinkLost, HostError: from the transport.
    """
    if seen is None:
        seen = await look(transport, profile, command)
    here = _Look(profile, command, facts, sample, {run.run_id: run for run in runs}, seen.facts or {})
    if seen.facts is None:
        here.found.warn("disk", _HANGS)
    if pids := {process.pid for gpu in here.used_gpus for process in _held(gpu)}:
        script = f"PF_PIDS={quote(' '.join(map(str, pids)))}\n{program('ancestors.sh')}"
        here.seen = {**here.seen, **(await _ask(transport, script) or {})}
    here.gpus()
    for lease in (one for one in seen.held if one.meets(claimed_gpus(profile))):
        here.found.block("gpus", str(lease), hint=lease.hint)
    here.port(seen.listener)
    if not profile.command:
        here.model("model", "model-path")
        here.model("draft", "speculative-draft-model-path")
        here.python()
        here.flags(host_flags)
        here.speculation()
    here.requirements()
    here.place()
    here.disk()
    here.rights()
    return ordered(here.found)


async def _ask(transport: Transport, script: str) -> dict[str, list[str]] | None:
    """Values by key, in order; None where the host takes too long."""
    try:
        done = await transport.run(script, timeout_s=30.0)
    except TimedOut:
        return None
    found: dict[str, list[str]] = {}
    for line in done.stdout.decode("utf-8", "replace").split("\n"):
        key, tab, value = line.partition("\t")
        if tab:
            found.setdefault(key, []).append(value)
    return found


@dataclass
class _Look:
    """One pre-flight under way."""

    profile: LaunchProfile
    command: LaunchCommand
    facts: HostFacts
    sample: GpuSample | None
    runs: Mapping[str, Run]
    seen: Mapping[str, list[str]]  # what the host said: values by key, in order
    found: Findings = field(default_factory=Findings)

    # -- what was asked -----------------------------------------------------------------------------------------------

    def one(self, key: str) -> str | None:
        return self.seen.get(key, [None])[0]

    def all(self, key: str) -> list[str]:
        return self.seen.get(key, [])

    def path(self, flag: str) -> str:
        return _path(self.profile, flag)

    @cached_property
    def container(self) -> Container | None:
        return container_of(self.profile)

    @property
    def wrapper(self) -> tuple[str, ...]:
        return _wrapper(self.profile)

    @property
    def eagle3(self) -> bool:
        return str(self.profile.arg("speculative-algorithm")).upper() == "EAGLE3"

    # -- GPUs ---------------------------------------------------------------------------------------------------------

    @cached_property
    def claim(self) -> GpuClaim:
        return GpuClaim.of(self.profile, self.command.env)

    @cached_property
    def used_gpus(self) -> tuple[Gpu, ...]:
        """The GPUs that the server would use."""
        return self.claim.among(self.sample.gpus if self.sample else ())

    def gpus(self) -> None:
        device = self.profile.arg("device")
        if isinstance(device, str) and not device.startswith("cuda"):
            self.found.ok("gpus", f"device {device}: no GPU is needed")
            return
        if self.profile.gpus == ():
            return
        sample, visible, needed = self.sample, self.claim.visible, self.claim.count
        if sample is None or sample.error:
            why = error_words(sample.error) if sample and sample.error else "they could not be read"
            self.found.warn("gpus", f"it is not known who uses the GPUs: {why}")
            return
        if not sample.gpus:
            self.found.warn("gpus", "no NVIDIA GPU is seen on this host")
            return
        here = {name for gpu in sample.gpus for name in (str(gpu.index), gpu.uuid) if name}
        missing = [name for name in visible or () if name not in here]
        if missing:
            self.found.block("gpus", f"GPU {', '.join(missing)} is not there: this host has {_span(sample.gpus)}")
        count = len(visible) if visible is not None else len(sample.gpus)
        if needed > count:
            whose = "the profile names" if visible is not None else "the host has"
            self.found.block("gpus", f"the flags ask for {needed} GPUs, {whose} {count}")
        used = self.used_gpus
        for gpu in used:
            if gpu.health:
                self.found.block("gpus", f"GPU {gpu.index}: {gpu.health.replace('_', ' ')}")
        before = len(self.found)
        self._holders(used)
        if len(self.found) == before and not missing and used and not any(gpu.health for gpu in used):
            total = used[0].memory_total_mib
            size = f", {total / 1024:.1f} GiB each" if total else ""
            free = "is free" if len(used) == 1 else "are free"
            self.found.ok("gpus", f"{_which(used, used)} {free} ({used[0].name or 'name unknown'}{size})")

    def _holders(self, used: Sequence[Gpu]) -> None:
        """Who holds memory on the GPUs: our runs, other people, or nobody that this account can see."""
        marks = dict(mark.split(" ", 1) for mark in self.all("mark") if " " in mark)
        chains = {chain.split()[0]: chain.split() for chain in self.all("chain") if chain.strip()}
        pid_run = {str(run.pid): run_id for run_id, run in self.runs.items() if run.pid is not None}
        ours: dict[str, list[Gpu]] = {}
        others: dict[str, tuple[list[Gpu], list[GpuProcess]]] = {}
        for gpu in used:
            for process in _held(gpu):
                pid = str(process.pid)
                above = (pid_run[up] for up in chains.get(pid, [pid]) if up in pid_run)
                run_id = marks.get(pid) if marks.get(pid) in self.runs else next(above, None)
                if run_id is not None:
                    ours.setdefault(run_id, []).append(gpu)
                else:
                    held, processes = others.setdefault(process.user or "someone", ([], []))
                    held.append(gpu)
                    processes.append(process)
            used_mib = gpu.memory_used_mib or 0.0
            limit = max(1024.0, 0.03 * (gpu.memory_total_mib or 0.0))
            if not _held(gpu) and used_mib > limit and not gpu.unified_memory:
                total = f" of {gpu.memory_total_mib / 1024:.1f}" if gpu.memory_total_mib else ""
                self.found.block(
                    "gpus",
                    f"GPU {gpu.index} has {used_mib / 1024:.1f}{total} GiB in use by a process that this account cannot see",
                )
        for run_id, held in ours.items():
            run = self.runs[run_id]
            since = f" since {run.started_at[11:19]}" if run.started_at and len(run.started_at) >= 19 else ""
            self.found.block(
                "gpus",
                f"{_held_by(held, used)} run {run.short_id} ({run.profile or 'started by hand'}, {run.state}{since})",
                run_id,
            )
        for user, (held, processes) in others.items():
            pids = list(dict.fromkeys(process.pid for process in processes))
            names = sorted({process.name.rsplit("/", 1)[-1] for process in processes if process.name})
            memory = sum(process.memory_used_mib or 0.0 for process in processes)
            more = f" and {len(pids) - 3} more" if len(pids) > 3 else ""
            words = f"PID {', '.join(map(str, pids[:3]))}{more}" + (f" {', '.join(names[:2])}" if names else "")
            size = f", {memory / 1024:.1f} GiB" if memory else ""
            self.found.block("gpus", f"{_held_by(held, used)} {user} ({words}{size})")

    def port(self, holder: PortHolder | None) -> None:
        port = self.command.port
        self._reachable()
        # What a container publishes is held by its engine.
        run = self.runs.get(holder.run_id or "") or self._publisher() if holder is not None else None
        if holder is None:
            self.found.ok("port", f"{port} is free")
        elif run is not None:
            self.found.block("port", in_use(port, f"run {run.short_id} ({run.profile})"), run.run_id)
        else:
            self.found.block("port", in_use(port, holder), hint=Hint(Action.SET, "port=N"))

    def _publisher(self) -> Run | None:
        """The run of ours whose container publishes the port."""
        port, runs = self.command.port, self.runs.values()
        return next((r for r in runs if r.active and r.profile and r.container and r.container.publishes(port)), None)

    def _reachable(self) -> None:
        """Whether a server in a network of its own is reached from its host."""
        box = self.container
        if box is None or not box.own_network:
            return
        port = self.command.port
        if port not in dict(box.published).values():
            self.found.warn(
                "port", f"{port} is in a network of the container's own and not published: add -p {port}:{port}"
            )
        elif not self.profile.command and self.profile.arg("host") in (None, "127.0.0.1", "localhost"):
            self.found.warn(
                "port",
                "the server listens on its container's own 127.0.0.1, which -p does not reach: set host = '0.0.0.0'",
            )

    # -- model and draft ----------------------------------------------------------------------------------------------

    def model(self, key: str, flag: str) -> None:
        """The files of the model, or of the draft model, as the host has them."""
        path, written = self.path(flag), self.profile.arg(flag)
        if self.container is not None and not path and isinstance(written, str):
            if written.startswith("/"):
                self.found.warn(key, f"{written} is under no mount of the container: only the image can have it")
            return
        if not path:
            if key == "draft" and self.eagle3:
                self.found.block("draft", "EAGLE3 needs speculative-draft-model-path")
            return
        state = self.one(key)
        if path.startswith("~"):
            home = self.one("home") or self.facts.home
            whole = f"{home}{path[1:]}" if home and path.startswith("~/") else "the whole path"
            self.found.block(key, f"{path}: ~ is not expanded on the host, write {whole}")
        elif state == "missing":
            self.found.block(key, f"{path} is not there")
        elif state == "closed":
            self.found.block(key, f"{path} cannot be read by {self.facts.user or 'this account'}")
        elif state == "remote":
            self.found.ok(key, f"{path} is loaded from elsewhere: not checked")
        elif state == "file":
            self.found.ok(key, f"{path}, {_bytes(sum(_sizes(self.all(f'{key}.ls')).values()))}")
        elif state == "absent":
            self._absent(key, path)
        elif state in ("there", "cached"):
            self._directory(key, path)

    def _absent(self, key: str, path: str) -> None:
        for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"):
            if self.command.env.get(name, "").lower() in _YES:
                self.found.block(key, f"{path} is not in the cache of Hugging Face, and {name} is set")
                return
        free = _disk(self.one(f"{key}.disk"))
        room = f" ({_bytes(free[0])} free there)" if free else ""
        self.found.warn(key, f"{path} is not in the cache of Hugging Face: it will be downloaded{room}")

    def _directory(self, key: str, path: str) -> None:
        where = f"{path} (cached)" if self.one(key) == "cached" else path
        sizes = _sizes(self.all(f"{key}.ls"))
        closed = self.all(f"{key}.closed")
        if closed:
            self.found.block(key, f"{where}: {closed[0]} cannot be read by {self.facts.user or 'this account'}")
            return
        if "config.json" not in sizes and "params.json" not in sizes and not _weights(sizes, ".gguf"):
            self.found.block(key, f"{where} has no config.json")
            return
        needed = self.all(f"{key}.need")
        missing = [name for name in needed if not sizes.get(name)]
        weights = {name: sizes[name] for name in needed if name in sizes} if needed else _weights(sizes)
        if missing:
            named = ", ".join(missing[:2]) + (" …" if len(missing) > 2 else "")
            self.found.block(key, f"{where}: {len(missing)} of {len(needed)} shards are missing ({named})")
            return
        if not weights and self.profile.arg("load-format") != "dummy":
            self.found.block(key, f"{where} has config.json but no weights")
            return
        files = f"{sum(weights.values())} {self.one(f'{key}.sum')}"
        architecture = _architecture(self.one(f"{key}.config"))
        if key == "draft" and self.eagle3 and architecture and "eagle3" not in architecture.lower():
            self.found.warn(key, f"{where}: {architecture} does not look like an EAGLE-3 draft")
        elif key == "draft" and architecture:
            self.found.ok(key, f"{where}: {architecture}", files=files)
        else:
            count = f"{len(weights)} of {len(needed)} shards" if needed else f"{len(weights)} weight file"
            plural = "s" if not needed and len(weights) != 1 else ""
            warm = _warm(self.all(f"{key}.cache"))
            cache = "" if warm is None else ", in the page cache" if warm else ", to be read from disk"
            text = f"{where}: config.json and {count}{plural}, {_bytes(sum(weights.values()))}{cache}"
            self.found.ok(key, text, warm=warm, files=files)

    # -- SGLang -------------------------------------------------------------------------------------------------------

    def python(self) -> None:
        python = self.facts.python or self.command.argv[0]
        program = self.command.argv[0]
        if not self.wrapper and program.startswith("~"):
            self.found.block("python", f"{program}: write the whole path as python in the host's entry")
        elif not self.wrapper and self.one("program") == "missing":
            self.found.block("python", f"{program} is not there: name the right python in the host's entry")
        elif self.facts.sglang:
            self.found.ok("python", f"{python} has sglang {self.facts.sglang}")
        elif self.facts.python_error:
            self.found.block("python", f"{python}: {self.facts.python_error}")
        elif self.wrapper:
            what = self.container.image if self.container is not None else self.wrapper[0]
            self.found.warn("python", f"it is not known which sglang {what} starts")
        else:
            self.found.block("python", f"{python} has no sglang: name the right python in the host's entry")

    def flags(self, host_flags: frozenset[str] | None) -> None:
        argv = self.command.argv
        start = argv.index(SGLANG.launch_module) + 1 if SGLANG.launch_module in argv else 0
        names = [word.partition("=")[0] for word in argv[start:] if word.startswith("--")]
        names += [f"--{name}" for name in (*self.command.secret_args, *self.command.open_args)]
        unknown = unknown_flags(names, host_flags)
        for name in unknown:
            near = flag_table().suggest(name)
            hint = f": did you mean --{near}?" if near and near != normalise(name) else ""
            self.found.block("flags", f"{name} is unknown to SGLang {self.facts.sglang}{hint}")
        for note in self.command.notes:
            if note != METRICS_NOTE:
                self.found.warn("flags", note.removesuffix("; the profile is unchanged"))
        if host_flags is None:
            if self.facts.sglang:
                self.found.warn("flags", f"the flags of SGLang {self.facts.sglang} are not known: not checked")
        elif not unknown:
            self.found.ok("flags", f"all {len(names)} known to {self.facts.sglang}")
        if METRICS_NOTE in self.command.notes:
            self.found.ok("flags", METRICS_NOTE)

    def speculation(self) -> None:
        algorithm = self.profile.arg("speculative-algorithm")
        if not algorithm:
            return
        version = self.facts.sglang
        if self.profile.arg("max-running-requests") is None and (not version or version_at_least(version, "0.5.5")):
            self.found.warn("concurrency", "SGLang caps running requests at 48 with speculation")
        three = ("speculative-num-steps", "speculative-eagle-topk", "speculative-num-draft-tokens")
        given = [name for name in three if self.profile.arg(name) is not None]
        if str(algorithm).upper().startswith("EAGLE") and 0 < len(given) < 3:
            absent = ", ".join(name for name in three if name not in given)
            self.found.warn("flags", f"{absent} is missing: SGLang wants all three of them or none")

    def requirements(self) -> None:
        unmet = 0
        for name, condition in self.profile.requires.items():
            have = self._have(name)
            if not have:
                unmet += 1
                self.found.warn("requires", f"{name} {condition}: not known on this host")
                continue
            for value in have:
                if version_matches(value, condition) is not True:
                    unmet += 1
                    self.found.block("requires", f"{name} {condition}: this host has {value}")
                    break
        if self.profile.requires and not unmet:
            count = len(self.profile.requires)
            self.found.ok("requires", "met" if count == 1 else f"all {count} met")

    def _have(self, name: str) -> list[str]:
        """What the host has of a requirement: one value, or one a GPU; [] = not known."""
        facts = self.facts
        used = [gpu.index for gpu in self.used_gpus if gpu.index is not None]
        if name == "compute_capability":
            found = facts.compute_capabilities
            return [found[index] for index in used if index < len(found)] or list(found)
        if name == "memory_gib":
            memory = [gpu.memory_total_mib for gpu in self.used_gpus] or list(facts.memory_total_mib)
            return [f"{mib / 1024:.1f}" for mib in memory if mib is not None]
        if name == "gpus":
            count = len(self.sample.gpus) if self.sample and not self.sample.error else len(facts.gpu_names)
            return [str(count)] if count else []
        value = {"sglang": facts.sglang, "torch": facts.torch, "driver": facts.driver, "cuda": facts.cuda}.get(name)
        return [value] if value else []

    # -- the host -----------------------------------------------------------------------------------------------------

    def place(self) -> None:
        why = {"missing": "is not there", "closed": "cannot be entered"}.get(self.one("cwd") or "")
        if self.profile.cwd and why:
            self.found.block("cwd", f"{self.profile.cwd} {why}")
        if self.wrapper and self.one("wrapper") == "missing":
            self.found.block("wrapper", f"{self.wrapper[0]} is not installed there")
        elif self.container is not None:
            self._engine(self.container)
        if self.profile.command and not self.wrapper and self.one("program") == "missing":
            self.found.block("wrapper", f"{self.command.argv[0]} is not installed there")

    def _engine(self, container: Container) -> None:
        said = self.one("engine")
        if said and said != "yes":
            self.found.block("container", f"{container.program} does not answer: {said.removeprefix('no: ')}")
        elif self.one("image") == "absent":
            image = f"{container.image} is not on this host"
            self.found.warn("container", f"{image}: {container.program} pulls it before the server starts")
        elif said:
            self.found.ok("container", f"{container.program} has {container.image}")

    def disk(self) -> None:
        found = _disk(self.one("disk"))
        if found is None:
            return
        free, share, mount = found
        text = f"{_bytes(free)} free for logs"
        if free < _FULL_DISK_BYTES:
            self.found.block("disk", f"{mount} is full: {text}")
        elif free < _LOW_DISK_BYTES or share >= 90:
            self.found.warn("disk", f"{text}: {mount} is {share} % full")
        else:
            self.found.ok("disk", text)

    def rights(self) -> None:
        sudo = self.one("sudo")
        if sudo is not None and sudo != "yes":
            why = sudo.removeprefix("no: ") or "it asks for a password"
            self.found.block("rights", f"sudo needs a password here ({why}): eagletui never types one")
        elif sudo == "yes" and self.one("sudo_kill") == "no":
            self.found.block("rights", "sudo lets you start the server but not signal it: it could not be stopped")
        elif sudo == "yes" and "-n" not in self.wrapper:
            self.found.warn("rights", 'write wrapper = ["sudo", "-n", …], so that sudo never waits for a password')
        elif sudo == "yes":
            self.found.ok("rights", "sudo works without a password")
        ends = (self.one("kill_user") or "").lower() in _YES
        if ends and self.one("linger") == "no":
            user = self.one("user") or "USER"
            self.found.warn("rights", f"this host stops your processes at logout: loginctl enable-linger {user}")


def _held(gpu: Gpu) -> tuple[GpuProcess, ...]:
    """Processes that really hold memory of the GPU."""
    return tuple(p for p in gpu.processes or () if p.memory_used_mib is None or p.memory_used_mib >= _IDLE_MIB)


def _held_by(held: Sequence[Gpu], used: Sequence[Gpu]) -> str:
    verb = "is" if len({gpu.uuid or gpu.index for gpu in held}) == 1 else "are"
    return f"{_which(held, used)} {verb} held by"


def _which(held: Sequence[Gpu], used: Sequence[Gpu]) -> str:
    """ "all 8", "GPU 3", "GPU 0, 1"."""
    numbers = sorted({gpu.index for gpu in held if gpu.index is not None})
    if len(numbers) == len(used) and len(used) > 1:
        return f"all {len(used)}"
    return f"GPU {', '.join(map(str, numbers))}" if numbers else "a GPU"


def _span(gpus: Sequence[Gpu]) -> str:
    numbers = sorted(gpu.index for gpu in gpus if gpu.index is not None)
    if not numbers:
        return f"{len(gpus)} GPUs"
    return f"GPU {numbers[0]} to {numbers[-1]}" if len(numbers) > 1 else f"GPU {numbers[0]}"


def _sizes(listing: Iterable[str]) -> dict[str, int]:
    """Name -> bytes from `ls -lLn`: what a broken link points to has no size and is left out."""
    sizes = {}
    for line in listing:
        match = re.match(r"[-l]\S*\s+\d+\s+\d+\s+\d+\s+(\d+)\s+\w+\s+\d+\s+[\d:]+\s+(.*)$", line)
        if match:
            sizes[match.group(2).rsplit("/", 1)[-1]] = int(match.group(1))
    return sizes


def _weights(sizes: Mapping[str, int], *suffixes: str) -> dict[str, int]:
    endings = suffixes or (".safetensors", ".bin", ".pt", ".gguf")
    return {name: size for name, size in sizes.items() if name.endswith(endings) and size}


def _bytes(count: float) -> str:
    for unit, size in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6)):
        if count >= size:
            number = count / size
            return f"{number:.0f} {unit}" if number >= 100 else f"{number:.1f} {unit}"
    return f"{count / 1e3:.0f} kB"


def _warm(lines: Iterable[str]) -> bool | None:
    """Whether at least half of the looked-at weight files is in memory, from lines of `fincore -o RES,SIZE` (bytes)."""
    pairs = [line.split() for line in lines]
    numbers = [(int(pair[0]), int(pair[1])) for pair in pairs if len(pair) == 2 and all(map(str.isdigit, pair))]
    total = sum(size for _, size in numbers)
    return sum(resident for resident, _ in numbers) * 2 >= total if total else None


def _disk(line: str | None) -> tuple[float, int, str] | None:
    """(bytes free, per cent used, mount point) from a line of `df -Pk`."""
    match = re.search(r"\s(\d+)\s+(\d+)\s+(-?\d+)\s+(\d+)%\s+(/.*)$", line or "")
    if not match:
        return None
    return max(0, int(match.group(3))) * 1024.0, int(match.group(4)), match.group(5)


def _architecture(config: str | None) -> str | None:
    try:
        found = read_json(config or "")["architectures"][0]
    except (ValueError, KeyError, TypeError, IndexError):
        return None
    return one_line(str(found), 80)
