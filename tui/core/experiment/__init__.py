"""Experiments: interleaved launches, measured, recorded, taken up again."""
