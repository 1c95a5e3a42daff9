"""When to try, when to wait, when to stop: the keeper of a link with connections that the test makes."""

import asyncio

import pytest

from tui.core.errors import HostError, LinkLost
from tui.core.link.reconnect import Reconnector, Timing
from tui.core.link.transport import LinkState


class FakeLink:
    def __init__(self, interactive: bool = False) -> None:
        self.lost: asyncio.Future[HostError] = asyncio.get_running_loop().create_future()
        self.interactive = interactive
        self.closed = False

    async def close(self) -> None:
        self.closed = True


class Dialler:
    """Connects as told: an exception is raised, a link is given; at the end of the list it waits for ever."""

    def __init__(self, *outcomes: object) -> None:
        self.outcomes = list(outcomes)
        self.count = 0

    async def __call__(self) -> FakeLink:
        self.count += 1
        if not self.outcomes:
            await asyncio.Event().wait()
        outcome = self.outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        assert isinstance(outcome, FakeLink)
        return outcome


@pytest.fixture
async def make_reconnector():
    made = []

    def make(*outcomes, backoff=(0.01,)) -> tuple[Reconnector, Dialler]:
        dial = Dialler(*outcomes)
        keeper = Reconnector("gpu1", dial, Timing(backoff_s=backoff))
        made.append(keeper)
        return keeper, dial

    yield make
    for keeper in made:
        await keeper.close()


def refused() -> HostError:
    return HostError("nothing listens", slug="refused")


def denied() -> HostError:
    return HostError("may not log in", slug="auth_failed")


async def states(keeper: Reconnector, until: LinkState) -> list[LinkState]:
    seen: list[LinkState] = []
    async with asyncio.timeout(30):
        async for status in keeper.watch():
            if not seen or seen[-1] is not status.state:
                seen.append(status.state)
            if status.state is until:
                return seen
    return seen


async def test_the_first_failure_is_told_and_the_tries_go_on(make_reconnector):
    keeper, dial = make_reconnector(refused(), refused(), FakeLink())
    with pytest.raises(HostError, match="nothing listens"):
        await keeper.first()
    assert await keeper.ready()
    assert dial.count == 3


async def test_connecting_again_is_a_try_of_its_own(make_reconnector):
    keeper, dial = make_reconnector(refused(), refused(), FakeLink(), backoff=(3600.0,))
    for _ in range(2):
        with pytest.raises(HostError, match="nothing listens"):
            await keeper.first()
    await keeper.first()
    assert dial.count == 3


@pytest.mark.parametrize(
    "slug", ["auth_failed", "host_key_unknown", "host_key_changed", "host_key_revoked", "ssh_config"]
)
async def test_what_only_a_person_can_mend_is_not_tried_again(make_reconnector, slug):
    keeper, dial = make_reconnector(HostError("no", slug=slug), FakeLink())
    with pytest.raises(HostError):
        await keeper.first()
    assert keeper.status.state is LinkState.REFUSED
    for call in (keeper.ready, keeper.first):
        with pytest.raises(HostError):
            await call()
    assert dial.count == 1
    keeper.kick()
    assert await keeper.ready()


async def test_a_lost_link_is_renewed_and_closed(make_reconnector):
    one, two = FakeLink(), FakeLink()
    keeper, _ = make_reconnector(one, two)
    await keeper.first()
    watching = asyncio.create_task(states(keeper, LinkState.LOST))
    await asyncio.sleep(0)
    one.lost.set_result(LinkLost("gone"))
    assert await watching == [LinkState.UP, LinkState.LOST]
    assert await keeper.ready() is two
    assert one.closed
    assert keeper.status.error is None


async def test_an_interactive_link_waits_for_its_person(make_reconnector):
    one = FakeLink(interactive=True)
    keeper, dial = make_reconnector(one, FakeLink())
    await keeper.first()
    one.lost.set_result(LinkLost("gone"))
    assert (await states(keeper, LinkState.WAITING))[-1] is LinkState.WAITING
    with pytest.raises(HostError, match="gone"):
        await keeper.ready()
    assert dial.count == 1
    keeper.kick()
    assert await keeper.ready()


async def test_back_off_grows_and_a_kick_ends_it(make_reconnector):
    keeper, dial = make_reconnector(*[refused()] * 5, FakeLink(), backoff=(0.001, 0.001, 3600.0))
    with pytest.raises(HostError):
        await keeper.first()
    async with asyncio.timeout(30):
        async for status in keeper.watch():
            if status.attempt == 3 and status.retry_at is not None:
                break
    assert status.state is LinkState.LOST
    assert dial.count == 3
    keeper.kick()  # and the back-off starts over from its first step
    async with asyncio.timeout(60):
        assert await keeper.ready()
    assert dial.count == 6


async def test_a_fault_of_ours_is_a_message(make_reconnector):
    keeper, _ = make_reconnector(KeyError("oops"))
    with pytest.raises(HostError, match="KeyError"):
        await keeper.first()
    assert keeper.status.state is LinkState.REFUSED


async def test_a_cancelled_wait_leaves_the_link_alone(make_reconnector):
    one, two = FakeLink(), FakeLink()
    keeper, _ = make_reconnector(one, two)
    await keeper.first()
    waiting = [asyncio.create_task(call()) for call in (keeper.first, keeper.ready)]
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    one.lost.set_result(LinkLost("gone"))
    async with asyncio.timeout(30):
        assert await keeper.ready() is two


async def test_closing_ends_everybody(make_reconnector):
    keeper, _ = make_reconnector()
    waiting = [asyncio.create_task(call()) for call in (keeper.first, keeper.ready)]
    watching = asyncio.create_task(states(keeper, LinkState.CLOSED))
    await asyncio.sleep(0)
    await keeper.close()
    for task in waiting:
        with pytest.raises(LinkLost):
            await task
    assert (await watching)[-1] is LinkState.CLOSED
    with pytest.raises(LinkLost):
        await keeper.ready()
    with pytest.raises(LinkLost):
        await keeper.first()


async def test_a_slow_watcher_sees_every_state_and_only_the_newest_age(make_reconnector):
    one = FakeLink()
    keeper, _ = make_reconnector(one, FakeLink())
    await keeper.first()
    watcher = keeper.watch()
    assert (await anext(watcher)).state is LinkState.UP
    for number in range(1000):
        keeper.update(rtt_s=float(number))
    one.lost.set_result(LinkLost("gone"))
    await states(keeper, LinkState.LOST)
    await keeper.ready()
    seen = []
    async with asyncio.timeout(30):
        async for status in watcher:
            seen.append(status)
            if status.state is LinkState.UP and LinkState.LOST in [one.state for one in seen]:
                break
    assert len(seen) < 10
    assert 999.0 in [status.rtt_s for status in seen]
