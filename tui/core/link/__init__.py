"""Reaching a host: what every host offers, this machine, SSH, and HTTP through either."""
