"""Deciding: statistics, launch pairs, verdicts, the economics of speculation."""
