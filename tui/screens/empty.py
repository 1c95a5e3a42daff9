"""What an empty panel shows: its title and the plain truth."""

from tui.widgets.paint import Canvas, Painted, wrap


class Empty(Painted):
    """A title and sentences under it."""

    DEFAULT_CSS = "Empty { height: 1fr; }"

    def __init__(self, title: str, *sentences: str) -> None:
        super().__init__()
        self._title = title
        self._sentences = sentences

    def draw(self, canvas: Canvas) -> None:
        canvas.title(1, 1, canvas.width - 2, self._title)
        y = 3
        for position, sentence in enumerate(self._sentences):
            for part in wrap(sentence, canvas.width - 2):
                canvas.put(1, y, part, "text" if position == 0 else "muted")
                y += 1
