"""Profiles: TOML files that say what to launch or to measure, and the command that comes of them.

Knows files of this machine and SGLang's flags; must not know a host, a run or a result."""
