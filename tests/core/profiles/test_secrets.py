"""What is a secret is neither stored nor shown."""

import pytest

from tests.support.profiles import BASE
from tui.core.profiles.load import load_launch
from tui.core.profiles.secrets import is_secret_env, public_sets


def test_what_is_stored_holds_no_secret(folder):
    sets = {"api-key": "sk-1", "args.admin_api_key": "sk-2", "env.HF_TOKEN": "hf-3", "tp": 4, "env.A": "b"}
    profile = load_launch("x", [folder(x=BASE)], sets)
    kept = repr(profile.public_args) + repr(public_sets(sets))
    assert not any(value in kept for value in ("sk-1", "sk-2", "hf-3"))
    assert profile.public_args["tp"] == 4
    assert public_sets(sets)["env.A"] == "b"


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        ("HF_TOKEN", True), ("HUGGING_FACE_HUB_TOKEN", True), ("OPENAI_API_KEY", True), ("AWS_SECRET_ACCESS_KEY", True),
        ("DB_PASSWORD", True), ("MY_SECRET", True), ("TOKENIZERS_PARALLELISM", False), ("NCCL_DEBUG", False),
        ("SGLANG_DEEPEP_NUM_MAX_DISPATCH_TOKENS_PER_RANK", False), ("HF_TOKEN_PATH", False),
    ],
)  # fmt: skip
def test_names_of_secrets(name, secret):
    assert is_secret_env(name) is secret
