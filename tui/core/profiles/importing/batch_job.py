"""The job that a batch script of Slurm asks for, as a profile's `[slurm]`. Nothing in it is executed.

Options are those of sbatch(1), `#SBATCH` lines of a script; what a launch sets by itself is left out, and what no profile
can say is named.
"""

import re
import shlex
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace

from tui.core.profiles import checks
from tui.core.profiles.checks import OF_NODES
from tui.core.profiles.importing.call import Call
from tui.core.sglang.flags import flag_table, normalise
from tui.core.text import one_line

_LINE = re.compile(r"(?m)^#SBATCH[ \t]+([^\n]*)")
_MANY = 200  # options of a script
_RANK = re.compile(r"--?node[-_]rank(?:[ \t]+|=)[\"']?\$\{?(SLURM_(?:NODEID|PROCID))\b")
_IMAGE = re.compile(r"--container-image(?:=|[ \t]+)[\"']?([A-Za-z0-9][\w./:@#+-]*)")
_MOUNTS = re.compile(r"--container-mounts(?:=|[ \t]+)[\"']?([\w./:,+-]+)")
ONE_RANK = (
    "${name} stands outside single quotes: the batch shell expands it, once, so all nodes would have one rank (0); "
    "[slurm] gives each node its own"
)


def asks(text: str) -> bool:
    """Whether a text is a batch script of Slurm."""
    return _LINE.search(text) is not None


def as_job(call: Call, text: str) -> Call:
    """A call of a batch script with the `[slurm]` that its options say; one in a container of docker stays as it is."""
    options = list(_options(text))
    if call.container is not None:
        left = one_line(", ".join(f"{name}{f'={value}' if value else ''}" for name, value in options), 300)
        return call.warn(f"of the job these were left out: {left}")
    table, left_out = _table(options)
    if (image := _IMAGE.search(text)) is not None:
        table["image"] = image[1]
        mounts = _MOUNTS.search(text)
        if mounts is not None and all(":" in mount for mount in mounts[1].split(",")):
            table["mounts"] = mounts[1].split(",")
    nodes = _number(_value_of(call.argv, "nnodes") or "")
    if "nodes" not in table and nodes is not None and nodes > 1:
        table["nodes"] = nodes
    said = []
    if left_out:
        said.append(f"of the job these were left out: {one_line(', '.join(left_out), 300)}")
    of_nodes = [name for name in OF_NODES if _value_of(call.argv, name) is not None]
    if of_nodes:
        shown = ", ".join(f"{name} {_value_of(call.argv, name)}" for name in of_nodes)
        said.append(f"[slurm] sets on each node what these did: {one_line(shown, 200)}")
    if (mistaken := _expanded_once(text)) is not None:
        said.append(ONE_RANK.replace("{name}", mistaken))
    return replace(call, slurm=table).warn(*said)


def without_nodes(words: Sequence[str]) -> list[str]:
    """A server's flags without those that `[slurm]` sets, each with its value."""
    kept: list[str] = []
    dropping = False
    for word in words:
        if word.startswith("--"):
            dropping = flag_table().canonical(normalise(word.partition("=")[0])) in OF_NODES
        if not dropping:
            kept.append(word)
    return kept


def _value_of(words: Sequence[str], name: str) -> str | None:
    for at, word in enumerate(words):
        flag, equals, value = word.partition("=")
        if flag.startswith("--") and flag_table().canonical(normalise(flag)) == name:
            return value if equals else next(iter(words[at + 1 : at + 2]), "")
    return None


def _options(text: str) -> Iterator[tuple[str, str]]:
    """Names and values of the options, in their order; "" of one without a value."""
    words: list[str] = []
    for line in _LINE.findall(text)[:_MANY]:
        with suppress(ValueError):  # a quote that is not closed
            words += shlex.split(line, comments=True)
    at = 0
    while at < len(words):
        word = words[at]
        at += 1
        name, equals, value = word.partition("=")
        if not word.startswith("--") and len(word) > 2:
            name, value, equals = word[:2], word[2:].removeprefix("="), "="
        if not equals and at < len(words) and not words[at].startswith("-"):
            value = words[at]
            at += 1
        if name.startswith("-"):
            yield name, value


def _table(options: Sequence[tuple[str, str]]) -> tuple[dict[str, object], list[str]]:
    """The `[slurm]` table, and the options that it has no place for."""
    table: dict[str, object] = {}
    further: list[str] = []
    left: list[str] = []
    total: int | None = None
    for name, value in options:
        key = checks.SLURM_OURS.get(name)
        whole = f"{name}={value}" if value and name.startswith("--") else name + value
        if name in ("--gpus", "-G"):
            total = _gpus(value)
        said: object = value
        if key in ("nodes", "gpus_per_node"):
            counted = name not in ("--gpus", "-G") and (name != "--gres" or value.startswith("gpu"))
            said = _number(value) if key == "nodes" else _gpus(value) if counted else None
        if key is not None and said not in (None, "") and not list(checks.slurm({key: said})):
            table[key] = said
            typed = re.search(r"([A-Za-z][\w.-]*):\d+$", value.removeprefix("gpu:")) if key == "gpus_per_node" else None
            left += [whole] if typed is not None else []
        elif name not in checks.SLURM_OURS and not list(checks.slurm({"options": [whole]})):
            further.append(whole)
        elif name not in ("--gpus", "-G"):
            left.append(whole)
    nodes = table.get("nodes", 1)
    if total is not None and "gpus_per_node" not in table and isinstance(nodes, int):
        table["gpus_per_node"] = -(-total // nodes)
    if further:
        table["options"] = further
    return table, left


def _number(text: str) -> int | None:
    """A whole number, or the smaller one of `2-4`."""
    found = re.fullmatch(r"(\d{1,4})(-\d{1,4})?", text)
    return int(found[1]) if found is not None and 0 < int(found[1]) <= 256 else None


def _gpus(text: str) -> int | None:
    """`8`, `gpu:8`, `h200:8`, `gpu:h200:8`; `gpu` is one."""
    if text == "gpu":
        return 1
    found = re.fullmatch(r"(?:gpu:)?(?:[A-Za-z][\w.-]*:)?(\d{1,2})", text)
    return int(found[1]) if found is not None and int(found[1]) <= 64 else None


def _expanded_once(text: str) -> str | None:
    """The variable of a node's rank that the shell of the batch script expands before srun starts anything."""
    lines = re.sub(r"\\\n", " ", text).split("\n")
    for line in lines:
        found = _RANK.search(line)
        at = line.find("srun") if found is not None else -1
        if found is None or not 0 <= at < found.start():
            continue
        before = line[at : found.start()]
        if before.count("'") % 2 == 0 and not found[0].startswith("\\"):
            return found[1]
    return None
