"""What one launch profile has that another has not."""

from tests.support.profiles import BASE
from tui.core.profiles.difference import difference_to_parent, profile_difference
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


def test_the_difference_to_the_parent_is_that_of_the_file_whatever_one_launch_changed(folder):
    child = 'kind = "launch"\nextends = "x"\n[args]\ntp-size = 4\nenable-metrics = true\n'
    directory = folder(x=BASE, y=child, z=child.replace('"x"', '"gone"'))
    changed = load_launch("y", [directory], ["mem-fraction-static=0.9", "tp-size=2"])
    lines = [(line.sign, line.key, line.old, line.new) for line in difference_to_parent(changed)]
    assert lines == [("+", "enable-metrics", None, "true"), ("~", "tp-size", "8", "4")]
    assert difference_to_parent(load_launch("x", [directory])) == ()
    (directory / "x.toml").unlink()
    assert difference_to_parent(changed) == ()
