"""What stands in front of a server's call in posted commands: sudo, env, nohup, numactl, docker run and the like.

Programs that only take options of their own are data (`tui/data/wrappers.toml`); those that change the environment,
the directory or the machine are functions here.
"""

import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from importlib import resources
from pathlib import PurePosixPath
from typing import Any

from tui.core.profiles.importing.call import Call
from tui.core.profiles.importing.unresolved import Unresolved
from tui.core.runs.docker_run import Container, chosen_gpus, read_run, without_ours
from tui.core.text import one_line


def unwrapped(call: Call) -> Call | None:
    """The call without its outermost wrapper; None where it has none, or nothing is inside."""
    if take := _SPECIAL.get(call.program):
        return take(call)
    form = _forms().get(call.program)
    return None if form is None else _taken_off(call, form)


def changes_nothing(argv: Sequence[str]) -> bool:
    """Whether a command beside a server's call means nothing for the server."""
    name = PurePosixPath(argv[0]).name
    return name in _forms()["beside"]["programs"].split()


@cache
def _forms() -> dict[str, dict[str, Any]]:
    import tomli

    return tomli.loads(resources.files("tui.data").joinpath("wrappers.toml").read_text(encoding="utf-8"))


def _taken_off(call: Call, form: Mapping[str, Any]) -> Call | None:
    subcommands = form.get("subcommands", "").split()
    if subcommands and (len(call.argv) < 2 or call.argv[1] not in subcommands):
        return None
    options, at = _options(call.argv, 2 if subcommands else 1, form.get("valued", ""), form.get("long", ""))
    at += form.get("operands", 0)
    at -= call.argv[at - 1] == "-m"  # of Python, or as Python has it
    env = dict(call.env)
    for name, value in options if "env" in form else ():
        if name in form["env"].split():
            assigned = (part.partition("=") for part in value.split(form.get("between", "\0")))
            env |= {variable: text for variable, equals, text in assigned if equals}
    call = replace(call, env=env)
    words = one_line(" ".join(call.argv[:at]), 120)
    if subcommands:
        python = words.split()[0] not in ("nsys", "py-spy")
        advice = ": name that environment's python in the host's entry" if python else ""
        return call.without(at).warn(f"{words} was taken off{advice}")
    if at > 1 and not form.get("keep"):
        call = call.warn(f"{words} was taken off")
    kept = call.argv[:at] if form.get("keep") and not call.inside else ()
    kept = kept[:-1] if kept and kept[-1] == "--" else kept
    return call.without(at, wrapper=(*call.wrapper, *kept))


def _options(
    argv: Sequence[str], at: int, letters: str, names: str = "", *, valued: bool = True
) -> tuple[list[tuple[str, str]], int]:
    """(name, value) of the options from `at` on, and the index of the first operand.

    The letters and long names take a value, the others do not; or the other way round where not `valued`.
    """
    found, long = [], names.split()
    while at < len(argv) and argv[at].startswith("-") and argv[at] != "-":
        word = argv[at]
        at += 1
        if word == "--":
            break
        name, equals, value = word.partition("=")
        takes = not equals and (name.lstrip("-") in long) is valued
        if not word.startswith("--") and word[1:] not in long:
            index = next((index for index, letter in enumerate(word[1:], 1) if (letter in letters) is valued), None)
            if index is not None:
                name, value = f"-{word[index]}", word[index + 1 :].removeprefix("=")
            takes = index is not None and not value
        if takes:
            value = argv[at] if at < len(argv) else ""
            at += 1
        found.append((name, value))
    return found, at


def _with_assignments(call: Call, at: int) -> Call:
    """NAME=value words in front of the program, as sudo and env take them."""
    env = dict(call.env)
    while at < len(call.argv) and (match := re.match(r"([A-Za-z_]\w*)=", call.argv[at])):
        env[match[1]] = call.argv[at][match.end() :]
        at += 1
    return call.without(at, env=env)


def _sudo(call: Call) -> Call:
    at = _options(call.argv, 1, "ugpChrtTUDR", "user group prompt chdir host role type")[1]
    advice = 'sudo was taken off: where the server needs it, write wrapper = ["sudo", "-n"]'
    return _with_assignments(call, at).warn(advice)


