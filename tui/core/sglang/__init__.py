"""Everything that another engine would replace: flags, endpoints, log patterns, phases of a start, memory, diagnosis.

`engine.SGLANG` is what the rooms above take from it. It knows no run, no session, no view and no file of ours.
"""
