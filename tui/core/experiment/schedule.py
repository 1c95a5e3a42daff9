"""In which order an experiment launches its arms."""

import random
from collections.abc import Sequence


def schedule(pairs: int, arms: Sequence[str], seed: int) -> tuple[str, ...]:
    """The order of launches: `pairs` rounds with each arm once, every second round mirrored (ABBAAB…, ABCCBAABC…).

    Mirrored rounds make a drift of the host alternate in sign from pair to pair: with an even number of pairs a steady
    drift cancels, with an odd one its rest is small and the spread of the pairs, which it widens, covers it
    (docs/measuring.md, "Verdicts", has the simulated rates). `seed` decides which arm begins. A longer experiment of
    the same seed begins with the shorter one, so a pair can be added.
    """
    base = list(arms)
    random.Random(seed).shuffle(base)
    rounds = (base if number % 2 == 0 else base[::-1] for number in range(pairs))
    return tuple(arm for one_round in rounds for arm in one_round)
