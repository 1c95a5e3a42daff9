"""Flags by version: names, renames, types, versions, and asking a host for its own."""

from pathlib import Path

import pytest

from tui.core.config import HostEntry, state_dir
from tui.core.link.local import LocalTransport
from tui.core.sglang.flags import (
    flag_table,
    flags_of,
    learn_flags,
    learned_flags,
    map_args,
    parse_help,
    parse_version,
    takes_config,
    unabbreviate,
    unknown_flags,
    version_matches,
)

HELP = Path(__file__).parents[2] / "data" / "commands" / "help_0_5_23.txt"
NEWEST = flags_of("0.5.23")


def test_the_table_is_the_help_of_the_newest_version():
    asked = parse_help(HELP.read_text(encoding="utf-8"))
    listed = flag_table().newest_flags
    assert len(asked) > 500
    assert {flag for flag in asked - listed if not flag.startswith("no-")} == {"help"}
    # tp, dp, pp are abbreviations that everybody writes; two flags are hidden from the help text.
    assert listed - asked == {
        "tp", "dp", "pp", "forward-pass-metrics-worker-id", "forward-pass-metrics-ipc-name"
    }  # fmt: skip


def test_help_of_something_else_has_no_flags():
    assert parse_help("usage: python [option]\n  --version  print it\n") == frozenset()


@pytest.mark.parametrize(
    ("version", "notes", "sent"),
    [
        ("0.5.10.post1", 0, "cuda-graph-max-bs"),
        ("0.5.14", 0, "cuda-graph-max-bs"),
        ("0.5.19", 0, "cuda-graph-max-bs"),
        ("0.5.20", 1, "cuda-graph-max-bs-decode"),
        ("0.5.23", 1, "cuda-graph-max-bs-decode"),
        ("0.6.0", 1, "cuda-graph-max-bs-decode"),
        (None, 0, "cuda-graph-max-bs"),
    ],
)
def test_old_name_becomes_what_the_host_takes(version, notes, sent):
    mapped = map_args({"cuda-graph-max-bs": 128}, version, flags_of(version))
    assert mapped.args == ((sent, 128),)
    assert len(mapped.notes) == notes
    if notes:
        assert mapped.notes[0] == (
            "cuda-graph-max-bs is called --cuda-graph-max-bs-decode since SGLang 0.5.20; the profile is unchanged"
        )


def test_new_name_becomes_the_old_one_on_an_old_host():
    mapped = map_args({"cuda-graph-max-bs-decode": 128}, "0.5.10", None)
    assert mapped.args == (("cuda-graph-max-bs", 128),)
    assert "before SGLang 0.5.14" in mapped.notes[0]


def test_the_hosts_own_flags_outrank_the_table():
    own = frozenset({"cuda-graph-max-bs", "model-path"})
    assert map_args({"cuda-graph-max-bs-decode": 1}, "0.5.23+fork", own).args == (("cuda-graph-max-bs", 1),)


def test_a_switch_becomes_values_or_environment():
    mapped = map_args({"disable-piecewise-cuda-graph": True, "enable-beta-spec": True}, "0.5.23", NEWEST)
    assert mapped.args == (("cuda-graph-backend-prefill", "disabled"),)
    assert mapped.env == {"SGLANG_ENABLE_SPEC_V2": "1"}
    assert len(mapped.notes) == 2
    explicit = {"disable-piecewise-cuda-graph": True, "cuda-graph-backend-prefill": "full"}
    assert map_args(explicit, "0.5.23", NEWEST).args == (("cuda-graph-backend-prefill", "full"),)


def test_aliases_pass_where_the_host_takes_them_and_else_become_the_name_it_takes():
    assert map_args({"tp": 8}, "0.5.23", NEWEST).args == (("tp", 8),)
    assert map_args({"pp": 2}, "0.5.23", NEWEST).args == (("pp-size", 2),)  # --pp is ambiguous
    assert map_args({"tensor-parallel-size": 8}, "x", frozenset({"tp-size"})).args == (("tp-size", 8),)


