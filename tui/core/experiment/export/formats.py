"""The formats of an export: one line each, and a module beside this one with `export(results, stored)`.

The command line's choice, the panel's export and its message read this table.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

from tui.core.masking.known import hide_bytes

if TYPE_CHECKING:
    from tui.core.model.result import Result


@dataclass(frozen=True)
class Format:
    """One format; its module is imported when it is written."""

    name: str  # as `--format` takes it
    suffix: str  # of a file
    in_panel: bool = True  # whether the panel's export writes one

    def export(self, results: "Sequence[Result]", stored: "Sequence[Result]") -> bytes:
        """A file of these results.

        Args:
            stored: everything there is: how much launches differ on a host comes from it.
        """
        text: bytes = import_module(f"tui.core.experiment.export.{self.name}").export(results, stored)
        return hide_bytes(text)


FORMATS = (
    Format("csv", ".csv"),  # for a spreadsheet
    Format("markdown", ".md"),  # for an issue
    Format("html", ".html"),  # a page for people: opens from disk, prints
    Format("jsonl", ".jsonl", in_panel=False),  # for another eagletui
)


def format_named(name: str) -> Format:
    return next(form for form in FORMATS if form.name == name)
