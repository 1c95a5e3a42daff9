"""JSON and Python objects that stand somewhere in a text."""

import json
import re
from typing import Any

_PIECE = 4096  # characters
_LONGEST_TOKEN = 16  # of JSON, but strings
_PYTHON = re.compile(
    r"""(?P<string>'(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*")|(?P<number>\d[\d.]*(?:e[-+]?\d+)?)"""
    r"""|(?P<call>[a-z]\w{0,30}(?:\.\w{1,30}){0,3}\()|(?P<word>[A-Za-z]\w*)|(?P<open>[\[{(])|,?\s{0,100}(?P<close>[\]})])|[\s:,+-]"""
)
_ESCAPE = re.compile(r"\\(?:x([0-9a-f]{2})|u([0-9a-f]{4})|U([0-9a-f]{8})|(.))")
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r"}
_WORDS = {"True": "true", "False": "false", "None": "null", "nan": "NaN", "inf": "Infinity"}
_ENDS = {"{": "}", "[": "]", "(": ")"}
_BRACKETS = {"{": ("{", "}"), "[": ("[", "]"), "(": ("[", "]")}  # in JSON; a call has none
_DEEPEST = 6
_LONGEST = 1 << 20  # characters of a Python object


def decoded(text: str, at: int) -> tuple[Any, int] | None:
    """The JSON or Python value that begins there, and where it ends.

    JSON is tried on longer and longer pieces: what is none costs the piece that shows it (the error counts the lines
    before it).
    """
    if re.match(r"[\[{]\s*[\[{]?\s*'", text[at : at + 40]):
        return _python(text, at)
    size = _PIECE
    while True:
        piece = text[at : at + size]
        try:
            value, length = json.JSONDecoder().raw_decode(piece)
            return value, at + length
        except json.JSONDecodeError as error:
            cut = error.pos > size - _LONGEST_TOKEN or error.msg.startswith("Unterminated string")
            if not cut or len(piece) < size:
                return None
        except (ValueError, RecursionError):
            return None
        size *= 4


def _unescaped(escape: re.Match[str]) -> str:
    code = escape[1] or escape[2] or escape[3]
    return chr(min(int(code, 16), 0x10FFFF)) if code else _ESCAPED.get(escape[4], escape[4])


def _python(text: str, at: int) -> tuple[Any, int] | None:
    """What print() made of a dict or a list, by its tokens as JSON; a number in NumPy's wrapping is the number."""
    as_json: list[str] = []
    closing: list[tuple[str, str]] = []  # of each bracket that is open: its end, in Python and in JSON
    end = at
    while token := _PYTHON.match(text, end, at + _LONGEST):
        end, kind = token.end(), token.lastgroup
        match kind:
            case "string":
                as_json.append(json.dumps(_ESCAPE.sub(_unescaped, token[0][1:-1])))
            case "word" if token[0] not in _WORDS:
                return None
            case "open" | "call":
                begins, ends = _BRACKETS.get(token[0], ("", ""))
                as_json.append(begins)
                closing.append((_ENDS[token[0][-1]], ends))
            case "close" if closing[-1][0] != token["close"]:
                return None
            case "close":
                as_json.append(closing.pop()[1])
            case _:
                as_json.append(_WORDS.get(token[0], token[0]))
        if not closing or len(closing) > _DEEPEST:
            break
    try:
        return None if closing else (json.loads("".join(as_json)), end)
    except (ValueError, RecursionError):
        return None
