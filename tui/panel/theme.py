"""The palettes of the panel and the ink that paints with them: tokens, never literal colours, anywhere else.

Each palette is made by hand for what the terminal has: computed from another, colours fall together.
"""

from dataclasses import asdict, dataclass, replace
from functools import lru_cache

from rich.style import Style
from textual.theme import Theme

from tui.core.config import THEMES as CHOICES


@dataclass(frozen=True)
class Tokens:
    """Colours by what they are for. Text tokens hold a contrast of 4.5 on bg, surface and raised."""

    strong: str  # large figures, titles, phase-begin lines, the selected row
    text: str  # values, log text
    muted: str  # labels, units, hints, folded lines
    accent: str  # keys, focus, what is going on now
    ok: str  # ready, done, faster
    warn: str  # look here, slower, straggler
    err: str  # crashed, refused, over budget
    violet: str  # draft model, accept length, arm C
    teal: str  # KV pool, arm D
    data: str  # bar fill; never text
    hist: str  # utilisation history; never text
    faint: str  # forecast dots; never text
    line: str  # hairlines; never text
    track: str  # empty part of a bar; never text
    bg: str  # the page
    surface: str  # header, footer, verdicts, commands
    raised: str  # cursor row, active tab, search
    accbg: str  # badges and diff rows, with their own state colour on them
    okbg: str
    warnbg: str
    errbg: str
    hit: str  # behind a search hit
    hittext: str  # on a search hit
    filled: bool = True  # False with sixteen colours: no tinted grounds, so a badge is black on its colour


DARK = Tokens(
    strong="#f6f8fa", text="#d3d9e1", muted="#97a3b1", accent="#7ab7ff", ok="#74d18d", warn="#e9b95f", err="#ff857c",
    violet="#bda2ff", teal="#58d0c5", data="#5f93cf", hist="#4a739f", faint="#5d6877", line="#333b46", track="#262d36",
    bg="#101317", surface="#181c22", raised="#252c36", accbg="#1a2f48", okbg="#17301f", warnbg="#352a14",
    errbg="#3a1a1c", hit="#9a8048", hittext="#101317",
)  # fmt: skip
LIGHT = Tokens(
    strong="#05080b", text="#232a32", muted="#56606b", accent="#0a58bd", ok="#16693a", warn="#7d5200", err="#b3231b",
    violet="#6239b8", teal="#0a655f", data="#3d74b8", hist="#5584bd", faint="#8b95a0", line="#c9cfd6", track="#e1e5e9",
    bg="#fcfcfb", surface="#f2f3f4", raised="#e3e7ec", accbg="#dceafb", okbg="#def2e4", warnbg="#fbefd3",
    errbg="#fbe3e1", hit="#ecd596", hittext="#232a32",
)  # fmt: skip

CONTRAST = Tokens(
    strong="#ffffff", text="#f2f4f7", muted="#c3ccd6", accent="#8fc7ff", ok="#7fe39a", warn="#ffd166", err="#ffaaa3",
    violet="#d0bcff", teal="#74e3d8", data="#6aa9ef", hist="#5b93d6", faint="#8b98a8", line="#6b7785", track="#39434f",
    bg="#000000", surface="#10141a", raised="#26303d", accbg="#0b3357", okbg="#0b3a1e", warnbg="#453406",
    errbg="#57171a", hit="#ffd166", hittext="#000000",
)  # fmt: skip
# Ready, warning, error and focus stay apart with any one kind of cone missing (tests/panel/test_theme.py).
COLOUR_BLIND = replace(
    DARK, ok="#66e0d0", warn="#fff0a8", err="#f0824a", accent="#a8b4ff", violet="#e39bff", teal="#8fd0ff",
    okbg="#12302d", warnbg="#33301c", errbg="#3a2012", accbg="#23284a",
)  # fmt: skip
# Colours of the cube of 256, which stay as they are, and greys, which Rich rounds to a neighbour.
DARK_256 = Tokens(
    strong="#ffffff", text="#e4e4e4", muted="#b2b2b2", accent="#5fafff", ok="#87d787", warn="#ffd75f", err="#ff8787",
    violet="#af87ff", teal="#5fd7d7", data="#5f87d7", hist="#5f87af", faint="#6c6c6c", line="#4e4e4e", track="#3a3a3a",
    bg="#121212", surface="#1c1c1c", raised="#303030", accbg="#00005f", okbg="#005f00", warnbg="#5f5f00",
    errbg="#5f0000", hit="#d7af5f", hittext="#000000",
)  # fmt: skip
LIGHT_256 = Tokens(
    strong="#000000", text="#262626", muted="#585858", accent="#005faf", ok="#005f00", warn="#5f5f00", err="#870000",
    violet="#5f00af", teal="#005f5f", data="#5f87af", hist="#5f87af", faint="#949494", line="#c6c6c6", track="#ececec",
    bg="#ffffff", surface="#f4f4f4", raised="#e4e4e4", accbg="#d7ffff", okbg="#d7ffd7", warnbg="#ffffd7",
    errbg="#ffd7d7", hit="#ffd787", hittext="#262626",
)  # fmt: skip
CONTRAST_256 = replace(
    DARK_256, text="#eeeeee", muted="#d0d0d0", accent="#87d7ff", ok="#87ff87", err="#ffafaf", violet="#d7afff",
    teal="#87ffff", bg="#000000", surface="#121212", raised="#262626", faint="#949494", line="#767676", hit="#ffd75f",
)  # fmt: skip
COLOUR_BLIND_256 = replace(
    DARK_256, ok="#5fd7d7", warn="#ffffaf", err="#ff875f", accent="#afafff", violet="#ffafff", teal="#87d7ff",
    okbg="#00005f",
)  # fmt: skip
# The sixteen, as Rich takes them to be; a terminal has its own, brighter or darker.
SIXTEEN = Tokens(
    strong="#ffffff", text="#aaaaaa", muted="#aaaaaa", accent="#55ffff", ok="#55ff55", warn="#ffff55", err="#ff5555",
    violet="#ff55ff", teal="#00aaaa", data="#5555ff", hist="#5555ff", faint="#555555", line="#555555", track="#555555",
    bg="#000000", surface="#000000", raised="#aaaaaa", accbg="#0000aa", okbg="#000000", warnbg="#000000",
    errbg="#000000", hit="#ffff55", hittext="#000000", filled=False,
)  # fmt: skip

