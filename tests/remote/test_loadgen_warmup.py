"""What a warm-up concludes from its requests."""

from types import SimpleNamespace

import pytest

from tui.remote.loadgen.load import GONE
from tui.remote.loadgen.protocol import Stop
from tui.remote.loadgen.warmup import judge


def load(errors, *, completed=0):
    return SimpleNamespace(
        all=[SimpleNamespace(error=error) for error in errors], failed_in_a_row=len(errors), completed=completed
    )


@pytest.mark.parametrize(
    ("seen", "slug"),
    [
        (load(["connect: Connect call failed"]), "server_lost"),  # a short warm-up asks only a few times
        (load(["connect: Connect call failed"] * GONE, completed=9), "server_lost"),
        (load(["HTTP 400"]), "refused"),
    ],
)
def test_a_server_that_is_gone_is_lost_and_one_that_answers_refuses(seen, slug):
    with pytest.raises(Stop) as caught:
        judge(seen)
    assert caught.value.slug == slug


def test_some_failures_among_replies_stop_nothing():
    judge(load([None, "connect: Connect call failed", None], completed=2))
