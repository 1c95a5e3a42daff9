"""The widgets of a group of runs: the whole as one server, its members side by side, their GPUs, their logs merged.

They paint what `open_group` holds; they must not reach a host.
"""