def test_abbreviations_are_argparses():
    assert unabbreviate("mem-fraction", NEWEST) == "mem-fraction-static"
    assert unabbreviate("cuda-graph-max-bs", NEWEST) is None  # ambiguous
    names = ["--tp", "--cuda-graph-max-bs", "--nonsense"]
    assert unknown_flags(names, NEWEST) == ("--cuda-graph-max-bs", "--nonsense")
    assert unknown_flags(["--nonsense"], None) == ()


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("mem-fraction-statc", "mem-fraction-static"),
        ("mem_fraction_statc", "mem-fraction-static"),
        ("tensor-paralel-size", "tp-size"),
        ("speculative-eagle-top-k", "speculative-eagle-topk"),
        ("xyzzy", None),
    ],
)
def test_did_you_mean(typed, meant):
    assert flag_table().suggest(typed) == meant


def test_config_files_since():
    assert not takes_config("0.5.2", None)
    assert takes_config("0.5.3", None)
    assert not takes_config(None, None)
    assert takes_config("0.1", frozenset({"config"}))


@pytest.mark.parametrize(
    ("version", "condition", "met"),
    [
        ("0.5.10.post1", ">=0.5.10,<0.6", True),
        ("0.5.9", ">=0.5.10", False),
        ("0.5.10rc1", ">=0.5.10", False),
        ("0.5.10", "==0.5.10.0", True),
        ("0.5.10", "!=0.5.10", False),
        ("12.0", "<12.0", False),
        ("9.0", "<12.0", True),
        ("595.58.03", ">=580", True),
        ("0.5.23", "~=0.5.3", True),
        ("0.5.2", "~=0.5.3", False),
        ("0.6.0", "~=0.5.3", False),
        ("0.6.0rc1", "~=0.5.3", False),
        ("2.8", "~=2", True),
        ("2.9.1+cu130", ">2.9", True),
        ("0.5.23", "0.5.20", True),
        ("unknown", ">=1", None),
        ("1", "newest", None),
    ],
)
def test_version_conditions(version, condition, met):
    assert version_matches(version, condition) is met


def test_versions_sort():
    names = ["0.5.9", "0.5.10.dev1", "0.5.10a1", "0.5.10rc1", "0.5.10", "0.5.10.post1", "0.5.11"]
    keys = [parse_version(name) for name in names]
    dev, alpha = keys[1], keys[2]
    assert keys == sorted(keys)
    assert dev < alpha


@pytest.fixture
def python(tmp_path):
    """A stand-in for the host's interpreter: prints SGLang's help, counts how often."""
    program = tmp_path / "python"
    program.write_text(f'#!/bin/sh\necho x >> "{tmp_path}/count"\n[ "$A" = "b c" ] && cat "{HELP}"\n')
    program.chmod(0o755)
    return program


async def test_a_version_is_asked_once(python, tmp_path):
    transport = LocalTransport()
    await transport.connect()
    entry = HostEntry("h", "h", str(python), {"A": "b c"})
    try:
        assert flags_of("0.5.99") is None
        flags = await learn_flags(transport, entry, "0.5.99")
        assert flags is not None
        assert "cuda-graph-max-bs-decode" in flags
        assert await learn_flags(transport, entry, "0.5.99") == flags
        assert (tmp_path / "count").read_text() == "x\n"
        assert flags_of("0.5.99") == flags
        assert learned_flags() == flags
    finally:
        await transport.close()


async def test_a_host_that_does_not_say_is_no_error(python):
    transport = LocalTransport()
    await transport.connect()
    try:
        assert await learn_flags(transport, HostEntry("h", "h", str(python)), "0.5.98") is None
        assert await learn_flags(transport, HostEntry("h", "h", "/nonexistent"), "0.5.97") is None
    finally:
        await transport.close()


async def test_a_broken_cache_is_asked_anew(python):
    path = state_dir() / "flags" / "0.5.99.json"
    path.parent.mkdir(parents=True)
    path.write_text("{")
    transport = LocalTransport()
    await transport.connect()
    try:
        assert await learn_flags(transport, HostEntry("h", "h", str(python), {"A": "b c"}), "0.5.99")
    finally:
        await transport.close()
