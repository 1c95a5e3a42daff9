"""What shortens or widens one experiment for this once, beside its file: options of its command, knobs of its plan."""

import re
import shlex
from dataclasses import dataclass, replace

from tui.core.profiles.resolve import read_sets
from tui.core.profiles.secrets import MASK, public_sets
from tui.core.profiles.toml_text import toml_value
from tui.core.text import one_line


@dataclass(frozen=True)
class Overrides:
    """What shortens or widens one experiment, beside its file."""

    sets: tuple[str, ...] = ()  # KEY=VALUE of all arms or of the bench, B:KEY=VALUE of one arm; later ones hold
    pairs: int | None = None
    bench: str | None = None
    budget_h: float | None = None

    def after(self, earlier: "Overrides") -> "Overrides":
        """These on top of those that an experiment was begun with; secrets, which no record keeps, have to be given again."""
        kept = (text for text in earlier.sets if not text.endswith(f"={MASK}"))
        given = {name: value for name in ("pairs", "bench", "budget_h") if (value := getattr(self, name)) is not None}
        return replace(earlier, sets=(*kept, *self.sets), **given)

    @property
    def public(self) -> "Overrides":
        """As they may be stored: secrets masked, each key once."""
        texts: dict[tuple[str, str], str] = {}
        for letter, text in map(arm_of, self.sets):
            for key, value in public_sets(read_sets([text])).items():
                texts[letter, key] = f"{letter + ':' if letter else ''}{key}={_as_typed(value)}"
        return replace(self, sets=tuple(texts.values()))

    @property
    def words(self) -> tuple[str, ...]:
        """Options of the command line."""
        options = (("--pairs", self.pairs), ("--bench", self.bench), ("--budget", self.budget_h))
        found = [word for name, value in options if value is not None for word in (name, _number(value))]
        return (*found, *(word for text in self.sets for word in ("--set", text)))

    def __str__(self) -> str:
        return one_line(shlex.join(self.public.words))


def _number(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _as_typed(value: object) -> str:
    return value if isinstance(value, str) else toml_value(value)


def arm_of(text: str) -> tuple[str, str]:
    """The letter of an arm, "" where all are meant, and the rest."""
    found = re.match(r"([A-Z]{1,2}):(?=.*=)", text)
    return (found[1], text[found.end() :]) if found else ("", text)
