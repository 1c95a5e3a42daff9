"""The shipped campaign from start to verdict on the simulated host: nine profiles, five dead ends, one winner."""

import json

import pytest
from click.testing import CliRunner

from tui.cli import cli
from tui.core.bench import guards
from tui.core.config import shipped_profiles_dir
from tui.core.experiment import record as experiment_record
from tui.core.model.verdict import VerdictKind

pytestmark = pytest.mark.timeout(600)

# The shipped bench but for its length: tokens take their real time on the simulated host.
SHORT = """
kind = "bench"
dataset = "prompts"
concurrency = [1]
output_len = 32
duration_s = 2
runs = 1
"""


@pytest.fixture
def profiles(tmp_path, port):
    """The shipped campaign and its bench, shortened, on a port of its own."""
    directory = tmp_path / "profiles"
    directory.mkdir()
    text = (shipped_profiles_dir() / "eagle3-pcie-blackwell.toml").read_text()
    (directory / "eagle3-pcie-blackwell.toml").write_text(
        "".join(
            line + (f"set = {{ port = {port} }}\n" if line.startswith('profile = "') else "")
            for line in text.splitlines(keepends=True)
        )
    )
    (directory / "one-user-real-prompts.toml").write_text(SHORT)
    return directory


def test_start_to_verdict(demo, profiles, monkeypatch):
    # What a window of 2 s can't give: it would not count.
    for name, value in {"WINDOW_S": 1.0, "WINDOW_TOKENS": 50, "LOST_SHARE": 0.5}.items():
        monkeypatch.setattr(guards, name, value)
    words = [
        "--profiles",
        str(profiles),
        "experiment",
        "eagle3-pcie-blackwell",
        "--host",
        "demo",
        "--seed",
        "1",
        "--force",
    ]
    done = CliRunner().invoke(cli, words, standalone_mode=False)
    assert done.exception is None, done.exception
    (record,) = experiment_record.read_all()

    # What was tried, and what came of it.
    assert (len(record.profile.arms), record.profile.method) == (9, "halving")
    failed = {cell.arm: cell.cause for cell in record.cells if cell.cause}
    assert failed == {
        "D": "nccl",
        "E": "unsupported_arch",
        "F": "unsupported_arch",
        "G": "unsupported_arch",
        "H": "oom_kv_pool",
    }
    assert [one.arm for one in record.dropped] == ["C", "I"]
    assert record.finalist == "B"
    fresh = [cell for cell in record.cells if cell.rung is None]
    assert sorted(cell.arm for cell in fresh) == ["A"] * 3 + ["B"] * 3
    verdict = next(one for one in record.verdicts if one.b.ref == "B")
    assert (verdict.verdict, verdict.level, verdict.n_pairs) == (VerdictKind.FASTER, "L2", 3)
    used = {name for cell in fresh for name in cell.result_ids}
    assert set(verdict.result_ids) <= used  # nothing that chose it

    # What a stranger reads.
    for said in (
        "SIMULATED host",
        "2000 times as fast",
        "## What won, and how sure",
        "**B, kimi-k2.5-baseline-bs128",
        "faster than A",
        "6 launches made after B was chosen",
        "single run (L0)",
        "Speculation does not pay",
        "## What failed, and why",
        "H, kimi-k2.5-eagle3-mem076",
    ):
        assert said in done.stdout, said

    # And what `compare` says is the same.
    asked = CliRunner().invoke(cli, ["compare", f"{record.experiment_id}:A", f"{record.experiment_id}:B", "--json"])
    assert json.loads(asked.stdout)["text"] == verdict.text
