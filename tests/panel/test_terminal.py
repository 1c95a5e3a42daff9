"""What is sent to the terminal beside the screen: titles come back, notifications only where they are known."""

import pytest

from tests.support import fakes
from tests.support.driving import until
from tui.core.model.phases import Outcome
from tui.panel.app import EagleApp
from tui.panel.terminal import Terminal


def terminal(**environ: str) -> tuple[Terminal, list[str]]:
    sent: list[str] = []
    return Terminal(sent.append, {"TERM": "xterm-256color", **environ}), sent


def test_a_title_is_sent_when_it_changes_and_the_old_one_comes_back():
    one, sent = terminal()
    for text in ("● READY a on gpu1", "● READY a on gpu1", "✗ CRASHED a on gpu1"):
        one.title(text)
    one.restore()
    one.restore()
    assert sent == ["\033[22;2t\033]2;● READY a on gpu1\007", "\033]2;✗ CRASHED a on gpu1\007", "\033[23;2t"]


@pytest.mark.parametrize("term", ["", "dumb", "linux"])
def test_a_terminal_without_titles_gets_none(term):
    one, sent = terminal(TERM=term)
    one.title("x")
    one.restore()
    assert sent == []


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"TERM_PROGRAM": "iTerm.app"}, "\033]9;a; b\033\\"),
        ({"TERM_PROGRAM": "ghostty"}, "\033]9;a; b\033\\"),
        ({"TERM": "xterm-kitty"}, "\033]99;;a; b\033\\"),
        ({"TERM": "foot"}, "\033]777;notify;eagletui;a, b\033\\"),
        ({"VTE_VERSION": "7600"}, "\033]777;notify;eagletui;a, b\033\\"),
        ({}, None),
        ({"TERM_PROGRAM": "Apple_Terminal"}, None),
        ({"TERM_PROGRAM": "iTerm.app", "TMUX": "/tmp/x"}, None),
    ],
)
def test_a_notification_is_asked_for_in_the_terminals_own_way(environ, expected):
    one, sent = terminal(**environ)
    one.notify("a; b")
    assert sent == ([expected] if expected else [])


def test_no_sequence_of_a_host_gets_through():
    one, sent = terminal(TERM_PROGRAM="WezTerm")
    one.title("a\033]2;evil\007b\x9d")
    one.notify("a\033\\\033]52;c;AAAA\007")
    assert [text.count("\033") for text in sent] == [2, 2]
    assert not any("evil" in text or "\x9d" in text for text in sent)


async def test_the_window_is_called_by_what_is_displayed_and_tells_who_looks_elsewhere(monkeypatch):
    sent: list[str] = []
    monkeypatch.setenv("TERM_PROGRAM", "ghostty")
    monkeypatch.setattr(EagleApp, "_to_terminal", lambda self, text: sent.append(text))
    script = fakes.scene("starting")
    app = EagleApp("gpu1", open_session=fakes.Hosts(script), bell=True)
    async with app.run_test() as pilot:
        await until(pilot, lambda: any("◐ STARTING kimi-k2.5-eagle3-mem088 on gpu1" in text for text in sent))
        app.displayed._ring("a", Outcome.READY)
        assert not any("]9;" in text for text in sent)
        app.app_focus = False
        app.displayed._ring("b", Outcome.CRASHED)
        assert [text for text in sent if "]9;" in text] == ["\033]9;kimi-k2.5-eagle3-mem088 on gpu1: crashed\033\\"]
        await app.action_leave()
    assert sent[-1] == "\033[23;2t"
