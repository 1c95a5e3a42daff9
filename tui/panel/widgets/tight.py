"""Sends only the cells that changed. Textual 8.2 sends a widget's row from its left edge up to the changed cell.

With sixteen panels' worth of figures that tick once a second this is the difference between 1 and 20 kB/s, which
counts over a slow link. The classes below rest on private parts of Textual, whose minor version is pinned for that;
`tests/ui/test_cost.py` fails where they stop to matter.
"""

from rich.console import Console
from rich.control import Control
from textual._compositor import ChopsUpdate, Compositor


class TightUpdate(ChopsUpdate):
    """Spans cropped at both ends."""

    def render_segments(self, console: Console) -> str:
        """Terminal sequences of the spans."""
        out: list[str] = []
        for y, first, last in self.spans:
            for end, (begin, strip) in zip(self.chop_ends[y], self.chops[y].items(), strict=False):
                if strip is None or begin >= last or end <= first:
                    continue
                left, right = max(begin, first), min(end, last)
                out.append(Control.move_to(left, y).segment.text)
                out.append(strip.crop(left - begin, right - begin).render(console))
        return "".join(out)


class TightCompositor(Compositor):
    """Makes tight updates of partial ones."""

    def render_partial_update(self) -> ChopsUpdate | None:
        """What is dirty, and no cell more."""
        update = super().render_partial_update()
        if update is None or not update.spans:
            return update
        return TightUpdate(update.chops, update.spans, update.chop_ends)
