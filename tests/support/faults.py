"""The table of faults, docs/faults.md: made of the marks `fault(...)` of the tests.

    python -m tests.support.faults        # writes it

A mark is `fault("C1", "what goes wrong", sees="what the person sees", holds="what is guaranteed")`; further tests of the same fault
have its name alone. Marks are read from the source, so they are texts, never computed.
"""

import ast
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/faults.md"
AREAS = {
    "C": "Connection",
    "A": "Login and host keys",
    "J": "Launch",
    "S": "Logs",
    "P": "Stop",
    "E": "The host's environment",
    "G": "GPU figures",
    "U": "Several people, several versions",
    "F": "Found by trying to break it",
}
HEAD = """# Faults

What can go wrong, what a person then sees, what is guaranteed, and the test that shows it. This page is made of the tests' marks
(`python -m tests.support.faults`), and a test holds it to them; how to mark one is in `tests/support/faults.py`. Benchmarks that
repeat some of these at random are in [benchmarks](../benchmarks/README.md).
"""
# Known, and shown by no test: why.
UNSHOWN = {
    "G8": "sixteen GPUs at 2 Hz cost the panel too much: a speed, so [benchmarks](../benchmarks/README.md) have it"
}


@dataclass
class Fault:
    """One row."""

    name: str
    what: str = ""
    sees: str = ""
    holds: str = ""
    tests: list[str] = field(default_factory=list)

    @property
    def place(self) -> tuple[int, int]:
        """In the table."""
        return list(AREAS).index(self.name[0]), int(self.name[1:])


def marks(path: Path) -> list[tuple[str, dict[str, str], str]]:
    """(name, texts, test) of each mark in a file."""
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        for mark in node.decorator_list:
            if not isinstance(mark, ast.Call) or ast.unparse(mark.func) != "pytest.mark.fault":
                continue
            name, *rest = [ast.literal_eval(word) for word in mark.args]
            texts = {str(word.arg): ast.literal_eval(word.value) for word in mark.keywords}
            found.append((name, {**({"what": rest[0]} if rest else {}), **texts}, node.name))
    return found


def faults() -> list[Fault]:
    """All of them, in their order."""
    found: dict[str, Fault] = {}
    for path in sorted(ROOT.glob("tests/**/test_*.py")):
        for name, texts, test in marks(path):
            fault = found.setdefault(name, Fault(name))
            assert not (texts and fault.what), f"{name} is described twice"
            fault.what = texts.get("what", fault.what)
            fault.sees = texts.get("sees", fault.sees)
            fault.holds = texts.get("holds", fault.holds)
            fault.tests.append(f"{path.relative_to(ROOT)}::{test}")
    return sorted(found.values(), key=lambda one: one.place)


def page() -> str:
    """The text of docs/faults.md."""
    text = HEAD
    known = faults()
    for letter, title in AREAS.items():
        rows = [one for one in known if one.name[0] == letter]
        text += f"\n## {title}\n\n| | fault | what one sees | what is guaranteed | shown by |\n|---|---|---|---|---|\n"
        for one in rows:
            tests = ", ".join(
                f"[{test.split('test_', 2)[-1].replace('_', ' ')}](../{test.partition('::')[0]})" for test in one.tests
            )
            text += f"| {one.name} | {one.what} | {one.sees} | {one.holds} | {tests} |\n"
    text += "\n## Shown by no test\n\n" + "".join(f"- {name}: {why}\n" for name, why in UNSHOWN.items())
    return text


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
