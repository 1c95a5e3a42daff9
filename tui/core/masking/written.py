"""Secrets by how they are written: beside a name that means one, as `Bearer …`, in an address, of a known make.

For texts of others (a log, a command line) whose secrets nobody told; known ones are masked too, wherever they stand.
"""

import re
from collections.abc import Iterable, Iterator, Mapping

from tui.core.masking.known import MASK, hide, hide_bytes, learn, longest_known
from tui.core.masking.names import secret_name, telling_name

# Cheap words, one of which is in every line that may hold a secret.
_HINT = re.compile(
    rb"_key|-key|-Key|piKey|KEY|hf_|--[\w-]{0,40}token|_token['\"=:]|TOKEN|assw|PASS|assphrase|ecret|SECRET|PWD|PAT=|redential"
    rb"|CREDENTIAL|ookie|COOKIE|AUTH|_auth|://|earer |uthorization|DSN|gh[opsu]_|github_pat_|sk-"
)
_HINT_IN_TEXT = re.compile(_HINT.pattern.decode())
# A name, the sign behind it, and a value: in quotes up to the next one (or the end: the line may be cut), else a word.
_SECRET = re.compile(
    rb"\b(?P<make>(?:hf_|gh[opsu]_)(?=[A-Za-z0-9]{16})|(?:github_pat_|sk-)(?=[A-Za-z_-]{0,80}\d))[A-Za-z0-9_-]{16,}"
    rb"|(?P<bearer>[Bb]earer |[Aa]uthorization['\"]?: ?['\"]?Basic )[\w.~+/=-]{8,}"
    rb"|(?P<user>://[^/\s@:'\"]{0,200}:)[^/\s@'\"]{1,400}(?=@)"
    rb"|(?<![\w.-])(?P<name>-{0,2}[A-Za-z_][\w-]{1,79})"
    rb"(?P<sign>\\{0,3}['\"]?\s{0,4}[:=]\s{0,4}|\\{0,3}['\"]?,?\s{1,4})"
    rb"(?:(?P<open>\\{0,3}(?:'|\"))(?P<body>(?:(?<=')[^'\r\n]*|(?<=\")[^\"\r\n]*))|(?P<word>[^\s'\",()\[\]{}]+))"
)
_IN_ADDRESS = re.compile(r"://[^/\s@:]{0,200}:([^/\s@]+)@")
_IN_DSN = re.compile(r"(?i)(?:^|[\s;])(?:password|pwd)\s?=\s?('[^']*'|[^\s;]+)")
_NOTHING = re.compile(rb"(?i)(?:none|null|true|false|\*+|<[\w -]*>|\$[({]?\w*[)}]?)?\\{0,3}")


def secret_value(value: str) -> bool:
    """Whether a value is a secret whatever its name is: user:password@ in an address, password= of a database."""
    return _IN_ADDRESS.search(value) is not None or _IN_DSN.search(value) is not None


def learn_value(value: str) -> None:
    """The value of a name that means a secret; of an address its password."""
    inner = [*_IN_ADDRESS.findall(value), *(found.strip("'") for found in _IN_DSN.findall(value))]
    if inner:
        from urllib.parse import unquote

        learn(*inner, *map(unquote, inner))
    else:
        learn(value)


def _secret(match: re.Match[bytes]) -> tuple[int, int] | None:
    """Where the secret of a match is; None where the name means none."""
    if match["name"] is None:
        return match.end(match.lastgroup or 0), match.end()
    name, sign = match["name"].decode(), match["sign"]
    part = "body" if match["open"] else "word"
    start, end = match.span(part)
    if part == "body":  # a quote that is escaped has its backslashes before it
        end = max(start, end - min(len(match["open"]) - 1, len(match[part]) - len(match[part].rstrip(b"\\"))))
    bare = name.lstrip("-")
    flag = name.startswith("--")
    if part == "word" and match[part].startswith((b"=", b"//")):  # a comparison, an address
        return None
    if b"=" not in sign and b":" not in sign:
        right = flag and secret_name(bare) and not match[part].startswith(b"-")
    elif part == "word" and b"=" not in sign:
        right = telling_name(bare) and ("_" in bare or "-" in bare or bare.isupper())
    else:
        right = secret_name(bare) if flag else telling_name(bare)
    meta = match[part].decode("ascii", "replace") == bare.upper().replace("-", "_")  # as `--help` names a value
    return (start, end) if right and not meta and not _NOTHING.fullmatch(match[part]) else None


