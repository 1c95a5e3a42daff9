"""How the house is built: nothing outgrows its room without a reason, and the places that the docs name exist."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MODULE_LINES, CLASS_LINES, FUNCTION_LINES = 600, 400, 60
PRODUCT_LINES = 88_000  # raised on purpose only, by a capability; what a change makes needless goes with it

# What is longer, and why. An entry that is no longer needed fails too.
LONGER: dict[str, str] = {}


def _parts(path: Path) -> Iterator[tuple[str, int, int]]:
    """A module with its classes and functions: name, lines, and the most that it may have."""
    text = path.read_text(encoding="utf-8")
    name = str(path.relative_to(ROOT))
    yield name, text.count("\n"), MODULE_LINES
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            limit = CLASS_LINES if isinstance(node, ast.ClassDef) else FUNCTION_LINES
            yield f"{name}::{node.name}", node.end_lineno - node.lineno + 1, limit


def test_nothing_outgrows_its_room_without_a_reason() -> None:
    found = {name: (lines, most) for path in sorted(ROOT.glob("tui/**/*.py")) for name, lines, most in _parts(path)}
    longer = {name: lines for name, (lines, most) in found.items() if lines > most}
    for name, lines in longer.items():
        print(f"{lines:5} {name}: {LONGER.get(name, 'NO REASON GIVEN')}")
    assert set(longer) == set(LONGER)


def _spelled_out(place: str) -> list[str]:
    """`a/{b,c}.py` as `a/b.py` and `a/c.py`."""
    if (braces := re.search(r"\{([^{}]*)\}", place)) is None:
        return [place]
    return [one for word in braces[1].split(",") for one in _spelled_out(place.replace(braces[0], word, 1))]


def test_the_product_stays_small() -> None:
    lines = sum(path.read_text(encoding="utf-8").count("\n") for path in ROOT.glob("tui/**/*.py"))
    print(f"tui/ has {lines:,} lines of Python")
    assert lines < PRODUCT_LINES


@pytest.mark.parametrize(
    "document", ["README.md", "CONTRIBUTING.md", *(f"docs/{p.name}" for p in ROOT.glob("docs/*.md"))]
)
def test_the_places_that_the_docs_name_exist(document: str) -> None:
    text = (ROOT / document).read_text(encoding="utf-8")
    places = re.findall(r"(?:^|[`( ])((?:tui|tests|benchmarks|profiles|docs)/[\w./{},*-]*[\w*/])", text, re.MULTILINE)
    missing = [one for place in places for one in _spelled_out(place) if not list(ROOT.glob(one.rstrip("/")))]
    assert missing == []


def _imports() -> dict[str, set[str]]:
    """Every module of the product with those that it imports, wherever the import stands."""
    paths = {".".join(p.relative_to(ROOT).with_suffix("").parts): p for p in ROOT.glob("tui/**/*.py")}
    modules = {name.removesuffix(".__init__"): path for name, path in paths.items()}
    found: dict[str, set[str]] = {}
    for name, path in modules.items():
        found[name] = set()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module in modules:
                inner = {f"{node.module}.{alias.name}" for alias in node.names} & modules.keys()
                found[name] |= inner or {node.module}
    return found


def test_no_modules_import_each_other_in_a_circle() -> None:
    imports = _imports()
    # What imports nothing that is left cannot be in a circle; what no longer shrinks is one, with what leads there.
    while leaves := {name for name, used in imports.items() if not used & imports.keys()}:
        imports = {name: used for name, used in imports.items() if name not in leaves}
    assert {name: sorted(used & imports.keys()) for name, used in imports.items()} == {}
