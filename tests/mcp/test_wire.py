"""A request that cannot be read is answered; no text of a client's ends the server or goes unanswered."""

import json
import subprocess
import sys

import pytest

pytest.importorskip("mcp", reason="pip install 'eagletui[mcp]'")

import mcp_types
from pydantic import ValidationError

from tui.mcp.wire import request_id, unreadable

DEEP = "[" * 5000 + "]" * 5000
MAPS = '{"a":' * 150 + "1" + "}" * 150
HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}


def request(number: object, arguments: str, tool: str = "wait", end: str = "}}") -> str:
    return (
        f'{{"jsonrpc":"2.0","id":{json.dumps(number)},"method":"tools/call",'
        f'"params":{{"name":"{tool}","arguments":{arguments}{end}'
    )


def test_what_cannot_be_read_gets_an_answer_and_the_next_call_too(home):
    lines = [
        json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": HELLO}),
        '{"jsonrpc":"2.0","method":"notifications/initialized"}',
        request(2, f'{{"run":{DEEP}}}'),
        request('a"b', r'{"run":"\ud800"}'),
        request(4, '{"run":"\ud800"}'),
        request(5, r'{"run":"a\u0000b"}'),
        request(6, f'{{"profile":"qwen3-0.6b-one-gpu","set":{MAPS}}}', "preview"),
        request(7, f'{{"profile":"qwen3-0.6b-one-gpu","set":"{"[" * 5000}"}}', "preview"),
        request(8, '{"run":"x"', end=""),
        request(9, f'{{"what":"{"x" * 200_000}"}}', "diagnose"),
        request(10, "{}", "hosts"),
    ]
    sent = "\n".join(lines).encode("utf-8", "surrogatepass") + b"\n"
    process = subprocess.Popen(
        [sys.executable, "-m", "tui", "mcp"],
        env=home.env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    with process:
        process.stdin.write(sent)
        process.stdin.flush()
        said = {}
        while len(said) < 10:
            answer = json.loads(process.stdout.readline())
            said[answer["id"]] = answer
        process.stdin.close()
        assert b"Traceback" not in process.stderr.read()
    assert {key: said[key]["error"]["code"] for key in (2, 'a"b', 8)} == {2: -32700, 'a"b': -32700, 8: -32700}
    assert "recursion limit" in said[2]["error"]["message"]
    assert "half a character" in said['a"b']["error"]["message"]
    assert all(said[number]["result"]["isError"] for number in (4, 5, 6, 7, 9))
    assert said[5]["result"]["structuredContent"]["error"] == "bad_value"
    assert "demo" in said[10]["result"]["structuredContent"]["hosts"]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('{"id":7,"method":"x","params":[[[', 7),
        ('{"params":{"id":1,"method":"y"},"method":"x","id":"a\\"b"}', 'a"b'),
        ('{"params":"\\"id\\":1","method":"x","id": -3 }', -3),
        ('{"id":7,"result":{"method":1}}', None),  # an answer, or a notice: nobody waits
        ('{"method":"x","params":{"id":1}}', None),
        ('{"id":null,"method":"x"}', None),
        ('{"id":"\\ud800","method":"x"}', "\ud800"),
        ("not json", None),
        ("", None),
    ],
)
def test_the_id_of_a_request_is_found_without_reading_it(line, expected):
    assert request_id(line) == expected


def test_only_what_is_no_json_is_answered_here():
    for line, code in (('{"id":1,"method":"x",', -32700), ('{"id":1,"method":"x","jsonrpc":"1.0"}', None)):
        with pytest.raises(ValidationError) as caught:
            mcp_types.jsonrpc_message_adapter.validate_json(line)
        answer = unreadable(caught.value)
        assert (answer and answer.error.code) == code
