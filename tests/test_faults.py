"""docs/faults.md is what the tests' marks say, and no fault that is known has no row."""

from tests.support.faults import AREAS, PAGE, UNSHOWN, faults, page

# How many there are in each area; a new one takes the next number.
KNOWN = {"C": 20, "A": 13, "J": 12, "S": 11, "P": 9, "E": 11, "G": 9, "U": 5, "F": 14}


def test_the_page_is_current():
    assert PAGE.read_text(encoding="utf-8") == page(), "python -m tests.support.faults writes it"


def test_every_known_fault_has_a_row_or_a_reason():
    rows = {one.name for one in faults()}
    expected = {f"{letter}{number}" for letter in AREAS for number in range(1, KNOWN[letter] + 1)}
    assert rows | set(UNSHOWN) == expected
    assert not rows & set(UNSHOWN), "it has a test now"


def test_every_row_is_described():
    for one in faults():
        assert one.what, one
        assert one.sees, one
        assert one.holds, one
        assert "|" not in one.what + one.sees + one.holds, one