def _places(line: bytes) -> Iterator[tuple[int, int]]:
    """Where secrets are, in order."""
    at = 0
    while match := _SECRET.search(line, at):
        found = _secret(match)
        if found is not None:
            yield found
        # Behind a name that means nothing its value may be the next name.
        at = match.end() if found is not None or match["name"] is None else match.end("name")


def _mask_line(line: bytes) -> bytes:
    parts, done = [], 0
    for start, end in _places(line):
        parts += [line[done:start], MASK.encode()]
        done = end
    return b"".join([*parts, line[done:]])


def secrets_in(text: str) -> list[str]:
    """The values in a text that are written as secrets."""
    data = text.encode("utf-8", "backslashreplace")
    return [data[start:end].decode() for start, end in _places(data)] if _HINT.search(data) else []


def learn_words(words: Iterable[str]) -> None:
    """What a command line gives as secrets: `--api-key X`, `--api-key=X`, `-e NAME=X`, `Authorization: Bearer X`, addresses."""
    flag = ""
    for word in words:
        if flag and not word.startswith("--"):
            learn_value(word)
        name, equals, value = word.partition("=")
        flag = name.lstrip("-") if name.startswith("--") and not equals and secret_name(name) else ""
        if equals and secret_name(name.rpartition(" ")[2]):
            learn_value(value)
        elif secret_value(word):
            learn_value(word)
        else:
            for found in secrets_in(word):
                learn(found)


def learn_environment(variables: Mapping[str, str]) -> None:
    """What an environment gives as secrets; a path is none (GIT_ASKPASS, SSH_AUTH_SOCK)."""
    for name, value in variables.items():
        if secret_value(value) or (secret_name(name) and not value.startswith(("/", "~"))):
            learn_value(value)


def mask_named(text: str) -> str:
    """The text with what is written as a secret masked, whether it is known or not."""
    if not _HINT_IN_TEXT.search(text):
        return text
    lines = text.encode("utf-8", "surrogatepass").splitlines(keepends=True)
    return b"".join(map(_mask_line, lines)).decode("utf-8", "surrogatepass")


def mask_text(text: str) -> str:
    """The text with every secret masked: known ones, and what is written as one."""
    return hide(mask_named(text))


def mask_secrets(data: bytes) -> bytes:
    """Whole lines, with the secrets in them replaced by `***`; every other byte is unchanged."""
    data = hide_bytes(data)
    if not _HINT.search(data):
        return data
    # Line by line: few lines have such a word, and the search for secrets is a hundred times slower than for words.
    lines = data.splitlines(keepends=True)
    return b"".join(_mask_line(line) if _HINT.search(line) else line for line in lines)


class SecretMask:
    """Masks a stream of bytes line by line; every other byte goes through unchanged and in order."""

    def __init__(self) -> None:
        self._held = b""

    def feed(self, data: bytes) -> bytes:
        """What can be passed on: up to the last line end or carriage return, so that no secret is cut in two."""
        data = self._held + data
        end = max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
        if len(data) - end > 1 << 20:  # a line without end: it is passed on in pieces, but not what may begin a secret
            data = hide_bytes(data)
            end = len(data) - longest_known()
        self._held = data[end:]
        return mask_secrets(data[:end])

    def flush(self) -> bytes:
        """The rest, at the end of the stream."""
        rest, self._held = self._held, b""
        return mask_secrets(rest)
