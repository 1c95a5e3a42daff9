"""New profile files."""

import os

import pytest

from tests.support.profiles import BASE
from tui.core.errors import UsageError
from tui.core.profiles.load import load_launch
from tui.core.profiles.toml_text import save_profile


def test_saving_never_replaces(tmp_path):
    path = save_profile(BASE, "mine", tmp_path / "new")
    assert load_launch("mine", [tmp_path / "new"]).arg("tp") == 8
    for name, text, slug in (("mine", BASE, "exists"), ("../x", BASE, "bad_name"), ("y", "a = ", "bad_profile")):
        with pytest.raises(UsageError) as caught:
            save_profile(text, name, tmp_path / "new")
        assert caught.value.slug == slug
    assert path.read_text(encoding="utf-8") == BASE


def test_a_saved_secret_is_the_owners_alone(tmp_path):
    path = save_profile(BASE + 'api-key = "sk"\n', "mine", tmp_path)
    assert path.stat().st_mode & 0o077 == 0


@pytest.mark.fault(
    "F11", "a profile is saved onto a full disk", sees="the disk is full", holds="no half of a file is left"
)
def test_a_full_disk_leaves_no_half_of_a_profile(tmp_path, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fdopen", full)
    with pytest.raises(UsageError, match="No space left") as caught:
        save_profile(BASE, "mine", tmp_path)
    assert caught.value.slug == "cannot_write"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("value", ["9" * 5000, "[" * 3000])
def test_what_cannot_be_read_is_not_saved(tmp_path, value):
    with pytest.raises(UsageError) as caught:
        save_profile(f"{BASE}x = {value}\n", "mine", tmp_path)
    assert caught.value.slug == "bad_profile"
