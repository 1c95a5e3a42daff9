"""What one launch profile has that another has not."""

from tests.support.profiles import BASE
from tui.core.profiles.difference import profile_difference
from tui.core.profiles.load import load_launch


def test_difference(folder):
    directory = folder(x=BASE)
    a = load_launch("x", [directory])
    b = load_launch("x", [directory], ["tp-size=4", "api-key=sk-1", "trust-remote-code=false", "env.A=b", "gpus=[0]"])
    lines = [(line.sign, line.key, line.old, line.new) for line in profile_difference(a, b)]
    assert lines == [
        ("+", "api-key", None, "••••••••"),
        ("+", "env.A", None, '"b"'),
        ("+", "gpus", None, "[0]"),
        ("~", "tp-size", "8", "4"),
        ("-", "trust-remote-code", "true", None),
    ]
    assert profile_difference(a, a) == ()
