"""Names that mean a secret, and secrets that a server prints into its log: masked wherever a log leaves this program."""

import re

# How the names of secrets end, as environment variables spell them.
_ENDS = r"(?:TOKEN|KEY|SECRET(?:_[A-Z0-9]+)*|PASS(?:WD|WORD|PHRASE)?|_PWD|_PAT|AUTH|CREDENTIALS?|COOKIE)"
_SECRET_NAME = re.compile(rf"[A-Z0-9_]*{_ENDS}|PAT")
_IN_ADDRESS = re.compile(r"://[^/\s@:]+:[^/\s@]+@")

# Cheap words, one of which is in every line that may hold a secret.
_HINTS = (
    *(b"api_key", b"api-key", b"hf_token", b"assword", b"hf_", b"://", b"earer ", b"TOKEN", b"KEY", b"SECRET"),
    *(b"PASS", b"PWD", b"_PAT", b"AUTH", b"CREDENTIAL", b"COOKIE"),
)
# Lower-case names are SGLang's own arguments, upper-case ones variables; each may be the end of a longer name.
_NAME = rb"(?:api_key|hf_token|password|" + _ENDS.encode() + rb")"
_SECRET = re.compile(
    rb"(" + _NAME + rb"['\"]?\s*[:=]\s*|(?:api-key|--ssl-keyfile-password)['\"]?,?[ =]+)(?:'[^'\r\n]*'|\"[^\"\r\n]*\")"
    rb"|((?:api-key|--ssl-keyfile-password)[ =]+|" + _NAME + rb"=)(?!None\b|null\b)[^\s'\",()\[\]{}]+"
    rb"|\b(hf_)[A-Za-z0-9]{16,}"
    rb"|([Bb]earer )[\w.~+/=-]{8,}"
    rb"|(://[^/\s@:'\"]+:)[^/\s@'\"]+(?=@)"
)


def secret_name(name: str) -> bool:
    """Whether a variable or flag of this name holds a secret: HF_TOKEN, api-key, GITHUB_PAT, PGPASS, SESSION_COOKIE."""
    return _SECRET_NAME.fullmatch(name.upper().replace("-", "_")) is not None


def secret_value(value: str) -> bool:
    """Whether a value is a secret whatever its name is: user:password@ in an address."""
    return _IN_ADDRESS.search(value) is not None


def _hide(match: re.Match[bytes]) -> bytes:
    if match.group(1):
        return match.group(1) + b"'***'"
    return b"".join(group for group in match.groups() if group) + b"***"


def mask_text(text: str) -> str:
    """The text with what looks like a secret masked."""
    return mask_secrets(text.encode("utf-8", "backslashreplace")).decode("utf-8", "replace")


def mask_secrets(data: bytes) -> bytes:
    """Whole lines, with the secrets in them replaced by `***`; every other byte is unchanged."""
    if not any(hint in data for hint in _HINTS):
        return data
    # Line by line: few lines have such a word, and the search for secrets is a hundred times slower than for words.
    lines = data.splitlines(keepends=True)
    return b"".join(_SECRET.sub(_hide, line) if any(h in line for h in _HINTS) else line for line in lines)


class SecretMask:
    """Masks a stream of bytes line by line; every other byte goes through unchanged and in order."""

    def __init__(self) -> None:
        self._held = b""

    def feed(self, data: bytes) -> bytes:
        """What can be passed on: up to the last line end or carriage return, so that no secret is cut in two."""
        data = self._held + data
        end = max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
        if len(data) - end > 1 << 20:  # a line without end: it is passed on in pieces
            end = len(data)
        self._held = data[end:]
        return mask_secrets(data[:end])

    def flush(self) -> bytes:
        """The rest, at the end of the stream."""
        rest, self._held = self._held, b""
        return mask_secrets(rest)
