"""What people's tools put around a log before they paste it, and how it is taken off again.

Knows lines, the shapes of SGLang's records and nothing of what they mean; the tracker reads what is left.
"""
