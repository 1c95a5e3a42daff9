"""Secrets by their values: found in every spelling and nowhere else, however many are known."""

import base64
import html
import json
import random
import shlex
import string
import urllib.parse

import pytest

from tests.support.secrets import PLAIN, SECRETS
from tui.core.masking import known
from tui.core.masking.known import hidden, hide, hide_bytes, learn, shown
from tui.core.masking.written import SecretMask, learn_words

WAYS = {
    "alone": lambda value: value,
    "in a word": lambda value: f"x{value}y",
    "in an address": lambda value: f"https://me:{urllib.parse.quote(value, safe='')}@host/x?y=1",
    "path of an address": lambda value: f"https://host/{urllib.parse.quote(value)}?y=1",
    "a form": lambda value: urllib.parse.urlencode({"a": "b", "token": value}),
    "lower-case percents": lambda value: "".join(
        char if char.isalnum() and char.isascii() else f"%{ord(char):02x}" if ord(char) < 128 else urllib.parse.quote(char).lower()
        for char in value
    ),
    "json": lambda value: json.dumps({"a": value}),
    "json, not ascii": lambda value: json.dumps([value], ensure_ascii=False),
    "json in json": lambda value: json.dumps({"log": json.dumps({"a": value})}),
    "python": lambda value: repr({"a": value}),
    "shell": lambda value: f"--x {shlex.quote(value)} y",
    "html": lambda value: f"<b>{html.escape(value, quote=False)}</b>",
    "html attribute": lambda value: f'<b x="{html.escape(value)}">',
    **{f"base64 at {n}": lambda value, n=n: base64.b64encode(b"u:" * n + value.encode() + b"z").decode() for n in range(3)},
    "base64 at 1": lambda value: base64.b64encode(b"u" + value.encode() + b"zz").decode(),
    "base64 for addresses": lambda value: base64.urlsafe_b64encode(value.encode()).decode(),
}  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("value", SECRETS)
def test_a_known_secret_is_masked_in_every_spelling(value: str, way: str) -> None:
    text = WAYS[way](value)
    assert hide(text) == text
    learn(value)
    # Of a short one a longer word is another word.
    if way == "in a word" and len(value) < 8:
        return
    assert "***" in hide(text)
    assert value not in hide(text)
    core = base64.b64encode(value.encode()).decode().rstrip("=")[:-1]
    assert core not in hide(text)
    around = f"[20:01:03 TP0] before {text} behind"
    masked = hide(around)
    assert masked.startswith("[20:01:03 TP0] before ")
    assert masked.endswith(" behind")
    assert hide_bytes(around.encode()).decode() == masked


def test_wherever_it_begins() -> None:
    learn("Zk9-Qw3rTy")
    for before in range(40):
        data = b"." * before + b"Zk9-Qw3rTy" + b"." * 9
        assert hide_bytes(data) == b"." * before + b"***" + b"." * 9


def test_what_was_cut_is_masked_too() -> None:
    learn("sk-0123456789abcdef")
    assert hide("key sk-0123456789…") == "key ***…"
    assert hide("… 456789abcdef …") == "… 456789abcdef …"
    assert hide("…89abcdef and more") == "…*** and more"
    assert hide("the end sk-01234567") == "the end ***"
    assert hide("sk-0123 is short") == "sk-0123 is short"


def test_texts_without_a_secret_stay() -> None:
    learn(*SECRETS)
    for text in PLAIN:
        assert hide(text) == text
        assert hide_bytes(text.encode()) == text.encode()


@pytest.mark.parametrize("value", ["", "abc", "12345", "EMPTY", "default", "secret", "******", "1234567", "•" * 8])
def test_what_is_no_secret_by_its_value(value: str) -> None:
    learn(value)
    assert hide(f"x {value} y") == f"x {value} y"


def test_documents_are_masked_text_by_text() -> None:
    learn('a"b,secret')
    document = {'a"b,secret': ['a"b,secret', 1, None, {"x": 'see a"b,secret.'}]}
    assert hidden(document) == {"***": ["***", 1, None, {"x": "see ***."}]}


def test_the_parts_of_a_value() -> None:
    learn("Bearer abcdef-123456", "first-of-two-keys-1,second-of-two-keys", "-----BEGIN\nMIIEvQIBADAN\n-----END")
    for part in ("abcdef-123456", "second-of-two-keys", "MIIEvQIBADAN"):
        assert hide(f"x {part} y") == "x *** y"


def test_the_gate_drops_sequences_first() -> None:
    learn("abcdef-123456")
    assert shown("abcdef\x1b[31m-123456") == "***"


def test_command_lines_give_their_secrets() -> None:
    learn_words(["docker", "run", "-e", "MY_TOKEN=from-option", "--api-key", "from-flag", "--hf-token=from-equals"])
    learn_words(
        ["curl", "-H", "Authorization: Bearer from-header-1", "http://me:from-address@host/", "--model", "plain-text"]
    )
    text = "from-option from-flag from-equals from-header-1 from-address plain-text"
    assert hide(text) == "*** *** *** *** *** plain-text"


def test_many_secrets_are_found_in_a_long_text_as_one_is() -> None:
    chance = random.Random(7)
    letters = string.ascii_letters + string.digits + "-_+/"
    values = ["".join(chance.choices(letters, k=chance.randint(6, 60))) for _ in range(60)]
    learn(*values)
    lines = [f"[20:01:03 TP{n % 8}] line {n} of a log, token usage: 0.{n:02d}" for n in range(3000)]
    for value, at in zip(values, chance.sample(range(3000), 60), strict=True):
        lines[at] += f" {value} "
    masked = hide_bytes("\n".join(lines).encode()).decode()
    assert masked.count("***") == 60
    assert not any(value in masked for value in values)


def test_a_secret_in_a_line_without_end_is_not_cut_in_two() -> None:
    learn("0123456789-abcdefgh")
    mask = SecretMask()
    out = b""
    for _ in range(3):
        out += mask.feed(b"x" * ((1 << 20) - 9) + b"0123456789-abc") + mask.feed(b"defgh")
    out += mask.flush()
    assert out.count(b"***") == 3
    assert b"0123456789" not in out


def test_what_is_read_late_is_known_in_time() -> None:
    known.learn_later(lambda: learn("late-but-known"))
    assert hide("late-but-known") == "***"
