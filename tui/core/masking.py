"""Secrets that SGLang prints into its own log are masked wherever a log leaves this program."""

import re

_HINTS = (b"api_key", b"hf_token", b"password", b"api-key", b"hf_")
_SECRET = re.compile(
    rb"((?:\w*api_key|hf_token|\w*password)['\"]?\s*[:=]\s*)(?:'[^']*'|\"[^\"]*\")"
    rb"|((?:--[\w-]*api-key|--ssl-keyfile-password)[ =]+)(?!None)[^\s'\",]+"
    rb"|\b(hf_)[A-Za-z0-9]{16,}"
)


def _hide(match: re.Match[bytes]) -> bytes:
    if match.group(1):
        return match.group(1) + b"'***'"
    if match.group(2):
        return match.group(2) + b"***"
    return match.group(3) + b"***"


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
        return self._mask(data[:end])

    def flush(self) -> bytes:
        """The rest, at the end of the stream."""
        rest, self._held = self._held, b""
        return self._mask(rest)

    @staticmethod
    def _mask(data: bytes) -> bytes:
        if not any(hint in data for hint in _HINTS):
            return data
        return _SECRET.sub(_hide, data)
