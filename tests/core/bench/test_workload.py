"""What a server is asked: bundled prompts, files of the user's, and the generator's plan."""

import hashlib
import json
from dataclasses import replace
from importlib import resources
from types import SimpleNamespace

import pytest

from tui.core.bench.driver import Order
from tui.core.bench.loadgen_driver import plan
from tui.core.bench.target import Seen, Target
from tui.core.bench.workload import bundled_prompts, dataset_of, read_jsonl, vocabulary
from tui.core.errors import UsageError
from tui.core.model.profile import BenchProfile, LoadPoint
from tui.remote.loadgen.plan import Plan

PROFILE = BenchProfile("p", (LoadPoint(concurrency=4), LoadPoint(concurrency=16)), runs=2, duration_s=20.0)


def test_the_bundled_prompts_are_many_different_and_named_by_their_sum():
    data = bundled_prompts()
    texts = [item["prompt"] for item in data.items]
    assert len(texts) == len(set(texts)) == 80
    assert all(20 < len(text) < 3000 and text == text.strip() for text in texts)
    file = resources.files("tui.data").joinpath("prompts.jsonl").read_bytes()
    assert data.sha == hashlib.sha256(file).hexdigest()
    kinds = [json.loads(line)["kind"] for line in file.decode().splitlines()]
    assert len(set(kinds)) == 9
    assert max(map(kinds.count, kinds)) < 20  # no kind of text decides the acceptance


def test_a_file_of_requests(tmp_path):
    lines = [
        {"prompt": "Say hello."},
        {"messages": [{"role": "system", "content": "Be short."}, {"role": "user", "content": "Hi"}]},
        {"prompt": "x", "max_tokens": 7, "id": "whatever"},
    ]
    path = tmp_path / "mine.jsonl"
    path.write_text("\ufeff" + "\n\n".join(map(json.dumps, lines)) + "\r\n", encoding="utf-8")
    data = read_jsonl(path)
    assert data.items == (lines[0], lines[1], {"prompt": "x", "output_len": 7})
    assert (data.kind, data.name, data.needs_chat, data.has_ids) == ("jsonl", "mine.jsonl", True, False)
    assert data.sha == hashlib.sha256(path.read_bytes()).hexdigest()
    path.write_text('{"input_ids": [1, 2, 3]}\n{"prompt": "a"}')
    assert read_jsonl(path).has_ids


def test_every_bad_line_is_named_with_its_number(tmp_path):
    path = tmp_path / "bad.jsonl"
    path.write_text(
        "\n".join(
            [
                '{"prompt": "fine"}',
                "not json",
                "[1]",
                '{"text": "x"}',
                '{"prompt": ""}',
                '{"prompt": "a", "input_ids": [1]}',
                '{"messages": []}',
                '{"messages": [{"role": "robot", "content": "x"}]}',
                '{"messages": [{"role": "user", "content": ["x"]}]}',
                '{"messages": [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}]}',
                '{"input_ids": [1, -2]}',
                '{"prompt": "x", "output_len": 0}',
            ]
        )
    )
    with pytest.raises(UsageError) as caught:
        read_jsonl(path)
    said = caught.value.message.removeprefix(f"{path}: ").split("; ")
    assert said == [
        "line 2: is not JSON",
        "line 3: is not a JSON object",
        "line 4: has none of prompt, messages, input_ids",
        "line 5: its prompt is not text",
        "line 6: has prompt and input_ids",
        "line 7: its messages are not a list",
        "line 8: its message 1 has no role (system, user, assistant, tool, developer)",
        "line 9: its message 1 has no text as content",
        "line 10: its last message is the assistant's own",
        "line 11: its input_ids are not a list of token numbers",
        "line 12: its output_len is not a number of tokens",
    ]
    assert caught.value.slug == "bad_dataset"
    assert caught.value.hint


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "no line holds a request"),
        (b'{"prompt": "\xff"}', "line 1 is not UTF-8"),
        (b'{"prompt": "a"}\n{"prompt": "\xff"}', "line 2 is not UTF-8"),
        (b'{"input_ids": [1]}\n{"messages": [{"role": "user", "content": "a"}]}', "which no server takes"),
        (b"x" * (4 << 20), "are sent"),
        (b"x\n" * 100, "and 80 more"),
    ],
)
def test_a_file_that_cannot_be_used(tmp_path, content, words):
    path = tmp_path / "x.jsonl"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=words):
        read_jsonl(path)


def test_a_file_is_looked_for_beside_its_profile_then_here(tmp_path, monkeypatch):
    (tmp_path / "profiles").mkdir()
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    (here / "d.jsonl").write_text('{"prompt": "here"}')
    profile = replace(PROFILE, dataset="d.jsonl", path=tmp_path / "profiles" / "p.toml")
    assert dataset_of(profile).items[0]["prompt"] == "here"
    (tmp_path / "profiles" / "d.jsonl").write_text('{"prompt": "beside"}')
    assert dataset_of(profile).items[0]["prompt"] == "beside"
    with pytest.raises(UsageError) as caught:
        dataset_of(replace(PROFILE, dataset="~/none.jsonl"))
    assert caught.value.slug == "unknown_file"


@pytest.mark.parametrize("size", [None, 1024, 32000, 163840])
def test_random_ids_keep_away_from_special_tokens(size):
    low, high = vocabulary(size)
    assert 1 <= low < high
    if size:
        assert low >= size // 100
        assert high <= size * 0.9


def plan_of(profile, api, seed):
    server = Target("http://127.0.0.1:30000", SimpleNamespace(log_path=None, gpus=(0, 1)))
    return plan(Order(profile, dataset_of(profile), server, Seen(api), seed, "python3", {}))


@pytest.mark.parametrize(
    ("dataset", "api", "ends_by_itself"), [("prompts", "chat", True), ("random-ids", "generate", False)]
)
def test_the_plan_is_one_that_the_generator_takes(dataset, api, ends_by_itself, tmp_path):
    profile = replace(PROFILE, dataset=dataset)
    document = plan_of(profile, api, 3)
    taken = Plan(json.loads(json.dumps(document)))
    assert taken.ignore_eos is not ends_by_itself
    assert taken.temperature == 0
    assert taken.points == [{"concurrency": 4}, {"concurrency": 16}]
    assert (taken.runs, taken.duration_s, taken.output_len) == (2, 20.0, 512)
    assert taken.gpus == [0, 1]
    assert taken.warmup_s == 20.0
    assert taken.input_len == (0 if ends_by_itself else 256)
    rated = replace(profile, points=(LoadPoint(rate=2.5),), input_len=99)
    document = plan_of(rated, api, 1)
    assert document["points"] == [{"rate": 2.5}]
