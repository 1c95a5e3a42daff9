"""What the parts of the bench screen that paint one comparison share."""

from typing import ClassVar

from tui.panel.bench_view import Comparison
from tui.panel.widgets.paint import Painted


class OfComparison(Painted):
    """Paints a comparison; None until there is one. `ID` is the widget's."""

    ID: ClassVar[str]

    def __init__(self) -> None:
        super().__init__(id=self.ID)
        self.comparison: Comparison | None = None

    def show(self, comparison: Comparison | None) -> None:
        """Another state; drawn with the next `repaint`."""
        self.comparison = comparison
