"""The exact command of a launch profile on a host, and how it is shown.

Values are never interpreted by a shell: what stands in a profile is what the program on the host gets.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from shlex import quote

from tui.core.config import HostEntry
from tui.core.masking.known import holds_known
from tui.core.profiles.checks import is_number
from tui.core.profiles.launch_profile import LaunchProfile
from tui.core.profiles.secrets import MASK, is_secret_arg, is_secret_env
from tui.core.runs.docker_run import Container, all_gpus_visible, compose, read_run, with_environment, without_ours
from tui.core.sglang.engine import SGLANG
from tui.core.sglang.flags import flag_table, map_args, takes_config

DEFAULT_PORT = 30000
METRICS_NOTE = (
    "--enable-metrics is added, so that token counts can be checked against the server's "
    "(enable-metrics = false leaves it out)"
)


_OTHER_CONTAINERS = frozenset({"apptainer", "singularity"})  # processes of the host, with a Python of their image


@dataclass(frozen=True)
class LaunchCommand:
    """What will really run on a host, after mapping flags to its SGLang version."""

    argv: tuple[str, ...]  # secrets are not in it
    env: Mapping[str, str]  # secrets are not in it
    port: int  # where its host reaches it: of a container's own network the published one
    cwd: str | None = None
    secret_env: Mapping[str, str] = field(default_factory=dict)  # names shown, values never
    secret_args: Mapping[str, str] = field(default_factory=dict)  # go into a 0600 file passed by --config
    open_args: Mapping[str, str] = field(default_factory=dict)  # secret flags that have no way but argv here
    notes: tuple[str, ...] = ()  # renamed flags and the like, one line each

    @property
    def open_words(self) -> tuple[str, ...]:
        """What the launcher puts behind `argv` for them; never shown, logged or stored."""
        return tuple(f"--{name}={value}" for name, value in self.open_args.items())


def flag_words(name: str, value: object) -> tuple[str, ...]:
    """A flag and its value as argument words: true is the bare flag, false and [] are left out, a table is JSON."""
    flag = f"--{name}"
    if value is True:
        return (flag,)
    if value is False or value == []:
        return ()
    if isinstance(value, list):
        return (flag, *(_word(item) for item in value))
    word = _word(value)
    if word.startswith("-") and not is_number(value):
        return (f"{flag}={word}",)  # argparse would take it for a flag
    return (flag, word)


def _word(value: object) -> str:
    if isinstance(value, dict | list):
        return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    if isinstance(value, bool):
        return str(value).lower()
    return str(value)


def build_command(
    profile: LaunchProfile,
    entry: HostEntry,
    sglang_version: str | None,
    host_flags: frozenset[str] | None,
    *,
    home: str | None = None,
) -> LaunchCommand:
    """The exact command on a host; of an unknown version (None), flags are passed as written.

    `host_flags` are that version's (`flags_of`, `learn_flags`), None = unknown. `home` is the user's on the host, for an
    interpreter written as `~/...`.
    """
    container = container_of(profile)
    server = _other_server(profile) if profile.command else _sglang(profile, entry, sglang_version, host_flags, home)
    env = {**server.env, **entry.env, **profile.env}
    if profile.gpus is not None and (container is None or all_gpus_visible(container)):
        env["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, profile.gpus))
        # CUDA's own order is by speed; the numbers of a profile are those of nvidia-smi.
        env.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    notes = list(server.notes)
    wrapper, given = _handed_over(profile.wrapper)
    env = {**given, **env}
    if container is not None:
        container, given = _from_options(container)
        env = {**env, **given}  # the line's own word holds
        container, left_out = without_ours(container)
        if left_out:
            notes.append(
                f"{', '.join(left_out)} of {container.program} run is left out: eagletui detaches, follows and removes"
            )
        wrapper = with_environment(container, env).words
    if any(map(holds_known, (*wrapper, *server.words))):
        notes.append("a secret in the command or its wrapper will be visible to everyone on the host; [env] hides it")
    argv, port, secrets = [*wrapper, *server.words], server.port, {}
    for name, value in server.args:
        canonical = flag_table().canonical(name)
        if is_secret_arg(name, value):
            secrets[canonical] = _word(value)
            continue
        if canonical == "port":
            port = int(str(value)) if str(value).isdigit() else None
        argv += flag_words(name, value)
    if port is None and not profile.command:
        argv += ["--port", str(DEFAULT_PORT)]
    argv += server.last
    if not server.takes_config:
        notes += [f"--{name} will be visible to everyone on the host in the list of processes" for name in secrets]
    hidden = {name: value for name, value in env.items() if is_secret_env(name, value)}
    port = DEFAULT_PORT if port is None else port
    return LaunchCommand(
        argv=tuple(argv),
        env={name: value for name, value in env.items() if name not in hidden},
        port=port if container is None else dict(container.published).get(port, port),
        cwd=profile.cwd,
        secret_env=hidden,
        secret_args=secrets if server.takes_config else {},
        open_args={} if server.takes_config else secrets,
        notes=tuple(notes),
    )


def _handed_over(wrapper: tuple[str, ...]) -> tuple[tuple[str, ...], dict[str, str]]:
    """A wrapper `env NAME=VALUE …` without its secrets, and these: as words anybody on the host could read them."""
    if not wrapper or PurePosixPath(wrapper[0]).name != "env":
        return wrapper, {}
    pairs = {word: word.partition("=") for word in wrapper[1:] if re.match(r"[A-Za-z_]\w*=", word)}
    secret = {word: (name, value) for word, (name, _, value) in pairs.items() if is_secret_env(name, value)}
    return tuple(word for word in wrapper if word not in secret), dict(secret.values())


def _from_options(container: Container) -> tuple[Container, dict[str, str]]:
    """The same of `-e NAME=VALUE` of a container's line; the names are passed on as those of `[env]` are."""
    secret = {}
    kept = []
    for option in container.options:
        name, equals, value = (option.value or "").partition("=")
        if option.name == "env" and equals and is_secret_env(name, value):
            secret[name] = value
        else:
            kept.append(option)
    return replace(container, options=tuple(kept)), secret


