"""Runs on a host: launching, watching and stopping a process tree; servers of others, by their command lines.

Knows the helper's protocol; no log, no profile, and nothing of an engine but what its processes are called.
"""
