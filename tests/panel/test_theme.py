"""Every text token can be read on every ground it may stand on, in both palettes."""

import pytest

from tui.panel.theme import DARK, LIGHT, style_of


def luminance(color: str) -> float:
    parts = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("tokens", [DARK, LIGHT], ids=["dark", "light"])
def test_text_holds_its_contrast(tokens):
    for ground in (tokens.bg, tokens.surface, tokens.raised):
        for text in ("strong", "text", "muted", "accent", "ok", "warn", "err", "violet", "teal"):
            assert contrast(getattr(tokens, text), ground) >= 4.5, text
    for text, ground in (
        ("accent", "accbg"),
        ("ok", "okbg"),
        ("warn", "warnbg"),
        ("err", "errbg"),
        ("hittext", "hit"),
        ("bg", "warn"),
    ):
        assert contrast(getattr(tokens, text), getattr(tokens, ground)) >= 4.5, ground
    assert contrast(tokens.data, tokens.bg) >= 3
    assert contrast(tokens.hist, tokens.surface) >= 3


def test_a_spec_names_colour_weight_and_ground():
    style = style_of(DARK, "accent!/accbg")
    assert style.bold
    assert style.color.name == DARK.accent
    assert style.bgcolor.name == DARK.accbg
    with pytest.raises(AttributeError):
        style_of(DARK, "pink")
