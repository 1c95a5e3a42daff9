"""The widgets of a log: rows a reader moves through, two logs side by side, the plot, the head above them.

They paint what `open_log` and `core/logs` hold; they must not reach a host.
"""
