"""The lock file is within the bounds of pyproject.toml, and of every package a hash is known."""

import re
from pathlib import Path

import pytest
import tomli
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
PROJECT = tomli.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
LOCKED = {
    canonicalize_name(entry["name"]): entry
    for entry in (
        match.groupdict()
        for match in re.finditer(
            r"^(?P<name>[\w.-]+)==(?P<version>\S+)(?: ;[^\n\\]*)? \\\n(?P<hashes>(?: +--hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)",
            (ROOT / "requirements-dev.lock").read_text(encoding="utf-8"),
            re.MULTILINE,
        )
    )
}
WANTED = [
    *PROJECT["dependencies"],
    *(
        text
        for extra in ("mcp", "test", "dev")
        for text in PROJECT["optional-dependencies"][extra]
        if not text.startswith("eagletui")  # names another extra
    ),
]


@pytest.mark.parametrize("text", WANTED)
def test_what_is_wanted_is_locked_within_its_bounds(text):
    wanted = Requirement(text)
    locked = LOCKED[canonicalize_name(wanted.name)]
    assert wanted.specifier.contains(locked["version"])


def test_every_line_of_the_lock_has_its_hashes():
    lines = (ROOT / "requirements-dev.lock").read_text(encoding="utf-8").splitlines()
    named = {canonicalize_name(line.split("==")[0]) for line in lines if line and line[0].isalnum()}
    assert named == set(LOCKED)


@pytest.mark.parametrize("text", PROJECT["dependencies"])
def test_a_dependency_has_an_upper_bound(text):
    wanted = Requirement(text)
    if wanted.name != "nvidia-ml-py":  # its major is CUDA's
        assert any(bound.operator == "<" for bound in wanted.specifier), text
