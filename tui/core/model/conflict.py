"""A port or GPU that a launch needs and another process has: worded here for everybody who finds one."""


def in_use(what: object, by: object) -> str:
    """`port 30000 is in use by PID 41 of bob`; `by` says who, in the words of the finder."""
    return f"{what} is in use by {by}"
