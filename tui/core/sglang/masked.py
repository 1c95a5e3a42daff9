"""Secrets in one line of a log, before it is displayed: SGLang prints its own arguments."""

import re

_HINTS = ("api_key", "api-key", "hf_", "password")
# An unterminated value is masked too: the line may be cut, or not be read to its end yet.
_SECRETS = re.compile(
    r"((?:\w*api_key|hf_token|\w*password)['\"]?\s{0,4}[:=]\s{0,4})(?:'[^']*(?:'|$)|\"[^\"]*(?:\"|$))"
    r"|(--[\w-]{0,40}(?:api-key|password)(?:['\"],? {0,4}['\"]|[ =]['\"]?))[^\s'\",]+"
    r"|\b(hf_)[A-Za-z0-9]{16,}"
)


def masked(text: str) -> str:
    """The text with secrets as `***`."""
    if not any(hint in text for hint in _HINTS):
        return text
    return _SECRETS.sub(lambda match: (match[1] or match[2] or match[3]) + ("'***'" if match[1] else "***"), text)
