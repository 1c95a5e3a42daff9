"""Tests of the panel have a home of their own; helpers are in driving.py, the host in fakes.py."""

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No record, profile or setting of the machine gets in."""
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("EAGLETUI_HOME", str(home / "eagletui"))
    monkeypatch.setenv("HOME", str(home))
    for variable in ("LC_ALL", "LC_CTYPE", "EAGLETUI_DEMO_SPEED", "EAGLETUI_DEMO_SEED"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("LANG", "C.UTF-8")
    monkeypatch.chdir(tmp_path)
    return home
