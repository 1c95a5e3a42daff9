"""Secrets: which names mean one, which values are known to be one, and masking them in whatever is shown or stored.

Knows no profile and no host; who reads a secret tells this room (`known.learn`), who shows or stores a text asks it.
"""
