"""Shell text as a tree-sitter tree, with what the bash grammar loses put right; shell text is not run."""

import re
from functools import cache
from typing import TYPE_CHECKING

from tui.core.errors import Slug, UsageError

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

# The parser needs time that grows with the square of what is nested.
MAX_BYTES = 32 * 1024
MAX_NESTED = 2000  # characters that nest: | ( { [ <

EXPANSIONS = frozenset(
    ["simple_expansion", "expansion", "command_substitution", "arithmetic_expansion", "process_substitution"]
)
REDIRECTS = frozenset(["file_redirect", "heredoc_redirect", "herestring_redirect"])
_PLAIN_WORDS = """word number string raw_string ansi_c_string translated_string concatenation brace_expression array
command_name variable_name special_character extglob_pattern regex test_operator $"""
WORDS = EXPANSIONS | frozenset(_PLAIN_WORDS.split())
# What is one value whatever it holds travels as private characters: placeholders before the text is parsed, because the
# grammar takes <name> for two redirections and {{ x }} for three words, and what stays unresolved, so that no blank in it
# splits it. The grammar also drops an escaped blank.
OPEN, CLOSE, BLANK = "\ue000\ue001\ue003"
_HIDDEN = {code: 0xE100 + code for code in range(128) if not chr(code).isalnum()}
_SHOWN: dict[int, str | None] = {hidden: chr(code) for code, hidden in _HIDDEN.items()}
_SHOWN |= {ord(OPEN): None, ord(CLOSE): None, ord(BLANK): "\\ "}
_PLACEHOLDER = re.compile(r"""<[A-Za-z_](?:[\w .:/-]*[\w./-])?>(?=[\s"/:.,)\\]|$)""")
TEMPLATE = re.compile(r"""\$?\{\{-?[ \t]*[\w.$("'][^{}\n]*\}\}|\$\{[A-Za-z_]\w*(?:\.\w+)+\}""")
_PRIVATE = re.compile("[\0\ue000-\uf8ff\U000f0000-\U0010ffff]")


def hidden(text: str) -> str:
    """A text as one word for any parser; `as_written` undoes it."""
    return OPEN + text.translate(_HIDDEN) + CLOSE


def templates_hidden(text: str) -> str:
    """A text with its {{ placeholders }} and ${dotted.names} hidden, and no other private character."""
    return TEMPLATE.sub(lambda match: hidden(match[0]), _PRIVATE.sub("\ufffd", text))


class Unclosed(UsageError):
    """A quote, brace or parenthesis stays open: often prose around a command, with an apostrophe."""


def unreadable(message: str, hint: str = "cut the text to the command") -> UsageError:
    return UsageError(message, hint, slug=Slug.UNREADABLE_COMMAND)


@cache
def _parser() -> "Parser":
    import tree_sitter
    import tree_sitter_bash

    return tree_sitter.Parser(tree_sitter.Language(tree_sitter_bash.language()))


def encoded(text: str) -> bytes:
    """A text as the parser gets it."""
    text = _PLACEHOLDER.sub(lambda match: hidden(match[0]), templates_hidden(text))
    text = re.sub(r"(?<!\\)((?:\\\\)*)\\ ", rf"\1{BLANK}", text)
    raw = text.encode("utf-8", "replace")
    if len(raw) > MAX_BYTES or sum(map(raw.count, b"|({[<")) > MAX_NESTED:
        raise unreadable(f"the text is too long to be a command: more than {MAX_BYTES // 1024} KiB, or too nested")
    return raw


def parsed(raw: bytes) -> "Node":
    """The root of a text's tree. Raises Unclosed where a quote, brace or parenthesis stays open."""
    root = _parser().parse(raw).root_node
    stack = [root] if root.has_error else []
    while stack:
        node = stack.pop()
        kinds = {child.type for child in node.children} if node.is_error else set()
        missing = node.is_missing and node.type in ("}", ")", '"', "`")
        if missing or kinds & {'"', "`", "${", "$(", "<("} or (node.is_error and written(node).startswith("'")):
            where = f"line {node.start_point.row + 1}"
            message = f"{where}: a quote, brace or parenthesis is never closed"
            raise Unclosed(message, "complete the command", slug=Slug.UNREADABLE_COMMAND)
        stack += [child for child in node.children if child.has_error or child.is_missing]
    return root


def text_of(node: "Node") -> str:
    """A node's text as it was parsed."""
    return (node.text or b"").decode()


def as_written(text: str) -> str:
    """Parsed text as it stands in the source."""
    return text.translate(_SHOWN)


def written(node: "Node") -> str:
    """A node's text as it stands in the source, without blanks around it."""
    return as_written(text_of(node)).strip()
