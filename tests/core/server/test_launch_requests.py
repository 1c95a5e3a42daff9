"""A launch that a caller names by an id of its own."""

import json

import pytest

from tui.core.config import state_dir
from tui.core.errors import UsageError
from tui.core.server.launch_requests import run_id_for


def test_the_same_request_is_the_same_run():
    first = run_id_for("a", "p", "gpu1", {"tp": 4, "x": "y"})
    assert run_id_for("a", "p", "gpu1", {"x": "y", "tp": "4"}) == first
    assert run_id_for("b", "p", "gpu1", {}) != first


@pytest.mark.parametrize(("profile", "host", "sets"), [("q", "gpu1", {}), ("p", "gpu2", {}), ("p", "gpu1", {"tp": 8})])
def test_a_request_for_another_launch_is_refused(profile, host, sets):
    run_id_for("a", "p", "gpu1", {})
    with pytest.raises(UsageError, match="was for p on gpu1") as caught:
        run_id_for("a", profile, host, sets)
    assert caught.value.slug == "exists"


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", json.dumps({"run_id": None}), json.dumps({"run_id": "../x"})])
def test_what_cannot_be_read_of_a_request_is_one_line(text):
    run_id_for("a", "p", "gpu1", {})
    (path,) = (state_dir() / "requests").glob("*.json")
    path.write_text(text)
    with pytest.raises(UsageError, match="cannot be read"):
        run_id_for("a", "p", "gpu1", {})
