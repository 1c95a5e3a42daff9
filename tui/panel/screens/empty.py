"""What an empty panel shows: its title and the plain truth."""

from tui.panel.widgets.paint import Canvas, Painted, wrap


class Empty(Painted):
    """A title and a sentence under it."""

    DEFAULT_CSS = "Empty { height: 1fr; }"

    def __init__(self, title: str, sentence: str) -> None:
        super().__init__()
        self._title = title
        self._sentence = sentence

    def draw(self, canvas: Canvas) -> None:
        canvas.title(1, 1, canvas.width - 2, self._title)
        for position, part in enumerate(wrap(self._sentence, canvas.width - 2)):
            canvas.put(1, 3 + position, part, "text")
