"""Measuring and deciding: load, figures, guards, results, verdicts, the economics of speculation."""
