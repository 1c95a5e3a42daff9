"""Secrets in a log: masked in every form that servers print them in, everything else byte for byte."""

from pathlib import Path

import pytest

from tui.core.masking.names import secret_name
from tui.core.masking.written import SecretMask, mask_secrets


@pytest.mark.parametrize(
    ("line", "masked"),
    [
        (b"ServerArgs(api_key='a b', tp=8)", b"ServerArgs(api_key='***', tp=8)"),
        (b"{'admin_api_key': \"s\", 'x': 1}", b"{'admin_api_key': \"***\", 'x': 1}"),
        (b"OPENAI_API_KEY=sk-1 python x", b"OPENAI_API_KEY=*** python x"),
        (b"HF_TOKEN=hf_short", b"HF_TOKEN=***"),
        (b"got hf_abcdefghijklmnopq now", b"got hf_*** now"),
        (b"--api-key sk1 --tp 8", b"--api-key *** --tp 8"),
        (b"--admin-api-key=sk1", b"--admin-api-key=***"),
        (b"['--api-key', 'sk1', '--tp']", b"['--api-key', '***', '--tp']"),
        (b"Authorization: Bearer sk-abcdefgh", b"Authorization: Bearer ***"),
        (b"proxy http://me:pw@host:3128/", b"proxy http://me:***@host:3128/"),
        # A server that prints its environment.
        (b"MY_TOKEN=a", b"MY_TOKEN=***"),
        (
            b"environ({'AWS_SECRET_ACCESS_KEY': 'a/b', 'HOME': '/'})",
            b"environ({'AWS_SECRET_ACCESS_KEY': '***', 'HOME': '/'})",
        ),
        (b'{"MY_CREDENTIALS": "a", "PASSPHRASE": "b"}', b'{"MY_CREDENTIALS": "***", "PASSPHRASE": "***"}'),
        (b"GITHUB_PAT=a PGPASS=b DB_PWD=c", b"GITHUB_PAT=*** PGPASS=*** DB_PWD=***"),
        (b"SESSION_COOKIE=a AUTH=b OPENAI_KEY=c", b"SESSION_COOKIE=*** AUTH=*** OPENAI_KEY=***"),
        (b"CLIENT_SECRET_V2=a", b"CLIENT_SECRET_V2=***"),
    ],
)
def test_a_secret_is_masked(line: bytes, masked: bytes) -> None:
    assert mask_secrets(line) == masked
    assert mask_secrets(b"\xff\x1b[31m\n" + line + b"\r\nnext") == b"\xff\x1b[31m\n" + masked + b"\r\nnext"


@pytest.mark.parametrize(
    "line",
    [
        b"api_key=None, 'admin_api_key': None, ssl_keyfile_password=None",
        b"token usage: 0.50, max_total_num_tokens=118848, tokenizer_path='/m'",
        b"Uvicorn running on http://127.0.0.1:30000 (Press CTRL+C to quit)",
        b"the bearer of the password: required",
        b"PATH=/bin PWD=/root OLDPWD=/ MAX_TOKENS=3 KEYS=2 AUTHOR=me TOKENIZERS_PARALLELISM=0 PATTERN=x",
    ],
)
def test_what_is_none_stays(line: bytes) -> None:
    assert mask_secrets(line) == line


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        *((name, True) for name in ("HF_TOKEN", "api-key", "hf-token", "OPENAI_KEY", "GITHUB_PAT", "PAT", "PGPASS")),
        *((name, True) for name in ("AUTH", "SESSION_COOKIE", "DB_PWD", "MY_SECRET_2", "GOOGLE_CREDENTIALS")),
        *((name, False) for name in ("PATH", "PWD", "OLDPWD", "MAX_TOKENS", "tokenizer-path", "NCCL_DEBUG", "AUTHOR")),
    ],
)
@pytest.mark.fault(
    "F4", "a server prints its environment", sees="`***`", holds="names that mean a secret are known broadly"
)
def test_names_that_mean_a_secret(name: str, secret: bool) -> None:
    assert secret_name(name) is secret


def test_a_secret_cut_in_two_is_masked_all_the_same() -> None:
    text = b"one\n--api-key sk-very-secret --tp 8\rtwo\nthree"
    for cut in range(len(text)):
        mask = SecretMask()
        assert mask.feed(text[:cut]) + mask.feed(text[cut:]) + mask.flush() == mask_secrets(text)


LOGS = sorted((Path(__file__).parents[2] / "data" / "logs").rglob("*.log"))


@pytest.mark.parametrize("log", LOGS, ids=lambda path: path.stem)
def test_a_recorded_log_without_a_secret_goes_through_byte_for_byte(log):
    data = log.read_bytes()
    assert mask_secrets(data) == data


@pytest.mark.parametrize(
    "text",
    [
        "hf_chat_template_name': None",
        "'watermark_key': '<redacted>'",
        "[--ssl-keyfile-password SSL_KEYFILE_PASSWORD]",
        "-e HF_TOKEN=$HF_TOKEN -e A=1",
        "--api-key=$(KEY) --api-key <your-key>",
        "sk-learn-pipeline-of-many-words",
    ],
)
def test_what_only_looks_like_a_secret_stays(text):
    assert mask_secrets(text.encode()) == text.encode()
