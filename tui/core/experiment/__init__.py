"""Experiments: interleaved launches, measured, recorded, resumed. Knows everything below; must not know who displays it."""
