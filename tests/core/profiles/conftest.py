"""What tests of profiles share."""

from pathlib import Path

import pytest


@pytest.fixture
def folder(tmp_path):
    """Writes profiles by name and returns the directory list."""

    def write(directory: str = "p", /, **files: str) -> Path:
        path = tmp_path / directory
        path.mkdir(exist_ok=True)
        for name, text in files.items():
            (path / f"{name}.toml").write_text(text, encoding="utf-8")
        return path

    return write
