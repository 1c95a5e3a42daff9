"""Splitting a log into lines and frames."""

import pytest

from tui.core.model.log import LINE_LIMIT
from tui.core.sglang.splitter import LineSplitter


@pytest.mark.parametrize(
    ("data", "pieces"),
    [
        (b"a\nb\n", [(b"a", 1, 0), (b"b", 2, 2)]),
        (b"a\r\nb\r\n", [(b"a", 1, 0), (b"b", 2, 3)]),
        (b"a\n\nb\n", [(b"a", 1, 0), (b"", 2, 2), (b"b", 3, 3)]),
        (b"\r\n\r\n", [(b"", 1, 1), (b"", 2, 3)]),
        (b"\r10%\r20%\n", [(b"10%", 1, 1), (b"20%", 1, 5)]),
        (b"x\r10%\n", [(b"x", 1, 0), (b"10%", 1, 2)]),
    ],
)
def test_pieces_numbers_and_offsets(data: bytes, pieces: list[tuple[bytes, int, int]]) -> None:
    splitter = LineSplitter()
    assert [piece[:3] for piece in splitter.feed(data)] == pieces
    assert splitter.flush() == []
    for raw, _, offset in pieces:
        assert data[offset : offset + len(raw)] == raw


def test_a_tail_is_given_out_at_the_end_only() -> None:
    splitter = LineSplitter()
    assert splitter.feed(b"abc") == []
    assert (splitter.tail, splitter.number, splitter.offset) == (b"abc", 1, 0)
    assert splitter.flush()[0][:3] == (b"abc", 1, 0)
    assert splitter.feed(b"def\n")[0][:3] == (b"def", 1, 3)


def test_fast_and_careful_way_agree() -> None:
    data = b"one\ntwo\n\nthree"
    fast, careful = LineSplitter(), LineSplitter()
    plain = fast.plain(data)
    assert plain == b"one\ntwo\n\n"
    fast.number += plain.count(b"\n")
    assert [piece.raw for piece in careful.feed(data)] == [b"one", b"two", b""]
    assert (fast.tail, fast.number, fast.offset) == (careful.tail, careful.number, careful.offset) == (b"three", 4, 9)
    assert fast.plain(b"\rx") is None
    assert fast.plain(b"y" * (LINE_LIMIT + 1)) is None
