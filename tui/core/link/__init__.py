"""Reaching a host: what every host offers, this machine, SSH, and HTTP through either.

Knows bytes, scripts and connections; not what runs on a host, nor that a simulated one exists.
"""
