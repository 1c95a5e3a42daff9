"""Nothing that steers a terminal and no known secret reaches it, whatever widget, screen or dialog it stands in."""

from dataclasses import replace

import pytest
from rich.segment import Segment
from textual.color import Color
from textual.widgets import Input, TextArea

from tests.support import fakes
from tests.support.driving import until
from tests.support.planted import HOSTILE, SECRET, SEQUENCES, leaks, planted
from tui.core.masking.known import learn
from tui.core.server.finding import Finding, Level
from tui.panel.app import EagleApp
from tui.panel.gate import Gate
from tui.panel.widgets.paint import Canvas, wrap
from tui.panel.widgets.rows import content_of

# What names a run or a phase, or is read as a time.
KEEP = frozenset(["run_id", "started_at", "ended_at", "kind", "stop", "phase", "time", "stamp", "rank", "event"])
WALKS = {
    "dashboard": ("1",),
    "log": ("2", "end", "slash", *"owned", "enter"),
    "profiles": ("3", "down", "down", "down"),
    "bench": ("4",),
    "launch": ("l", "down", "enter"),
    "override": ("l", "enter", "o", *"tp=4"),
    "replace": ("r",),
    "stop": ("S",),
    "hosts": ("h",),
    "help": ("question_mark",),
    "palette": ("ctrl+p",),
    "run": ("tab", "enter"),
    "copy": ("y",),
}


def profiles(directory):
    """Profiles with markup, one with sequences in it, one whose file's name has them."""
    directory = fakes.profiles_in(directory)
    text = (
        'kind = "launch"\ndescription = "[bold red]m[/] %s"\n[env]\nMY_TOKEN = "%s"\n[args]\nmodel-path = "/m[red]%s"\n'
    )
    (directory / "markup.toml").write_text(text % (SECRET, SECRET, SECRET))
    (directory / "steers.toml").write_text('kind = "launch"\nhypothesis = "\\u001b]52;c;UFdO\\u0007"\n')
    (directory / "a\x1b]52;c;UFdO\x07\x9b2J.toml").write_text(text % ("", "", ""))
    return directory


def script(scene: str) -> fakes.Script:
    told = fakes.scene(scene)
    return replace(
        told,
        samples=tuple(planted(sample, keep=KEEP) for sample in told.samples),
        runs=tuple(planted(run, keep=KEEP) for run in told.runs),
        updates=tuple(planted(update, keep=KEEP) for update in told.updates),
        facts=planted(told.facts, keep=KEEP),
        findings=[Finding("gpus", Level.BLOCK, f"held by {HOSTILE}"), Finding("x", Level.WARN, HOSTILE)],
        replaced=tuple(planted(run, keep=KEEP) for run in told.runs),
    )


def drawn(app) -> str:
    """Every line that the terminal gets, of all screens that are on top of each other."""
    lines = ["".join(segment.text for segment in strip) for strip in app.screen._compositor.render_strips()]
    return "\n".join(line.replace("\n", "\r") for line in lines)


@pytest.mark.parametrize("scene", ["starting", "ready", "crashed"])
async def test_every_screen_and_dialog(scene, tmp_path):
    learn(SECRET)
    app = EagleApp("gpu1", open_session=fakes.Hosts(script(scene)), profiles_dir=profiles(tmp_path / "own"))
    seen = ""
    shown = WALKS if scene == "ready" else {name: WALKS[name] for name in ("dashboard", "log", "run", "copy")}
    async with app.run_test(size=(160, 48)) as pilot:
        await until(pilot, lambda: app.board.state is not None and app.board.sample is not None)
        for name, keys in shown.items():
            await pilot.press(*keys)
            assert leaks(drawn(app)) == [], name
            seen += drawn(app)
            while len(app.screen_stack) > 1:
                await pilot.press("escape")
            await pilot.press("escape")
        app.say(HOSTILE, severity="error")
        await pilot.pause()
        assert leaks(drawn(app)) == []
        assert app.is_running
        assert leaks(app.clipboard) == []
    assert "[bold red]m[/]" in seen  # as it is written, not as a style
    assert "***" in seen


async def test_what_is_typed_and_pasted_into_textuals_own_widgets(tmp_path):
    learn(SECRET)
    app = EagleApp("gpu1", open_session=fakes.Hosts(script("ready")), profiles_dir=profiles(tmp_path / "own"))
    async with app.run_test(size=(120, 36)) as pilot:
        await until(pilot, lambda: app.board.state is not None)
        await pilot.press("3", "i")
        await until(pilot, lambda: app.screen.query(TextArea))
        app.screen.query_one(TextArea).text = f"python {HOSTILE}"
        await pilot.pause()
        assert leaks(drawn(app)) == []
        await pilot.press("escape", "h")
        await until(pilot, lambda: app.screen.query(Input))
        app.screen.query_one(Input).value = HOSTILE
        await pilot.pause()
        assert leaks(drawn(app)) == []


def test_a_canvas_and_rows_take_safe_text_alone():
    learn(SECRET)
    canvas = Canvas(60, 1)
    canvas.put(0, 0, f"a{SEQUENCES}\n\tb {SECRET} c")
    row = "".join(canvas.chars[0])
    assert leaks(row) == []
    assert len(canvas.chars[0]) == 60
    assert leaks(content_of([(HOSTILE, "text")]).plain) == []
    for width in range(4, 40):  # wherever a long word is broken
        assert SECRET not in "".join(wrap(f"see {'x' * 9}{SECRET}{'y' * 9}", width))


def test_the_gate_keeps_the_width_of_a_line():
    learn(SECRET)
    gate, black = Gate(), Color(0, 0, 0)

    def through(*texts: str) -> list[str]:
        return [segment.text for segment in gate.apply([Segment(text) for text in texts], black)]

    assert through("plain", "text") == ["plain", "text"]
    masked = through(f"a {SECRET} b", "c")
    assert masked == ["a *** b".ljust(len(SECRET) + 4), "c"]
    split = through("a ", SECRET[:7], SECRET[7:], " b")
    assert SECRET not in "".join(split)
    assert [len(text) for text in split] == [2, 7, len(SECRET) - 7, 2]
    assert leaks("".join(through("x\x1b[31my", "\x9b2J"))) == []
