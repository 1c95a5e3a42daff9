"""Waiting through lost links."""

import asyncio

import pytest

from tui.core.errors import HostError, LinkLost
from tui.core.link.retry import follow_through, try_again, until
from tui.core.link.transport import LinkState, LinkStatus


class Link:
    """A transport whose link has the given states, the first one now."""

    host = "gpu1"

    def __init__(self, *states: LinkState) -> None:
        self._states = list(states)

    def status(self) -> LinkStatus:
        return LinkStatus(self.host, self._states[0], 0.0)

    async def watch(self):
        while self._states and self._states[0] is not LinkState.CLOSED:
            yield self.status()
            del self._states[0]


def opened(*streams):
    """Opens one after the other; each is items, and perhaps an error at its end."""
    left = list(streams)

    async def stream():
        for item in left.pop(0):
            if isinstance(item, Exception):
                raise item
            yield item

    return stream


@pytest.mark.parametrize(
    ("error", "states"),
    [
        (LinkLost("lost"), (LinkState.UP, LinkState.UP)),
        (LinkLost("lost"), (LinkState.LOST, LinkState.UP)),
        (HostError("a code is wanted"), (LinkState.WAITING, LinkState.WAITING, LinkState.UP)),
    ],
)
async def test_a_stream_continues_after_a_lost_link_and_the_loss_is_an_item(error, states):
    found = [item async for item in follow_through(Link(*states), opened([1, 2, error], [3]))]
    assert found == [1, 2, error, 3]


async def test_a_stream_that_fails_over_a_good_link_or_a_closed_one_raises():
    with pytest.raises(HostError, match="no shell"):
        _ = [item async for item in follow_through(Link(LinkState.UP), opened([HostError("no shell")]))]
    with pytest.raises(LinkLost):
        _ = [item async for item in follow_through(Link(LinkState.CLOSED), opened([LinkLost("gone")]))]


async def test_until_looks_until_it_is_over():
    answers = [1, HostError("not now"), 2, 3]

    async def look():
        await asyncio.sleep(0)
        if isinstance(answer := answers.pop(0), Exception):
            raise answer
        return answer

    link = Link(LinkState.UP)
    assert await until(lambda seen: seen == 2, look, every_s=0, transport=link) == 2
    assert answers == [3]
    answers = [HostError("refused")]
    with pytest.raises(HostError, match="refused"):
        await until(bool, look, every_s=0)


async def test_a_lost_question_is_asked_three_times():
    asked = []

    async def ask():
        asked.append(1)
        raise LinkLost("lost")

    with pytest.raises(LinkLost):
        await try_again(ask)
    assert len(asked) == 3
