"""One server on one host: planned, launched, watched, suspected, stopped; and sessions, through which all of it goes.

Knows SGLang by `core/sglang`, hosts by `core/link` and `core/runs`; not who asks, nor anything of measuring.
"""