@dataclass(frozen=True)
class _Server:
    """What a server's program needs, before the profile's environment and wrapper are added."""

    words: Sequence[str]  # the program, up to its flags
    args: Sequence[tuple[str, object]]
    port: int | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    last: Sequence[str] = ()  # behind the flags
    takes_config: bool = False
    notes: Sequence[str] = ()


def _other_server(profile: LaunchProfile) -> _Server:
    """A command of the profile's own: flags keep their spelling."""
    args = [(name.strip().lstrip("-"), value) for name, value in profile.args.items() if value is not False]
    port = re.search(r"^--port[=\n](\d+)$", "\n".join(profile.command), re.MULTILINE)
    return _Server(profile.command, args, int(port[1]) if port else None)


def _sglang(
    profile: LaunchProfile, entry: HostEntry, version: str | None, host_flags: frozenset[str] | None, home: str | None
) -> _Server:
    """SGLang's server, with flags as the host's version takes them."""
    mapped = map_args(profile.args, version, host_flags)
    python = f"{home}/{entry.python[2:]}" if home and entry.python.startswith("~/") else entry.python
    box = container_of(profile) is not None
    inside = box or (profile.wrapper and PurePosixPath(profile.wrapper[0]).name in _OTHER_CONTAINERS)
    asked = any(flag_table().canonical(name) == "enable-metrics" for name in profile.args)
    metrics = not asked and (host_flags is None or "enable-metrics" in host_flags)
    return _Server(
        words=["python3" if inside else python, "-m", SGLANG.launch_module],
        args=mapped.args,
        env=mapped.env,
        last=["--enable-metrics"] if metrics else [],
        takes_config=takes_config(version, host_flags) and (box or not inside) and profile.arg("config") is None,
        notes=[*mapped.notes, *([METRICS_NOTE] if metrics else [])],
    )


def container_of(profile: LaunchProfile) -> Container | None:
    """The container that a profile's server runs in: of its `[container]`, or of a wrapper that is a `docker run`."""
    table = profile.container
    if table is None:
        return read_run(profile.wrapper)
    return compose(table.engine, table.image, table.options, table.mounts, profile.gpus, with_gpus=table.gpus)


def render_command(command: LaunchCommand, width: int = 100) -> str:
    """The command as text for display and for a shell: environment, program, flags; secrets masked, with a remark."""
    words = [f"{name}={quote(value)}" for name, value in command.env.items()]
    words += [f"{name}={MASK}" for name in command.secret_env]
    environment = " ".join(words) + (" (secret, handed over by file)" if command.secret_env else "")
    argv = command.argv
    flags = [index for index, word in enumerate(argv) if word.startswith("--") and index > 0]
    start = argv.index(SGLANG.launch_module) + 1 if SGLANG.launch_module in argv else min(flags, default=len(argv))
    groups: list[str] = []
    for word in argv[start:]:
        if word.startswith("--") or not groups:
            groups.append(quote(word))
        else:
            groups[-1] += f" {quote(word)}"
    rows = [" ".join(map(quote, argv[:start])), *groups[:1]]
    for group in groups[1:]:
        if len(rows[-1]) + len(group) + 3 > width:
            rows.append(group)
        else:
            rows[-1] += f" {group}"
    rows += [f"--{name} {MASK} (secret, handed over by file)" for name in command.secret_args]
    rows += [f"--{name} {MASK} (secret, visible in the list of processes)" for name in command.open_args]
    return (f"{environment} \\\n" if words else "") + " \\\n  ".join(rows)
