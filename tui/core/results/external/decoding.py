"""JSON and Python objects that stand somewhere in a text."""

import ast
import json
import re
from typing import Any

_PIECE = 4096  # characters
_LONGEST_TOKEN = 16  # of JSON, but strings
_PYTHON = re.compile(
    r"""(?P<string>'(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*")|(?P<number>\d[\d.]*(?:e[-+]?\d+)?)"""
    r"""|(?P<call>[a-z]\w*(?:\.\w+)*\()|(?P<word>[A-Za-z]\w*)|(?P<open>[\[{(])|(?P<close>,?\s*[\]})])|[\s:,+-]"""
)
_WORDS = {"True": "true", "False": "false", "None": "null", "nan": "NaN", "inf": "Infinity"}
_DEEPEST = 20
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


def _python(text: str, at: int) -> tuple[Any, int] | None:
    """What print() made of a dict or a list, by its tokens as JSON; a number in NumPy's wrapping is the number."""
    as_json: list[str] = []
    closing: list[str] = []
    end = at
    while token := _PYTHON.match(text, end, at + _LONGEST):
        end, kind = token.end(), token.lastgroup
        match kind:
            case "string":
                try:
                    as_json.append(json.dumps(ast.literal_eval(token[0])))
                except (ValueError, SyntaxError):
                    return None
            case "word" if token[0] not in _WORDS:
                return None
            case "open" | "call":
                shown = {"{": "{}", "[": "[]", "(": "[]"}.get(token[0], "")
                as_json.append(shown[:1])
                closing.append(shown[1:])
            case "close":
                as_json.append(closing.pop())
            case _:
                as_json.append(_WORDS.get(token[0], token[0]))
        if not closing or len(closing) > _DEEPEST:
            break
    try:
        return None if closing else (json.loads("".join(as_json)), end)
    except (ValueError, RecursionError):
        return None
