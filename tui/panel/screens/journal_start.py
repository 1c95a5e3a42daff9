"""The journal before anything is in it: what fills it, how an entry looks, a way to begin."""

from tui.core.journal import entries
from tui.core.journal.model import Status
from tui.panel.screens.journal_rows import STATES
from tui.panel.screens.profile_rows import home_path
from tui.panel.widgets.paint import Run
from tui.panel.widgets.rows import AnyRow, Row, Single, Title, sections

_KEYS = (
    ("l", "launch", "a crash or a start is the first entry"),
    ("H", "write a hypothesis", "“graphs up to 128 are faster than 512”"),
    ("i", "write an idea", "to tick off later"),
    ("n", "note", "from any screen, about what is on show"),
)
_EXAMPLE = (
    ("verdict", "19.4 % slower (95 % CI 17.7 … 21.1, 3 launch pairs)"),
    ("run", "does-eagle-pay, 6 launches; 90c1d2 crashed: oom_kv_pool"),
    ("evidence", "accept length 2.31; it pays from 2.86"),
    ("difference", "+5 speculative-*, mem-fraction-static 0.84 → 0.88"),
    ("where", "8 × RTX PRO 6000, SGLang 0.5.23, driver 590.48.01"),
    ("note", "our prompts are German; the draft learned English"),
)
_STEPS = (
    ("Launch a baseline", "ready, and its figure at concurrency 1"),
    ("A/A: measure it against itself", "the noise of this host: what can be seen at all"),
    ("Goodput with your limits", "where it stops serving well"),
    ("Range of mem-fraction-static", "how much memory is left to use"),
    ("One hypothesis at a time", "an experiment with 3 launch pairs, then its verdict"),
)


def start_rows() -> tuple[list[AnyRow], list[AnyRow], list[AnyRow]]:
    """The page: what fills the journal, how an entry looks, and a way to begin."""
    said = (
        "From the first launch on it keeps what was run, with which difference, what came out, how sure that is, and why "
        "something was dropped. You add only what a machine cannot know."
    )
    keys: list[AnyRow] = [
        Row([(f" {key} ", "accent!/accbg"), (f" {verb:<20}", "text"), (about, "muted")], hang=25)
        for key, verb, about in _KEYS
    ]
    writes: AnyRow = Row([("The journal writes itself.  ", "strong!"), (said, "muted")], hang=0)
    left = sections([Title("Hypotheses", [("none yet", "muted")], focus=True)], [writes], keys)
    example: list[AnyRow] = [Title("How an entry looks", [("example, not your data", "muted")])]
    example.append(
        Row([("≠ REFUTED  EAGLE-3 with 3 steps beats the baseline  (L2)", "muted")], hang=11, ground="surface")
    )
    example += [
        Row([(f"{label:<11}", "muted"), (text, "muted")], hang=11, ground="surface") for label, text in _EXAMPLE
    ]
    states: list[Run] = [("states: ", "muted")]
    for glyph, word, color in (STATES[state] for state in STATES if state is not Status.EARLY):
        states += [(f"{glyph} ", color), (f"{word}  ", "text")]
    steps: list[AnyRow] = [Title("A way to begin", [("for a model that was never tuned here", "muted")])]
    steps += [
        Single([(f"{number}  ", "muted"), (f"{what:<34}", "text"), (why, "muted")])
        for number, (what, why) in enumerate(_STEPS, 1)
    ]
    kept = ": Markdown and JSON lines, readable without eagletui. Nothing is sent anywhere."
    where: list[AnyRow] = [
        Title("Where it is kept"),
        Row([(home_path(entries.directory()), "text"), (kept, "muted")], hang=0),
        Row([("An agent writes through ", "muted"), ("eagletui journal", "text"), ("; its entries carry its name.", "muted")], hang=0),
    ]  # fmt: skip
    return left, [*example, [], Row(states, hang=8)], sections(steps, where)
