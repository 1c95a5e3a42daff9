"""Reaching a host: what every host offers, this machine, SSH, and HTTP through either. Knows bytes, scripts and
connections; must not know what runs on a host, nor how a simulated one is made."""