_PALETTES = {
    "": {"dark": DARK, "light": LIGHT, "high-contrast": CONTRAST, "colour-blind": COLOUR_BLIND},
    "-256": {"dark": DARK_256, "light": LIGHT_256, "high-contrast": CONTRAST_256, "colour-blind": COLOUR_BLIND_256},
    "-16": dict.fromkeys(CHOICES, SIXTEEN),
}
THEMES = {f"eagle-{name}{depth}": tokens for depth, each in _PALETTES.items() for name, tokens in each.items()}
_DEPTHS = {"256": "-256", "standard": "-16", "windows": "-16"}


def theme_for(choice: str, color_system: str | None) -> str:
    """The name in `THEMES` of one of `CHOICES` for what Rich says that the terminal has."""
    return f"eagle-{choice}{_DEPTHS.get(color_system or '', '')}"


def choice_of(theme: str) -> str:
    """Which of `CHOICES` a name in `THEMES` is."""
    return theme.removeprefix("eagle-").removesuffix("-256").removesuffix("-16")


def textual_theme(name: str) -> Theme:
    """The Textual theme of one of `THEMES`; its variables carry every token as `$eagle-<token>`."""
    tokens = THEMES[name]
    colours = asdict(tokens)
    del colours["filled"]
    if not tokens.filled:
        colours["raised"] = tokens.accbg  # a style sheet cannot turn text black on it
    return Theme(
        name=name,
        primary=tokens.accent,
        secondary=tokens.violet,
        warning=tokens.warn,
        error=tokens.err,
        success=tokens.ok,
        accent=tokens.accent,
        foreground=tokens.text,
        background=tokens.bg,
        surface=tokens.surface,
        panel=tokens.raised,
        dark=not name.startswith("eagle-light"),
        variables={
            **{f"eagle-{token}": value for token, value in colours.items()},
            "input-cursor-background": tokens.strong,
            "input-cursor-foreground": tokens.bg,
            "input-selection-background": tokens.accbg,
            "scrollbar": tokens.line,
            "scrollbar-background": tokens.bg,
            "scrollbar-hover": tokens.muted,
            "scrollbar-active": tokens.accent,
            "block-cursor-background": tokens.raised,
            "block-cursor-foreground": tokens.strong,
        },
    )


_BADGES = {"accent": "accbg", "ok": "okbg", "warn": "warnbg", "err": "errbg"}


@lru_cache(maxsize=2048)
def style_of(tokens: Tokens, spec: str) -> Style:
    """The style of a spec: `token`, `token!` (bold), `token/token` (on a ground), `token!/token`.

    Specs are text so that a painted cell is two small strings, which compare fast. An empty spec is `text` on the
    ground of the widget. Raises AttributeError for a token that does not exist.
    """
    front, _, ground = spec.partition("/")
    bold = front.endswith("!")
    token = front.rstrip("!") or "text"
    color = getattr(tokens, token)
    if not tokens.filled and ground == "raised":
        color = tokens.bg
    elif not tokens.filled and ground == _BADGES.get(token):
        return Style(color=tokens.bg, bgcolor=color, bold=bold or None)
    return Style(color=color, bgcolor=getattr(tokens, ground) if ground else None, bold=bold or None)
