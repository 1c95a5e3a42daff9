"""The fakes offer what they stand for."""

import inspect

import pytest

from tests.support.fakes import FakeSession
from tui.core.server.session import HostSession

METHODS = [name for name, member in vars(HostSession).items() if inspect.isfunction(member) and name[0] != "_"]


@pytest.mark.parametrize("name", METHODS)
def test_a_fake_session_takes_what_a_session_takes(name: str) -> None:
    def parameters(owner: type) -> list[tuple[str, object, object]]:
        taken = inspect.signature(getattr(owner, name)).parameters.values()
        return [(one.name, one.kind, one.default) for one in taken]

    assert parameters(FakeSession) == parameters(HostSession)


def test_a_fake_session_yields_where_a_session_yields() -> None:
    yields = {name for name in METHODS if not inspect.iscoroutinefunction(getattr(HostSession, name))}
    assert yields == {name for name in METHODS if not inspect.iscoroutinefunction(getattr(FakeSession, name))}
