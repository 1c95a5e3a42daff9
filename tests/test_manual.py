"""The reference of the command line and the man page are what the commands say of themselves."""

import shutil
import subprocess

import pytest

from tests.support.manual import MAN, PAGE, ROOT, commands, man, page


def test_the_pages_are_current() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "python -m tests.support.manual writes it"
    assert MAN.read_text(encoding="utf-8") == man(), "python -m tests.support.manual writes it"


def test_every_command_is_in_the_readme_and_says_what_it_does() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for each in commands():
        words = each.name.split()
        assert each.about, each.name
        assert all(text for _, text in each.options), each
        assert len(words) != 2 or f"`eagletui {words[1]}" in readme, each.name


@pytest.mark.skipif(not shutil.which("groff"), reason="no groff here")
def test_groff_takes_the_man_page() -> None:
    done = subprocess.run(["groff", "-man", "-Tutf8", "-ww", str(MAN)], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert "Completion of hosts, profiles, runs and flags" in " ".join(done.stdout.split())
