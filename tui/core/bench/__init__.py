"""Measuring a running server: what it is asked, who measures (drivers), and the figures and guards of what was measured.

It knows hosts, servers and results; it must not know experiments or any face."""
