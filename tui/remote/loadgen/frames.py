"""What one event of a stream says, found in its bytes without reading it as JSON."""

from __future__ import annotations

import re

# In a JSON text a name with its quotes and a colon can only be a member: inside a string the quotes are escaped.
COUNT_NAME = b'"completion_tokens":'
COUNT = re.compile(COUNT_NAME + rb"\s*(\d+)")
TEXTS = (b'"content":"', b'"reasoning_content":"', b'"reasoning":"')
TEXT_NAME = b'content":"'  # of reasoning_content as well
TEXT = re.compile(rb'"(reasoning_content|reasoning|content|text)":\s*"((?:[^"\\]|\\.)*)"')
UNFINISHED = b'"finish_reason":null'
TOOLS = b'"tool_calls":['
FIRST = (b"reasoning_content", b"reasoning")  # what a delta says before its content


def text_in(data: bytes | bytearray, begin: int, end: int) -> bytes | bytearray:
    """The text that an event brings, as JSON has it between its quotes, reasoning first; empty where there is none."""
    where = data.find(TEXT_NAME, begin, end)
    if where > 0 and data.find(TEXT_NAME, where + 1, end) < 0 and data.find(b'"reasoning":"', begin, end) < 0:
        where += len(TEXT_NAME)
        close = data.find(b'"', where, end)
        if data[close - 1] != 92:  # a backslash: perhaps the quote is the text's own
            return data[where:close]
    found = [(match[1] not in FIRST, match[2]) for match in TEXT.finditer(data, begin, end)]
    return b"".join(text for _, text in sorted(found, key=lambda each: each[0]))


def plain(data: bytes | bytearray, begin: int, end: int) -> bool:
    """Whether an event is in the middle of a reply: neither its end nor a tool call, which are read as JSON."""
    return data.find(UNFINISHED, begin, end) > 0 and data.find(TOOLS, begin, end) < 0
