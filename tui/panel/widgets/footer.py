"""Footer: the most used keys of the focused panel; what does not fit is under `?`."""

from collections.abc import Sequence

from tui.panel.widgets.paint import Canvas, Painted, Run, width_of

Keys = Sequence[tuple[str, str]]


class Footer(Painted):
    """One row on `surface`: key in accent and bold, verb in muted."""

    GROUND = "surface"

    def __init__(self, keys: Keys = ()) -> None:
        super().__init__(id="footer")
        self._keys = tuple(keys)
        self._note: tuple[Run, ...] = ()

    def show(self, keys: Keys, note: Sequence[Run] = ()) -> None:
        """Other keys, and a fact at the right end."""
        wanted, fact = tuple(keys), tuple(note)
        if (wanted, fact) != (self._keys, self._note):
            self._keys, self._note = wanted, fact
            self.repaint()

    def draw(self, canvas: Canvas) -> None:
        gap = 2 if canvas.width < 100 else 3
        end = canvas.width - 1
        if self._note and width_of(self._note) < canvas.width // 3:
            end = canvas.right_runs(end, 0, self._note) - gap
        # `?` and `q` are the way to everything else: they stay when others have to go.
        kept = list(self._keys)
        while len(kept) > 2 and sum(len(k) + len(v) + 1 + gap for k, v in kept) - gap > end - 1:
            droppable = [i for i, (key, _) in enumerate(kept) if key not in ("?", "q")]
            if not droppable:
                break
            del kept[droppable[-1]]
        x = 1
        for key, verb in kept:
            x = canvas.put(x, 0, key, "accent!", end - x)
            x = canvas.put(x + 1, 0, verb, "muted", end - x - 1) + gap
