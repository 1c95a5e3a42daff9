"""JSON and what Python prints are the same values."""

import json
import math
import random

import pytest

from tui.core.results.external.decoding import decoded


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("{'a': 1, 'b': -2.5e-3, 'c': True, 'd': None}", {"a": 1, "b": -0.0025, "c": True, "d": None}),
        ("{'a': \"it's\", 'b': 'a \\'b\\' \\n \\x41'}", {"a": "it's", "b": "a 'b' \n A"}),
        ("{'a': (1, 2), 'b': (3,), 'c': [], 'd': {}}", {"a": [1, 2], "b": [3], "c": [], "d": {}}),
        ("{'a': np.float64(1.5), 'b': numpy.int64(-2)}", {"a": 1.5, "b": -2}),
        ("[{'a': 1}, {'a': 2}]", [{"a": 1}, {"a": 2}]),
        ("{'a':\n {'b': [1,\n  2]}}", {"a": {"b": [1, 2]}}),
        ('{"a": [1, {"b": null}]}', {"a": [1, {"b": None}]}),
    ],
)
def test_a_value_is_read_up_to_its_end(text, value):
    assert decoded(f"x {text} and more", 2) == (value, 2 + len(text))


def test_figures_that_are_none_stay_so():
    (value, _) = decoded("{'a': nan, 'b': inf, 'c': -inf}", 0) or ({}, 0)
    assert math.isnan(value["a"])
    assert (value["b"], value["c"]) == (math.inf, -math.inf)


@pytest.mark.parametrize(
    "text",
    ["{'a': 1", "{'a': x}", "{'a': 'b", "{'a'}", "{'a': 1]", "{'a': f(1, 2)}", "{'a': '\n'}", "{'a': [" * 30, "{'"],
)
def test_what_is_no_value_is_none(text):
    assert decoded(text, 0) is None


def test_any_mixture_of_tokens_ends_in_a_value_or_in_none():
    rng = random.Random(1)
    tokens = [
        "{",
        "}",
        "[",
        "]",
        "(",
        ")",
        "'a'",
        "'",
        '"',
        ":",
        ",",
        "1",
        "e",
        "nan",
        "np.f(",
        "\\",
        "\n",
        "-",
        "True",
    ]
    for _ in range(3000):
        text = "{'" + "".join(rng.choices(tokens, k=12))
        if (found := decoded(text, 0)) is not None:
            json.dumps(found[0])
