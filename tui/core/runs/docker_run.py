"""A server in a container: the `docker run` line of a profile, and what of it eagletui itself must decide.

docker, podman and nerdctl take the same words. Detaching, restarting and removing are the run's business (docs/runs.md), so
those options are left out of what a person wrote; the name of the run, its label and its files are added where it starts
(`containers.py`).
"""

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath

ENGINES = ("docker", "podman", "nerdctl")
_GLOBAL_VALUED = frozenset(
    "-H --host --context -c --config -l --log-level --tlscacert --tlscert --tlskey --root --runroot --storage-driver "
    "--connection --url --identity --namespace -n --address -a".split()
)
# Options of `run` without a value; every other takes one.
_SWITCHES = frozenset(
    "detach disable-content-trust env-host help init interactive no-healthcheck no-hosts oom-kill-disable privileged "
    "publish-all quiet read-only replace rm rmi sig-proxy tls-verify tty".split()
)
_SHORT_SWITCHES = "ditqPT"
_OURS = frozenset("detach interactive tty rm rmi replace restart cidfile sig-proxy attach help".split())
_SHORT_NAMES = {"d": "detach", "i": "interactive", "t": "tty", "a": "attach", "e": "env", "v": "volume"}
_VERSION_TAG = re.compile(r":v?(\d+\.\d+\.\d+(?:\.?post\d+|rc\d+)?)(?![\w.])")
_DEVICES = re.compile(r"\"?device=([^\"]+)\"?")
_PUBLISHED = re.compile(r"(?:(?P<ip>[\d.]+|\[[\da-fA-F:]+\]):)?(?P<host>[\d-]+):(?P<inside>[\d-]+)(?:/tcp)?")


@dataclass(frozen=True)
class Option:
    """One option of `run`: its long name where there is one, its value, and how it was written."""

    name: str
    value: str | None
    words: tuple[str, ...]


@dataclass(frozen=True)
class Container:
    """A `run` line in parts."""

    engine: tuple[str, ...]  # up to `run`, which is not in it: ("sudo", "-n", "docker")
    options: tuple[Option, ...]
    image: str
    inside: tuple[str, ...] = ()  # words between the image and the server
    image_at: int = field(default=0, compare=False)  # where the image stands in the line that was read

    @property
    def program(self) -> str:
        """docker, podman or nerdctl."""
        return next(name for word in self.engine if (name := PurePosixPath(word).name) in ENGINES)

    def values(self, *names: str) -> tuple[str, ...]:
        """The values of an option under any of its names, in order."""
        return tuple(option.value or "" for option in self.options if option.name in names)

    def on_host(self, path: str) -> str | None:
        """Where a path of the container lies on the host, by its bind mounts; None where no mount holds it.

        What is no absolute path (a repository's name) is returned as it is where the host's cache of models is mounted.
        """
        mounts = [value.split(":") for value in self.values("volume")]
        places = {parts[1].rstrip("/"): parts[0].rstrip("/") for parts in mounts if len(parts) > 1}
        for value in self.values("mount"):
            fields = dict(part.partition("=")[::2] for part in value.split(","))
            inside, source = fields.get("target") or fields.get("dst"), fields.get("source") or fields.get("src")
            if inside and source:
                places[inside.rstrip("/")] = source.rstrip("/")
        if not path.startswith("/"):
            return path if any(place.endswith("huggingface") for place in places) else None
        best = max((p for p in places if path == p or path.startswith(f"{p}/")), key=len, default=None)
        return None if best is None else places[best] + path[len(best) :]

    @property
    def own_network(self) -> bool:
        """Whether its 127.0.0.1 is another than the host's."""
        return "host" not in self.values("network", "net")

    @property
    def published(self) -> tuple[tuple[int, int], ...]:
        """Ports of the container and those of the host's 127.0.0.1 that lead to them, as far as the line names both."""
        found: list[tuple[int, int]] = []
        for value in self.values("publish", "p") if self.own_network else ():
            match = _PUBLISHED.fullmatch(value)
            if match and reaches_loopback(match["ip"] or ""):
                found += zip(_ports(match["inside"]), _ports(match["host"]), strict=False)
        return tuple(found)

    @property
    def sglang_version(self) -> str | None:
        """The version that the image's tag names (lmsysorg/sglang:v0.5.6-cu126); None where it names none."""
        match = _VERSION_TAG.search(self.image) if "sglang" in self.image else None
        return match[1] if match else None

    @property
    def words(self) -> tuple[str, ...]:
        """The whole line, up to where the server's own words begin."""
        options = tuple(word for option in self.options for word in option.words)
        return (*self.engine, "run", *options, self.image, *self.inside)


def reaches_loopback(address: str) -> bool:
    """Whether what is published at this address of the host ("" is any) is reached by its 127.0.0.1."""
    return address in ("", "0.0.0.0", "::", "[::]") or address.startswith("127.")


def _ports(text: str) -> range:
    """Of `30000` or `30000-30003`."""
    first, _, last = text.partition("-")
    return range(int(first), int(last or first) + 1) if first.isdigit() and (last or first).isdigit() else range(0)


