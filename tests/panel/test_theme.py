"""Every text token can be read on every ground it may stand on, in every palette."""

import itertools
from dataclasses import replace

import pytest
from rich.color import Color, ColorSystem

from tests.support import fakes
from tui.core import config
from tui.panel.app import EagleApp
from tui.panel.theme import (
    COLOUR_BLIND,
    COLOUR_BLIND_256,
    DARK,
    SIXTEEN,
    THEMES,
    Tokens,
    choice_of,
    style_of,
    theme_for,
)

TEXTS = ("strong", "text", "muted", "accent", "ok", "warn", "err", "violet", "teal")
FILLED = {name: tokens for name, tokens in THEMES.items() if tokens.filled}
# What the eye of a dichromat makes of linear RGB (Machado, Oliveira, Fernandes 2009, severity 1).
DICHROMATS = {
    "protanopia": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "deuteranopia": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881)),
    "tritanopia": ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602), (0.004733, 0.691367, 0.303900)),
}
APART = 24.0  # CIE76; 2.3 is just noticeable, and the usual red and green of DARK are 9 apart to a deuteranope


def linear(color: str) -> list[float]:
    parts = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    return [p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]


def luminance(color: str) -> float:
    red, green, blue = linear(color)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def seen(color: str, eye: tuple[tuple[float, ...], ...]) -> tuple[float, float, float]:
    """CIELAB of a colour as such an eye sees it."""
    rgb = [min(1.0, max(0.0, sum(a * b for a, b in zip(row, linear(color), strict=True)))) for row in eye]
    rows = ((0.4124, 0.3576, 0.1805), (0.2126, 0.7152, 0.0722), (0.0193, 0.1192, 0.9505))
    white = (0.95047, 1.0, 1.08883)
    xyz = [sum(a * b for a, b in zip(row, rgb, strict=True)) / w for row, w in zip(rows, white, strict=True)]
    x, y, z = (t ** (1 / 3) if t > 0.008856 else 7.787 * t + 16 / 116 for t in xyz)
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


def on_terminal(name: str) -> Tokens:
    """A palette as its terminal shows it: Rich rounds greys to the neighbour."""
    tokens = THEMES[name]
    if not name.endswith("-256"):
        return tokens
    colors = {token: color for token, color in vars(tokens).items() if token != "filled"}
    shown = {token: Color.parse(color).downgrade(ColorSystem.EIGHT_BIT) for token, color in colors.items()}
    return replace(tokens, **{token: color.get_truecolor().hex for token, color in shown.items()})


@pytest.mark.parametrize("name", FILLED)
def test_text_holds_its_contrast(name):
    tokens, least = on_terminal(name), 7.0 if "contrast" in name else 4.5
    for ground in (tokens.bg, tokens.surface, tokens.raised):
        for text in TEXTS:
            assert contrast(getattr(tokens, text), ground) >= least, text
    grounds = (
        ("accent", "accbg"),
        ("ok", "okbg"),
        ("warn", "warnbg"),
        ("err", "errbg"),
        ("hittext", "hit"),
        ("bg", "warn"),
    )
    for text, ground in grounds:
        assert contrast(getattr(tokens, text), getattr(tokens, ground)) >= 4.5, ground
    for ground in ("accbg", "okbg", "warnbg", "errbg"):
        assert contrast(tokens.text, getattr(tokens, ground)) >= 4.5, ground
    assert contrast(tokens.data, tokens.bg) >= 3
    assert contrast(tokens.hist, tokens.surface) >= 3


@pytest.mark.parametrize("name", [name for name in THEMES if name.endswith(("-256", "-16"))])
def test_a_terminal_with_fewer_colours_tells_states_and_grounds_apart(name):
    system = ColorSystem.EIGHT_BIT if name.endswith("-256") else ColorSystem.STANDARD
    colors = {token: color for token, color in vars(THEMES[name]).items() if token != "filled"}
    numbers = {token: Color.parse(color).downgrade(system).number for token, color in colors.items()}
    states = [numbers[token] for token in ("ok", "warn", "err", "accent", "text", "violet", "teal", "bg")]
    assert len(set(states)) == len(states)
    if name.endswith("-256"):  # the person's own sixteen may be anything
        assert min(numbers.values()) >= 16
        assert len({numbers[token] for token in ("bg", "surface", "raised", "track")}) == 4
        for token, color in colors.items():  # a hue is not turned into another: the red of a warning
            red, green, blue = (int(color[at : at + 2], 16) for at in (1, 3, 5))
            assert red == green == blue or Color.parse(color).downgrade(system).get_truecolor().hex == color, token


def test_sixteen_colours_can_be_read_and_have_no_tinted_rows():
    for text in TEXTS:
        assert contrast(getattr(SIXTEEN, text), SIXTEEN.bg) >= 4.5, text
        cursor = style_of(SIXTEEN, f"{text}!/raised")
        assert contrast(cursor.color.name, cursor.bgcolor.name) >= 4.5, text
    badge, row = style_of(SIXTEEN, "err!/errbg"), style_of(SIXTEEN, "text/errbg")
    assert (badge.color.name, badge.bgcolor.name) == (SIXTEEN.bg, SIXTEEN.err)
    assert (row.color.name, row.bgcolor.name) == (SIXTEEN.text, SIXTEEN.bg)


@pytest.mark.parametrize("eye", DICHROMATS)
@pytest.mark.parametrize("tokens", [COLOUR_BLIND, COLOUR_BLIND_256], ids=["truecolor", "256"])
def test_states_stay_apart_to_the_colour_blind(tokens, eye):
    for one, other in itertools.combinations(("ok", "warn", "err", "accent"), 2):
        pair = [seen(getattr(tokens, token), DICHROMATS[eye]) for token in (one, other)]
        assert sum((a - b) ** 2 for a, b in zip(*pair, strict=True)) ** 0.5 >= APART, (one, other)


@pytest.mark.parametrize("choice", config.THEMES)
def test_the_palette_is_that_of_the_terminal(choice):
    assert {
        system: choice_of(theme_for(choice, system)) for system in (None, "truecolor", "256", "standard")
    } == dict.fromkeys((None, "truecolor", "256", "standard"), choice)
    assert theme_for(choice, "256").endswith("-256")
    assert THEMES[theme_for(choice, "standard")] is SIXTEEN
    assert theme_for(choice, "truecolor") == f"eagle-{choice}"


async def test_a_theme_that_was_chosen_is_that_of_the_next_time():
    app = EagleApp("gpu1", open_session=fakes.Hosts(fakes.scene("ready")))
    async with app.run_test() as pilot:
        pilot.app.choose_theme("colour-blind")
        await pilot.pause()
        assert pilot.app.theme == "eagle-colour-blind"
    assert config.chosen_theme() == "colour-blind"
    (config.state_dir() / "theme").write_bytes(b"\xff")
    assert config.chosen_theme() == "dark"


def test_config_toml_has_the_last_word():
    config.keep_theme("light")
    config.config_dir().mkdir(parents=True, exist_ok=True)
    (config.config_dir() / "config.toml").write_text('theme = "high-contrast"\n')
    config.load_settings.cache_clear()
    assert config.chosen_theme() == "high-contrast"
    assert not config.keep_theme("dark")


def test_a_spec_names_colour_weight_and_ground():
    style = style_of(DARK, "accent!/accbg")
    assert style.bold
    assert style.color.name == DARK.accent
    assert style.bgcolor.name == DARK.accbg
    with pytest.raises(AttributeError):
        style_of(DARK, "pink")
