"""Nothing that a host sends reaches the terminal as a control sequence."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tui.core.text import one_line, read_json, sanitize

CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")

PAYLOADS = {
    "colour": "\x1b[31mred\x1b[0m",
    "clear": "\x1b[2J\x1b[Hx",
    "title": "\x1b]0;owned\x07x",
    "clipboard": "\x1b]52;c;aGk=\x1b\\x",
    "link": "\x1b]8;;http://evil\x07text\x1b]8;;\x07",
    "dsr": "\x1b[6nx",
    "dcs": "\x1bP1$r0m\x1b\\x",
    "apc": "\x1b_G\x1b\\x",
    "8-bit csi": "\x9b31mx",
    "8-bit osc": "\x9d0;t\x9cx",
    "unterminated osc": "x\x1b]52;c;aGk=",
    "unterminated csi": "x\x1b[31",
    "lone escape": "x\x1b",
    "nul": "a\x00b",
    "shift out": "a\x0eb\x0f",
    "bell": "a\x07",
    "backspace": "abc\x08\x08",
    "carriage return": "abc\rX",
    "bidi": "a\u202eb\u2066c",
    "delete": "a\x7f",
    "charset": "\x1b(0x",
    "surrogate": "a\udc80b",
}


@pytest.mark.parametrize("payload", PAYLOADS.values(), ids=PAYLOADS.keys())
@pytest.mark.fault(
    "S4", "escape sequences and hidden characters in a log", sees="harmless text", holds="none reaches the terminal"
)
def test_no_payload_survives(payload):
    clean = sanitize(payload)
    assert not CONTROL.search(clean)
    clean.encode("utf-8")


def test_what_is_harmless_stays():
    assert sanitize("größe 漢字\t[/x] ▆\nnext") == "größe 漢字\t[/x] ▆\nnext"
    assert sanitize("\x1b[1mbold\x1b[0m text") == "bold text"
    assert sanitize("a\x00b") == "a␀b"


@given(st.text())
def test_nothing_survives_at_all(text):
    clean = sanitize(text)
    assert not CONTROL.search(clean)
    assert sanitize(clean) == clean


def test_one_line_is_one_short_line():
    assert one_line("a\n  b\t c\r\n") == "a b c"
    assert one_line("x" * 400, 10) == "x" * 9 + "…"


def test_json_of_a_host_is_a_value_or_a_value_error():
    assert read_json(b'{"a": [1]}') == {"a": [1]}
    for text in ("[" * 100_000, '{"a":' * 100_000, "nothing", b"\xff", ""):
        with pytest.raises(ValueError, match=r".+"):
            read_json(text)
