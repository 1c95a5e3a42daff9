"""The answer to a pasted log is that of the log itself, whatever stands around it."""

import random
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.support.log_reports import live_report, report
from tests.support.wrappings import FORMATS, LOGS, SAME, WRAPPINGS, as_bytes, differences, formatted, raw_lines

PATHS = sorted(LOGS.glob("*/*.log"))
_OF_EACH = 5  # logs; benchmarks/wrappings.py takes them all
# No reader tells these: an entity is cut by the other's pieces; a name before a bar looks like a word of the bar.
_UNTOLD = {("a page", "Docker's file in pieces"), ("a page", "CRI in pieces"), ("a page", "stern")}


@cache
def _plain(path: Path) -> dict[str, Any]:
    return report(as_bytes(raw_lines(path)))


@pytest.mark.parametrize("path", [path for path in PATHS if path.parent.name != "pasted"], ids=lambda path: path.stem)
def test_a_log_alone_reads_as_it_did(path: Path) -> None:
    live = live_report(path)
    found = _plain(path)
    assert {key: found[key] for key in (*SAME, "evidence")} == {key: live[key] for key in (*SAME, "evidence")}
    assert found["engine"] == ("vllm" if "vllm" in path.name else "sglang")


@pytest.mark.parametrize("name", WRAPPINGS)
def test_a_wrapping_changes_nothing(name: str) -> None:
    for path in random.Random(name).sample(PATHS, _OF_EACH):
        assert not list(differences(path, name, _plain(path))), path.name


@pytest.mark.parametrize("seed", range(60))
def test_two_wrappings_change_nothing(seed: int) -> None:
    chance = random.Random(seed)
    path = chance.choice(PATHS)
    inner, outer = chance.sample([name for name in WRAPPINGS if "columns" not in name and name != "cut"], 2)
    if (inner, outer) not in _UNTOLD:
        assert not list(differences(path, inner, _plain(path), seed, outer)), (path.name, inner, outer)


@pytest.mark.parametrize("name", FORMATS)
def test_a_logging_configuration_costs_the_rank_tags_alone(name: str) -> None:
    stamped = [path for path in PATHS if sum(line.startswith("[20") for line in raw_lines(path)) > 1]
    for path in random.Random(name).sample(stamped, _OF_EACH):
        lines = raw_lines(path)
        found, plain = report(as_bytes(formatted(lines, FORMATS[name]))), report(as_bytes(formatted(lines, None)))
        for key in (*SAME, "evidence"):
            assert found[key] == plain[key], f"{path.name}: {key}"
