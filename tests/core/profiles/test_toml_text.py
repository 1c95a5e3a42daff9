"""New profile files."""

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
