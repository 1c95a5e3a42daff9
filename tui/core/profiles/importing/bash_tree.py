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
# The grammar drops an escaped blank, and takes <name> for two redirections: both are parsed as private characters.
OPEN, CLOSE, GAP, BLANK = "\ue000\ue001\ue002\ue003"
_AS_WRITTEN = str.maketrans({OPEN: "<", CLOSE: ">", GAP: " ", BLANK: "\\ "})
_PLACEHOLDER = re.compile(r"""<([A-Za-z_](?:[\w .:/-]*[\w./-])?)>(?=[\s"/:.,)\\]|$)""")


def unreadable(message: str, hint: str = "cut the text to the command") -> UsageError:
    return UsageError(message, hint, slug=Slug.UNREADABLE_COMMAND)


@cache
def _parser() -> "Parser":
    import tree_sitter
    import tree_sitter_bash

    return tree_sitter.Parser(tree_sitter.Language(tree_sitter_bash.language()))


def encoded(text: str) -> bytes:
    """A text as the parser gets it."""
    text = re.sub("[\0\ue000-\uf8ff\U000f0000-\U0010ffff]", "\ufffd", text)
    text = _PLACEHOLDER.sub(lambda match: OPEN + match[1].replace(" ", GAP) + CLOSE, text)
    text = re.sub(r"(?<!\\)((?:\\\\)*)\\ ", rf"\1{BLANK}", text)
    raw = text.encode("utf-8", "replace")
    if len(raw) > MAX_BYTES or sum(map(raw.count, b"|({[<")) > MAX_NESTED:
        raise unreadable(f"the text is too long to be a command: more than {MAX_BYTES // 1024} KiB, or too nested")
    return raw


def parsed(raw: bytes) -> "Node":
    """The root of a text's tree. Raises UsageError where a quote, brace or parenthesis stays open."""
    root = _parser().parse(raw).root_node
    stack = [root] if root.has_error else []
    while stack:
        node = stack.pop()
        kinds = {child.type for child in node.children} if node.is_error else set()
        missing = node.is_missing and node.type in ("}", ")", '"', "`")
        if missing or kinds & {'"', "`", "${", "$(", "<("} or (node.is_error and written(node).startswith("'")):
            where = f"line {node.start_point.row + 1}"
            raise unreadable(f"{where}: a quote, brace or parenthesis is never closed", "complete the command")
        stack += [child for child in node.children if child.has_error or child.is_missing]
    return root


def text_of(node: "Node") -> str:
    """A node's text as it was parsed."""
    return (node.text or b"").decode()


def as_written(text: str) -> str:
    """Parsed text as it stands in the source."""
    return text.translate(_AS_WRITTEN)


def written(node: "Node") -> str:
    """A node's text as it stands in the source, without blanks around it."""
    return as_written(text_of(node)).strip()
