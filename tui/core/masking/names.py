"""Names that mean a secret: HF_TOKEN, api-key, apiKey, GITHUB_PAT, PGPASS, SESSION_COOKIE; not tokenizer_path, MAX_TOKENS, KEYBOARD."""

import re
from functools import lru_cache

# Words that mean a secret wherever they stand in a name, unless it ends in one of `_ABOUT`.
_ALWAYS = frozenset(
    "secret secrets password passwords passwd passphrase credential credentials cookie cookies apikey apikeys webhook"
    " pgpass sshpass".split()
)
# Words that mean one at the end of a name, and what may stand before them where they do not.
_LAST = {
    "token": "eos bos pad sep unk cls mask stop next per max min special think mtp draft image audio video last first num"
    " new prompt input output begin end start tool media extra placeholder reasoning",
    "key": "primary foreign sort cache partition group hot index public row label metric routing object hash dict shard"
    " state weight param module layer tensor unexpected missing",
    "pass": "forward backward single multi two first second per num one max",
    "auth": "no disable enable use require skip allow",
    "pat": "",
    "pwd": "",
    "dsn": "",
}
# Several of them are counted, listed or sorted by; of these they are secrets.
_PLURAL = {
    "tokens": "api auth access bearer refresh hf secret",
    "keys": "api auth access secret private ssh signing encryption master service",
}
_GLUED = re.compile(r".+(?:token|secret|password|passwd|passphrase|credentials?|cookie|apikey|key|pass|auth)")
_NOT_GLUED = re.compile(
    r"(?:.*(?:monkey|turkey|donkey|hockey|jockey|whiskey|hotkey|pubkey|keykey|bypass|compass|surpass|trespass"
    r"|overpass|underpass|askpass))|detoken|retoken|subtoken"
)
_ABOUT = frozenset(
    "file path dir directory sock socket size len length count limit max min num type format mode name id ttl timeout"
    " expiry interval enabled required policy method env var helper command dtype".split()
)
_WHICH = re.compile(r"v?\d+|prod|production|dev|staging|test|read|write|ro|rw|old|new|main|backup|default|secondary")
_PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")


@lru_cache(maxsize=4096)
def secret_name(name: str) -> bool:
    """Whether a variable or flag of this name holds a secret."""
    words = [word.lower() for word in _PARTS.findall(name[:200])]
    while len(words) > 1 and _WHICH.fullmatch(words[-1]):
        words.pop()
    if not words or words[-1] in _ABOUT:
        return False
    *before, last = words
    near = before[-1] if before else ""
    if not _ALWAYS.isdisjoint(words):
        return True
    if last in _LAST:
        return near not in _LAST[last].split() and (last != "pwd" or bool(before))
    if last in _PLURAL:
        return near in _PLURAL[last].split()
    return _GLUED.fullmatch(last) is not None and _NOT_GLUED.fullmatch(last) is None


def telling_name(name: str) -> bool:
    """Whether such a name means a secret in running text too, where `key`, `token` or `pass` may be any word."""
    return secret_name(name) and (name.isupper() or len(_PARTS.findall(name[:200])) > 1 or name.lower() in _ALWAYS)
