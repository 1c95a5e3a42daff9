"""The lines of program around a raise, read on the host: this machine as host."""

from pathlib import Path

import pytest

from tests.support.log_reports import report
from tui.core.errors import LinkLost
from tui.core.link.local import LocalTransport
from tui.core.server import launch_records
from tui.core.server.launch_records import LaunchRecord
from tui.core.server.raised_source import read_answer, with_source
from tui.core.sglang.diagnosis import Diagnosis
from tui.core.sglang.flags import flag_table
from tui.core.sglang.traceback import Frame

PROGRAM = "".join(f"line_{number} = {number}\n" for number in range(1, 41))


class Counted(LocalTransport):
    """Counts its round trips."""

    calls = 0

    async def run(self, script, **options):
        self.calls += 1
        return await super().run(script, **options)


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A site-packages with one file of SGLang, and its version beside it."""
    file = tmp_path / "it's here" / "sglang" / "srt" / "managers" / "scheduler.py"
    file.parent.mkdir(parents=True)
    file.write_text(PROGRAM)
    (tmp_path / "it's here" / "sglang-0.5.3.post1.dist-info").mkdir()
    return file


def diagnosis(*frames: Frame, cause: str = "engine_bug") -> Diagnosis:
    return Diagnosis(cause, "x", None, None, None, raised_in=frames)


async def explained(found: Diagnosis) -> tuple[Diagnosis, int]:
    transport = Counted()
    try:
        done = await with_source(transport, found)
    finally:
        await transport.close()
    assert done is not None
    return done, transport.calls


async def test_the_lines_around_the_raise_come_in_one_round_trip(package: Path) -> None:
    other = package.with_name("batch.py")
    other.write_text(PROGRAM)
    frames = (Frame(str(package), 2, "g"), Frame(str(other), 20, "f", "line_20 = 20"))
    found, calls = await explained(diagnosis(*frames))
    assert calls == 1
    (source,) = found.source
    assert (source.file, source.line, source.first) == (str(other), 20, 16)
    assert source.lines == tuple(f"line_{number} = {number}" for number in range(16, 23))
    assert found.advice[-1].endswith("(this is 0.5.3.post1).")


async def test_frames_of_other_packages_do_not_hide_those_of_sglang(package: Path) -> None:
    missing = Frame("/no/such/torch/file.py", 3, "f")
    found, _ = await explained(diagnosis(Frame(str(package), 2, "g", "line_2 = 2"), missing))
    assert [(source.line, source.first, source.lines[1]) for source in found.source] == [(2, 1, "line_2 = 2")]


@pytest.mark.parametrize("source", ["raise ValueError()", "line_21 = 21"])
async def test_a_file_that_has_changed_is_not_shown(package: Path, source: str) -> None:
    found, _ = await explained(diagnosis(Frame(str(package), 20, "f", source)))
    assert found.source == ()


@pytest.mark.parametrize("file", ["/etc/passwd", "relative.py", "<string>", "/etc/passwd\n.txt"])
async def test_nothing_but_a_program_is_read(file: str) -> None:
    found, calls = await explained(diagnosis(Frame(file, 1, "f")))
    assert (calls, found.source) == (0, ())


class Gone(LocalTransport):
    async def run(self, script, **options):
        raise LinkLost("the link is lost")


async def test_a_host_that_does_not_answer_changes_nothing(package: Path) -> None:
    found = diagnosis(Frame(str(package), 2, "g"))
    assert await with_source(Gone(), found) is found
    assert await with_source(Gone(), None) is None


async def test_the_version_that_the_launch_noted_counts() -> None:
    launch_records.write(LaunchRecord("r-1", "local", "server", "p", "2026-01-01T00:00:00Z", sglang="0.5.9"))
    found = await with_source(Gone(), diagnosis(), "r-1")
    assert found is not None
    assert found.advice == (f"A newer version exists: {flag_table().newest} (this is 0.5.9).",)


async def test_a_huge_line_is_cut(package: Path) -> None:
    package.write_text("x" * 3_000_000 + "\nline_2 = 2\n")
    found, _ = await explained(diagnosis(Frame(str(package), 2, "g", "line_2 = 2")))
    assert max(len(line) for line in found.source[0].lines) <= 200


def test_an_answer_of_a_hostile_host() -> None:
    frames = (Frame("/a.py", 1, "f"),)
    assert read_answer("@@eagletui 7\nx\n@@eagletui \n\n@@eagletui version\nsglang-\x1b[31m\n", frames) == ((), None)
    ((source,), _) = read_answer("@@eagletui 0\n\x1b[31mred\n" + "y\n" * 1_000, frames)
    assert source.lines[0] == "red"
    assert len(source.lines) <= 7


def test_the_text_report_has_the_source_below_the_evidence() -> None:
    from dataclasses import replace

    from tui.core.sglang.diagnosis import SourceLines
    from tui.core.sglang.report import report_text, report_with
    from tui.core.sglang.state import StartupState

    plain = report(b'Traceback (most recent call last):\n  File "/a.py", line 7, in f\n    x\nAssertionError\n').found
    assert plain is not None
    found = replace(plain, source=(SourceLines("/a.py", 7, 6, ("before", "assert x")),))
    lines = report_text(report_with(StartupState(), found)).splitlines()
    at = next(at for at, line in enumerate(lines) if line.startswith("  source"))
    assert lines[at - 1].lstrip().startswith(("evidence", "Assertion", "x"))
    assert lines[at + 2].split() == [">", "7", "assert", "x"]