def _env(call: Call) -> Call | None:
    argv = call.argv
    if len(argv) > 2 and argv[1] in ("-S", "--split-string"):
        try:
            argv = (argv[0], *shlex.split(argv[2]), *argv[3:])
        except ValueError:
            return None
        call = replace(call, argv=argv)
    options, at = _options(argv, 1, "uC", "unset chdir")
    env, cwd = dict(call.env), call.cwd
    for name, value in options:
        if name in ("-i", "--ignore-environment"):
            env.clear()
        elif name in ("-u", "--unset"):
            env.pop(value, None)
        elif name in ("-C", "--chdir"):
            cwd = value
    return _with_assignments(replace(call, env=env, cwd=cwd), at)


_DOCKER_SWITCHES = """detach disable-content-trust init interactive no-healthcheck oom-kill-disable privileged publish-all
quiet read-only rm sig-proxy tty replace tls-verify no-hosts command stdin it"""
_USUAL = frozenset([("network", "host"), ("net", "host"), ("ipc", "host")])  # what a profile's container has anyway
_DOCKER_QUIET = frozenset(["--rm", "-d", "--detach", "-i", "-t", "-it", "--interactive", "--tty", "--name", "--init"])


def _docker(call: Call) -> Call | None:
    """docker run, podman run, docker exec, kubectl run: the environment is the container's own."""
    argv = call.argv
    at = 1
    while at < len(argv) and argv[at] not in ("run", "exec", "create"):
        if argv[at] not in ("container", "compose") and not argv[at].startswith("-"):
            return None
        at += 2 if argv[at] in ("-H", "--host", "--context", "-c", "--config", "-f", "-n", "--namespace") else 1
    options, at = _options(argv, at + 1, "ditqPT", _DOCKER_SWITCHES, valued=False)
    if at >= len(argv):
        return None
    box = read_run(argv)  # None of an exec: what it runs in is there already
    env: dict[str, str] = {}
    cwd = None
    entry: list[str] = []
    taken = call
    left: list[str] = []
    for name, value in options:
        if name in ("-e", "--env"):
            variable, given, text = value.partition("=")
            if given or variable in call.env:
                env[variable] = text if given else call.env[variable]
            else:
                why = "comes from the caller's environment, which is not known here"
                taken = taken.leave(Unresolved(variable, variable, f"{why}: it is left out"))
        elif name == "--entrypoint":
            entry = [value] if value else []
        elif box is not None:
            continue  # in its table
        elif name in ("-w", "--workdir"):
            cwd = value
        elif name == "--env-file":
            taken = taken.miss(f"the variables of {one_line(value, 80)}, which is not in this text")
        elif name not in _DOCKER_QUIET and not set(name) <= set("-dit"):
            left.append(f"{name} {value}".strip())
    image = one_line(argv[at], 80)
    if box is not None:
        if chosen := chosen_gpus(box):
            env.setdefault("CUDA_VISIBLE_DEVICES", ",".join(map(str, chosen)))
        taken = taken.warn(f"it runs in the container {image}: paths are the container's", *_not_taken(box))
        return replace(taken, argv=(*entry, *argv[at + 1 :]), env=env, inside=True, container=container_table(box))
    if left:
        taken = taken.warn(f"of the container these options were left out: {one_line(', '.join(left), 300)}")
    taken = taken.warn(
        f"the call inside the container {image} was taken: paths are the container's, and it runs on the host itself"
    )
    return replace(taken, argv=(*entry, *argv[at + 1 :]), env=env, cwd=cwd, inside=True)


def _not_taken(box: Container) -> Iterator[str]:
    """What of a `run` line is eagletui's business, but how it is typed at."""
    options = [option for option in box.options if option.name in ("detach", "name", "restart", "rm", "replace")]
    if options:
        words = ", ".join(one_line(" ".join(option.words), 60) for option in options)
        verb = "was" if len(options) == 1 else "were"
        yield f"{words} {verb} left out: a run detaches its container, names it, starts it once and removes it at its end"


_IN_PROFILE = frozenset("env entrypoint name gpus volume label l".split())


