"""Groups: several runs, on one host or more, that are one server.

Knows sessions with hosts and what one server on one host does; not who asks, no result and no verdict.
"""
