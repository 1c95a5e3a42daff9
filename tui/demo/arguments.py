"""The command line of the simulated SGLang 0.5.23: the flags of that version, its defaults, and how it refuses.

The flag names, their shapes and the defaults are facts taken from that version's `--help` and from its `/server_info`;
they lie in data/sglang_0_5_23.json. argparse does the rest, so that abbreviations, ambiguous options and unknown
flags end exactly as they do there: usage on stderr and exit status 2.
"""

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

PROG = "sglang serve"
DATA = Path(__file__).with_name("data") / "sglang_0_5_23.json"
_FLOATS = frozenset({"mem_fraction_static"})
_INTS = frozenset(
    {
        "max_running_requests",
        "max_total_tokens",
        "context_length",
        "random_seed",
        "cuda_graph_max_bs_decode",
        "cuda_graph_max_bs_prefill",
        "speculative_num_steps",
        "speculative_eagle_topk",
        "speculative_num_draft_tokens",
        "cuda_graph_bs_decode",
    }
)


def _type_of(dest: str, default: object) -> type[Any]:
    if dest in _FLOATS or isinstance(default, float):
        return float
    if dest in _INTS or (isinstance(default, int) and not isinstance(default, bool)):
        return int
    return str


def parser() -> tuple[argparse.ArgumentParser, dict[str, Any]]:
    """The parser and the default of every server argument."""
    data = json.loads(DATA.read_text(encoding="utf-8"))
    defaults: dict[str, Any] = data["defaults"]
    result = argparse.ArgumentParser(prog=PROG)
    for flag in data["flags"]:
        names, kind = flag["names"], flag["kind"]
        dest = flag.get("dest", names[0][2:].replace("-", "_"))
        options: dict[str, Any] = {"dest": dest, "default": argparse.SUPPRESS}
        if names[0] == "--model-path":
            options["required"] = True
        if kind == "flag":
            off = [name for name in names if name.startswith("--no-")]
            options["action"] = argparse.BooleanOptionalAction if off else "store_true"
            names = [name for name in names if name not in off]
        else:
            options["type"] = _type_of(dest, defaults.get(dest))
            options["metavar"] = dest.upper() if "choices" not in flag else None
            if kind == "many":
                options["nargs"] = "+"
            elif kind == "maybe":
                options["nargs"] = "?"
            if "choices" in flag:
                options["choices"] = flag["choices"]
                options["type"] = str
        result.add_argument(*names, **options)
    return result, defaults


def parse(argv: Sequence[str]) -> dict[str, Any]:
    """The server arguments, flat. Ends the process with status 2 on a flag that 0.5.23 does not know."""
    parsing, defaults = parser()
    given = vars(parsing.parse_args(with_config(argv)))
    given.pop("config", None)
    return {**defaults, **given}


def with_config(argv: Sequence[str]) -> list[str]:
    """Puts the options of `--config FILE` before those of the command line, which therefore outrank them."""
    words = list(argv)
    for at, word in enumerate(words):
        if word == "--config" and at + 1 < len(words):
            path, rest = words[at + 1], words[:at] + words[at + 2 :]
        elif word.startswith("--config="):
            path, rest = word.partition("=")[2], words[:at] + words[at + 1 :]
        else:
            continue
        front: list[str] = []
        for key, value in read_config(Path(path).read_text(encoding="utf-8")).items():
            name = "--" + key.replace("_", "-")
            if value == "true":
                front.append(name)
            elif value not in ("false", "null", "~", ""):
                front += [name, value]
        return front + rest
    return words


def read_config(text: str) -> dict[str, str]:
    """The flat subset of YAML (or JSON) that such files consist of: `key: value`, quotes optional."""
    stripped = text.strip()
    if stripped.startswith("{"):
        loaded: Mapping[str, Any] = json.loads(stripped)
        return {k: (str(v).lower() if isinstance(v, bool) else str(v)) for k, v in loaded.items()}
    found = {}
    for line in stripped.splitlines():
        key, colon, value = line.partition(":")
        if not colon or line.lstrip().startswith("#"):
            continue
        value = value.strip()
        if value.startswith('"') and value.endswith('"') and len(value) > 1:
            value = json.loads(value)
        elif value.startswith("'") and value.endswith("'") and len(value) > 1:
            value = value[1:-1].replace("''", "'")
        found[key.strip().strip("\"'")] = value
    return found