def container_table(box: Container) -> dict[str, object]:
    """The `[container]` table of a profile that runs what a `docker run` line runs."""
    kept, _ = without_ours(box)
    table: dict[str, object] = {"image": box.image}
    if len(box.engine) > 1 or box.program != "docker":
        table["engine"] = box.program if len(box.engine) == 1 else list(box.engine)
    if mounts := box.values("volume"):
        table["mounts"] = list(mounts)
    # A container with a --shm-size of its own gets no --ipc by itself.
    usual = _USUAL - {("ipc", "host")} if any(option.name == "shm-size" for option in kept.options) else _USUAL
    own = [
        option for option in kept.options if option.name not in _IN_PROFILE and (option.name, option.value) not in usual
    ]
    if own:
        table["options"] = [word for option in own for word in option.words]
    if not any(option.name in ("gpus", "device", "runtime") for option in kept.options):
        table["gpus"] = False
    return table


def _kubectl(call: Call) -> Call | None:
    """kubectl exec POD -- COMMAND, kubectl run NAME --image=X --env=A=B --command -- COMMAND."""
    if "--" not in call.argv:
        return None
    at = call.argv.index("--")
    options = _options(call.argv[:at], 2, "", "env image namespace container context overrides")[0]
    rest = [word for word in call.argv[2:at] if word.startswith("--env=")]
    env = dict(value.split("=", 1) for name, value in options if name == "--env" and "=" in value)
    env |= dict(word[6:].split("=", 1) for word in rest if "=" in word[6:])
    words = one_line(" ".join(call.argv[:at]), 120)
    return call.without(at + 1, env=env, inside=True).warn(f"{words} was taken off: paths are the container's")


def _enroot(call: Call) -> Call | None:
    """enroot start --env A=B IMAGE COMMAND."""
    if call.argv[1:2] != ("start",):
        return None
    options, at = _options(call.argv, 2, "ecm", "env conf mount rc")
    env = {**call.env, **dict(v.split("=", 1) for name, v in options if name in ("-e", "--env") and "=" in v)}
    words = one_line(" ".join(call.argv[: at + 1]), 120)
    return call.without(at + 1, env=env, inside=True).warn(f"{words} was taken off: paths are the container's")


def _apptainer(call: Call) -> Call | None:
    at = next((index for index, word in enumerate(call.argv) if word in ("exec", "run")), None)
    if at is None:
        return None
    options, end = _options(call.argv, at + 1, "BHWSo", "bind env env-file pwd home workdir overlay mount")
    env = dict(call.env)
    for text in (value for name, value in options if name == "--env"):
        env |= dict(part.split("=", 1) for part in text.split(",") if "=" in part)
    words = one_line(" ".join(call.argv[: end + 1]), 120)
    return call.without(end + 1, env=env, inside=True).warn(f"{words} was taken off: paths are the container's")


def _tmux(call: Call) -> Call | None:
    """tmux new -d -s NAME 'command', screen -dmS NAME command."""
    start, letters = (1, "SsTt") if call.program == "screen" else (2, "snxyctFe")
    if "stuff" in call.argv:
        text = " ".join(call.argv[call.argv.index("stuff") + 1 :])
        return replace(call, argv=("sh", "-c", re.sub(r"(?:\\[nr]|\^M|\s)+$", "", text)))
    if call.argv[1:2] in (("send-keys",), ("send",)):
        keys = [word for word in call.argv[_options(call.argv, 2, "tNc")[1] :] if word not in ("C-m", "Enter", "ENTER")]
        return replace(call, argv=("sh", "-c", " ".join(keys)))
    at = _options(call.argv, start, letters)[1]
    rest = call.argv[at:]
    if len(rest) == 1 and " " in rest[0]:
        return replace(call, argv=("sh", "-c", rest[0]))
    return call.without(at) if rest else None


def _ssh(call: Call) -> Call | None:
    at = _options(call.argv, 1, "bcDEeFIiJLlmOopQRSWw")[1] + 1
    if at >= len(call.argv):
        return None
    inner = replace(call, argv=("sh", "-c", " ".join(call.argv[at:])), env={})
    return inner.warn(f"the command was for the host {one_line(call.argv[at - 1], 60)}")


_SPECIAL: dict[str, Callable[[Call], Call | None]] = {
    "sudo": _sudo,
    "env": _env,
    "eval": lambda call: replace(call, argv=("sh", "-c", " ".join(call.argv[1:]))),
    "tmux": _tmux,
    "screen": _tmux,
    "ssh": _ssh,
    **dict.fromkeys(("kubectl", "oc"), _kubectl),
    "enroot": _enroot,
    **dict.fromkeys(("docker", "podman", "nerdctl"), _docker),
    **dict.fromkeys(("apptainer", "singularity"), _apptainer),
}