def read_run(words: Sequence[str]) -> Container | None:
    """The container that a wrapper runs the server in; None where it is not a `run` of an engine, or names no image."""
    start = next((at for at, word in enumerate(words) if PurePosixPath(word).name in ENGINES), None)
    if start is None:
        return None
    at = start + 1
    while at < len(words) and words[at] != "run":
        if words[at] != "container" and not words[at].startswith("-"):
            return None
        at += 2 if words[at] in _GLOBAL_VALUED else 1
    engine = tuple(word for word in words[:at] if word != "container")
    options, image = _options(words, at + 1)
    if image >= len(words):
        return None
    return Container(engine, options, words[image], tuple(words[image + 1 :]), image)


def _options(words: Sequence[str], at: int) -> tuple[tuple[Option, ...], int]:
    """The options from `at` on, and where the image stands."""
    found: list[Option] = []
    while at < len(words) and words[at].startswith("-") and words[at] != "-":
        word = words[at]
        if word == "--":
            return tuple(found), at + 1
        if word.startswith("--"):
            name, equals, value = word[2:].partition("=")
            alone = bool(equals) or name in _SWITCHES
            given = value if equals else None if alone else "".join(words[at + 1 : at + 2])
        else:
            letter = word[1]
            alone = letter in _SHORT_SWITCHES or len(word) > 2
            name = _SHORT_NAMES.get(letter, letter)
            if letter in _SHORT_SWITCHES:
                found += [Option(_SHORT_NAMES.get(c, c), None, (f"-{c}",)) for c in word[1:]]
                at += 1
                continue
            given = word[2:].removeprefix("=") if alone else "".join(words[at + 1 : at + 2])
        taken = tuple(words[at : at + (1 if alone else 2)])
        found.append(Option(name, given, taken))
        at += len(taken)
    return tuple(found), at


def without_ours(container: Container) -> tuple[Container, tuple[str, ...]]:
    """Without the options that are eagletui's business, and their names as they were written."""
    kept = tuple(option for option in container.options if option.name not in _OURS)
    left_out = tuple(option.words[0].partition("=")[0] for option in container.options if option.name in _OURS)
    return replace(container, options=kept), left_out


def with_environment(container: Container, names: Collection[str]) -> Container:
    """With the variables of these names passed on from the engine's own environment, unless the line names them."""
    given = {value.partition("=")[0] for value in container.values("env")}
    added = tuple(Option("env", name, ("-e", name)) for name in names if name not in given)
    return replace(container, options=(*container.options, *added))


def all_gpus_visible(container: Container) -> bool:
    """Whether the container sees the host's GPUs under their own numbers."""
    chosen = [*container.values("gpus"), *(v for v in container.values("device") if v.startswith("nvidia.com/gpu="))]
    return all(value.strip('"') in ("all", "nvidia.com/gpu=all") for value in chosen)


def chosen_gpus(container: Container) -> tuple[int, ...] | None:
    """The host's numbers of the GPUs that the line names one by one; None where it names all, none or UUIDs."""
    numbers: list[str] = []
    for value in container.values("gpus"):
        match = _DEVICES.fullmatch(value)
        numbers += match[1].split(",") if match else []
    numbers += [v.partition("=")[2] for v in container.values("device") if v.startswith("nvidia.com/gpu=")]
    if not numbers or not all(number.isdigit() for number in numbers):
        return None
    return tuple(map(int, numbers))


def compose(
    engine: Sequence[str],
    image: str,
    options: Sequence[str],
    mounts: Sequence[str],
    gpus: Sequence[int] | None,
    *,
    with_gpus: bool,
) -> Container:
    """The line of a profile's `[container]` table: on the host's network and IPC, with the GPUs of the profile.

    `gpus` are the host's numbers, None = all of them.
    """
    written, end = _options(list(options), 0)
    assert end == len(options), "checked on load"
    container = Container(tuple(engine), written, image)
    named = {option.name for option in written}
    added: list[str] = []
    if not named & {"network", "net", "publish", "p"}:
        added += ["--network", "host"]
    if not named & {"ipc", "shm-size"}:
        added += ["--ipc", "host"]
    if with_gpus and not named & {"gpus", "device", "runtime"}:
        added += gpu_words(container.program, gpus)
    for mount in mounts:
        added += ["-v", mount]
    return replace(container, options=(*_options(added, 0)[0], *written))


def gpu_words(program: str, gpus: Sequence[int] | None) -> Iterator[str]:
    """Options that give a container GPUs by the host's numbers; None: all of them."""
    if program == "podman":  # by the Container Device Interface
        for name in ("all",) if gpus is None else gpus:
            yield from ("--device", f"nvidia.com/gpu={name}")
    else:
        # The engine reads the value as CSV: the quotes keep its commas together.
        yield from ("--gpus", "all" if gpus is None else f'"device={",".join(map(str, gpus))}"')


def options_end(options: Sequence[str]) -> int:
    """How many of these words are options with their values; fewer than all where a stray word is among them."""
    return _options(list(options), 0)[1]
