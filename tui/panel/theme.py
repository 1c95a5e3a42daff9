"""The two palettes of the panel and the ink that paints with them: tokens, never literal colours, anywhere else."""

from dataclasses import asdict, dataclass
from functools import lru_cache

from rich.style import Style
from textual.theme import Theme


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

THEMES = {"eagle-dark": DARK, "eagle-light": LIGHT}


def textual_theme(name: str) -> Theme:
    """The Textual theme of one of `THEMES`; its variables carry every token as `$eagle-<token>`."""
    tokens = THEMES[name]
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
        dark=tokens is DARK,
        variables={
            **{f"eagle-{token}": value for token, value in asdict(tokens).items()},
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


@lru_cache(maxsize=2048)
def style_of(tokens: Tokens, spec: str) -> Style:
    """The style of a spec: `token`, `token!` (bold), `token/token` (on a ground), `token!/token`.

    Specs are text so that a painted cell is two small strings, which compare fast. An empty spec is `text` on the
    ground of the widget. Raises AttributeError for a token that does not exist.
    """
    front, _, ground = spec.partition("/")
    bold = front.endswith("!")
    color = getattr(tokens, front.rstrip("!") or "text")
    return Style(color=color, bgcolor=getattr(tokens, ground) if ground else None, bold=bold or None)
