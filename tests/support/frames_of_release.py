"""Which functions of released SGLang packages the tables of tui/data/frames.toml find: `python -m ... WHEEL...`.

Prints each table with what it finds, newest package last, and at the end the tables that find nothing anywhere and the
functions that build a server (their names say so) and that no table knows.
"""

import ast
import re
import sys
import zipfile
from collections import defaultdict
from pathlib import Path

from tui.core.sglang.patterns import patterns

BUILDS = re.compile(r"(?:maybe_)?(?:init|load|capture|alloc|launch)_\w+")
WHERE = re.compile(r"srt/(?:model_executor|managers|speculative|entrypoints)/.*")


def functions(wheel: Path) -> set[tuple[str, str]]:
    """(module below sglang/, function) of a wheel."""
    found = set()
    with zipfile.ZipFile(wheel) as package:
        for name in package.namelist():
            if name.startswith("sglang/") and name.endswith(".py") and "/test/" not in name:
                tree = ast.parse(package.read(name))
                nodes = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
                found |= {(name.removeprefix("sglang/"), node.name) for node in nodes}
    return found


def main(wheels: list[str]) -> None:
    """Prints the report."""
    hits: dict[int, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    unknown: dict[str, list[str]] = defaultdict(list)
    rules = patterns().frames
    for wheel in map(Path, wheels):
        version = wheel.name.split("-")[1]
        for module, function in functions(wheel):
            at = next((at for at, rule in enumerate(rules) if rule.matches(module, function)), None)
            if at is not None:
                hits[at][f"{module}:{function}"].add(version)
            elif BUILDS.fullmatch(function) and WHERE.fullmatch(module):
                unknown[f"{module}:{function}"].append(version)
    for at, rule in enumerate(rules):
        print(f"\n{rule.phase} {rule.module and rule.module.pattern} {rule.function and rule.function.pattern}")
        for name, versions in sorted(hits[at].items()):
            print(f"  {name}  {' '.join(sorted(versions))}")
    print("\ntables that find nothing:", [at + 1 for at in range(len(rules)) if not hits[at]])
    print("functions that build, and that no table knows:")
    for name, seen in sorted(unknown.items()):
        print(f"  {name}  {' '.join(seen)}")


if __name__ == "__main__":
    main(sys.argv[1:])
