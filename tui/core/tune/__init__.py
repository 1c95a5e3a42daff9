"""The tuner: which memory fraction starts, which speculation pays, and a verdict on it. Knows experiments; not who displays it."""
