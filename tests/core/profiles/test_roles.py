"""`[group]` of a launch profile: what may stand in it, what is found wrong, and the commands that come of it."""

import pytest

from tests.support.profiles import SPLIT
from tui.core.config import HostEntry
from tui.core.profiles.command import build_command
from tui.core.profiles.difference import profile_difference
from tui.core.profiles.files import ProfileBroken
from tui.core.profiles.load import discover, load_launch
from tui.core.profiles.roles import member_profile, router_profile
from tui.core.profiles.secrets import MASK, public_sets

SEVERAL = """
kind = "launch"
env = { NCCL_DEBUG = "WARN", HF_HOME = "/hf" }
[args]
model-path = "/m"
port = 31000
api-key = "sk-1"
[[group.prefill]]
hosts = ["a", "b"]
[[group.prefill]]
host = "c"
port = 31001
bootstrap_port = 9000
env = { NCCL_DEBUG = false }
[[group.decode]]
host = "d"
args = { tensor-parallel-size = 4 }
[group.router]
host = "d"
policy = "round_robin"
command = ["smg", "launch"]
args = { log-level = "warn" }
"""


def errors_of(folder, text: str, sets=()) -> list[str]:
    with pytest.raises(ProfileBroken) as caught:
        load_launch("x", [folder(x=text)], sets)
    return [f"{error.key}: {error.message}" for error in caught.value.errors]


def argv(profile) -> tuple[str, ...]:
    return build_command(profile, HostEntry("h", "h"), None, None).argv


def commands(profile) -> list[tuple[str, ...]]:
    """Of all members, each on a host of the name of its own."""
    *workers, router = profile.group
    urls = [(table, f"http://{table.host}:{table.port}") for table in workers]
    profiles = [
        *(member_profile(profile, table) for table in workers),
        router_profile(profile, router, "python3", urls),
    ]
    return [argv(one) for one in profiles]


def test_the_least_that_a_group_says(folder):
    profile = load_launch("x", [folder(x=SPLIT)])
    assert [(one.name, one.port, one.bootstrap_port) for one in profile.group] == [
        ("prefill 0", 30001, 8998), ("decode 0", 30002, None), ("router", 30000, None),
    ]  # fmt: skip
    server = ("python3", "-m", "sglang.launch_server", "--model-path", "/m", "--tp", "2")
    urls = [(one, f"http://127.0.0.1:{one.port}") for one in profile.group[:2]]
    prefill, decode = (member_profile(profile, one) for one, _ in urls)
    assert argv(prefill) == (
        *server, "--disaggregation-mode", "prefill", "--disaggregation-bootstrap-port", "8998", "--port", "30001",
        "--enable-metrics",
    )  # fmt: skip
    assert argv(decode) == (*server, "--disaggregation-mode", "decode", "--port", "30002", "--enable-metrics")
    assert (prefill.gpus, decode.gpus) == ((0, 1), (2, 3))
    router = router_profile(profile, profile.group[2], "/opt/py", urls)
    assert argv(router) == (
        "/opt/py", "-m", "sglang_router.launch_router", "--pd-disaggregation", "--prefill", "http://127.0.0.1:30001", "8998",
        "--decode", "http://127.0.0.1:30002", "--host", "127.0.0.1", "--worker-startup-timeout-secs", "3600", "--port", "30000",
    )  # fmt: skip
    assert router.gpus == ()  # and sees none
    assert build_command(router, HostEntry("h", "h"), None, None).env["CUDA_VISIBLE_DEVICES"] == ""


def test_several_members_count_ports_up_and_take_what_their_table_says(folder):
    profile = load_launch("x", [folder(x=SEVERAL)])
    assert [(one.name, one.host, one.port, one.bootstrap_port) for one in profile.group] == [
        ("prefill 0", "a", 31002, 8998), ("prefill 1", "b", 31002, 8998), ("prefill 2", "c", 31001, 9000),
        ("decode 0", "d", 31003, None), ("router", "d", 31000, None),
    ]  # fmt: skip
    *_, third, decode, router = commands(profile)
    assert decode[decode.index("--tensor-parallel-size") :][:2] == ("--tensor-parallel-size", "4")
    assert router[:2] == ("smg", "launch")
    assert router[2:12] == (
        "--pd-disaggregation", "--prefill", "http://a:31002", "8998", "--prefill", "http://b:31002", "8998",
        "--prefill", "http://c:31001", "9000",
    )  # fmt: skip
    assert router[12:14] == ("--decode", "http://d:31003")
    assert router[-2:] == ("--port", "31000")
    assert router[router.index("--policy") :][:2] == ("--policy", "round_robin")
    assert "sk-1" not in "".join(
        map("".join, commands(profile))
    )  # the router is given its workers' key, by no argv shown
    assert member_profile(profile, profile.group[2]).env == {"HF_HOME": "/hf"}
    assert third.index("9000")


def test_in_a_container_the_router_is_the_images_and_gets_no_gpu(folder):
    profile = load_launch("x", [folder(x=SPLIT + '[container]\nimage = "lmsysorg/sglang:v0.5.23"\n')])
    router = argv(router_profile(profile, profile.group[-1], "/opt/py", []))
    assert router[router.index("lmsysorg/sglang:v0.5.23") + 1 :][:3] == ("python3", "-m", "sglang_router.launch_router")
    assert "--gpus" not in router
    assert "--gpus" in argv(member_profile(profile, profile.group[0]))


@pytest.mark.parametrize(
    ("lines", "wrong"),
    [
        ('[group.decode]\nbootstrap_port = 1', "group.decode.bootstrap_port: unknown key"),
        ("[group.prefill]\ntp = 1", "group.prefill.tp: unknown key"),
        ('[group.prefill]\nport = "x"', "group.prefill.port: must be a whole number"),
        ("[group.prefill]\ngpus = [1, 1]", "group.prefill.gpus: names a GPU twice"),
        ('[group.prefill]\nhosts = ["a", "a"]', "group.prefill.hosts: names a host twice"),
        ('[group.prefill]\nhost = ""', "group.prefill.host: must not be empty"),
        ('[group.prefill]\nhost = "a"\nhosts = ["b"]', "group.prefill.hosts: and host exclude each other"),
        ('[group.prefill]\nhosts = ["a", "b"]\naddress = "x"', "group.prefill.address: is one address for several hosts"),
        ('[group.prefill]\nargs = { disaggregation-mode = "decode" }',
         "group.prefill.args.disaggregation-mode: is set by the group"),
        ("[group.prefill]\nargs = { disaggregation_bootstrap_port = 1 }",
         "group.prefill.args.disaggregation_bootstrap_port: is set by the group"),
        ("[group.prefill]\nargs = { port = 1 }", "group.prefill.args.port: is set by the group"),
        ("[group.prefill]\nargs = { tp-szie = 1 }", "group.prefill.args.tp-szie: unknown flag"),
        ('[group.prefill]\nenv = { "A B" = "1" }', "group.prefill.env.A B: is not a name for an environment variable"),
        ('[group.router]\nargs = { prefill = "http://a" }', "group.router.args.prefill: is set by the group"),
        ('[group.router]\nargs = { policy = "random" }', "group.router.args.policy: is set by the group"),
        ("[group.router]\ngpus = [1]", "group.router.gpus: unknown key"),
        ('[args]\ndisaggregation-mode = "prefill"\n[group.decode]', "args.disaggregation-mode: is set by the group"),
        ("[group]\nprefill = []", "group.prefill: must not be empty"),
        ("[group]\nprefil = 1", "group.prefil: unknown key"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named_with_its_key(folder, lines, wrong):
    assert errors_of(folder, f'kind = "launch"\n{lines}\n') == [wrong]


def test_a_member_of_several_is_named_by_its_place(folder):
    text = 'kind = "launch"\n[[group.prefill]]\n[[group.prefill]]\ngpus = [1, 1]\nport = 0'
    assert errors_of(folder, text) == [
        "group.prefill.1.port: must be at least 1", "group.prefill.1.gpus: names a GPU twice",
    ]  # fmt: skip


def test_what_a_base_says_is_held_against_the_group_too(folder):
    base = 'kind = "launch"\n[args]\nmodel-path = "/m"\ndisaggregation-bootstrap-port = 9\n'
    with pytest.raises(ProfileBroken, match="disaggregation-bootstrap-port: is set by the group"):
        load_launch("x", [folder(base=base, x=SPLIT.replace("[args]", 'extends = "base"\n[args]'))])
    nodes = SPLIT.replace("[args]", '[nodes]\nhosts = ["a", "b"]\n[args]')
    assert errors_of(folder, nodes) == ["group: and nodes exclude each other"]


def test_a_group_needs_both_sides(folder):
    half = 'kind = "launch"\n[args]\nmodel-path = "/m"\n[group.prefill]\n'
    assert errors_of(folder, half) == ["group.decode: is missing"]
    assert discover([folder("q", x=half)])[0].errors


def test_extends_merges_tables_of_members_and_replaces_lists(folder):
    more = 'kind = "launch"\nextends = "x"\n[group.decode]\nargs = { tensor-parallel-size = 8 }\ngpus = [4]\n'
    tp = SPLIT.replace("gpus = [2, 3]", "gpus = [2, 3]\nargs = { tp = 4 }")
    other = 'kind = "launch"\nextends = "x"\n[[group.decode]]\ngpus = [2]\n[[group.decode]]\ngpus = [3]\nport = 5\n'
    dirs = [folder(x=tp, more=more, other=other)]
    decode = load_launch("more", dirs).group[1]
    assert (decode.args, decode.gpus) == ({"tensor-parallel-size": 8}, (4,))
    assert [one.port for one in load_launch("other", dirs).group] == [30001, 30002, 5, 30000]
    lines = {(line.sign, line.key) for line in profile_difference(load_launch("x", dirs), load_launch("more", dirs))}
    assert {("~", "group.decode.0.gpus"), ("-", "group.decode.0.args.tp")} <= lines


def test_set_reaches_all_members_of_a_role_or_one(folder):
    dirs = [folder(x=SPLIT, several=SEVERAL)]
    sets = [
        "group.decode.args.tp=8",
        "group.decode.gpus=4,5",
        "group.prefill.env.A=1",
        "group.router.policy=random",
        "tp=1",
    ]
    prefill, decode, router = load_launch("x", dirs, sets).group
    assert (decode.args, decode.gpus, prefill.env, router.args) == ({"tp": 8}, (4, 5), {"A": "1"}, {"policy": "random"})
    assert load_launch("x", dirs, sets).arg("tp") == 1
    several = load_launch(
        "several", dirs, ["group.prefill.1.port=7", "group.prefill.args.tp=3", "group.router.args.x=1"]
    )
    assert [one.port for one in several.group[:3]] == [31001, 31001, 7]
    assert [one.args for one in several.group[:3]] == [{"tp": 3}] * 3


@pytest.mark.parametrize(
    ("key", "wrong"),
    [
        ("group.prefill.1.port=1", "group.prefill.1.port: there is no prefill 1"),
        ("group.router.0.port=1", "group.router.0.port: there is no router 0"),
        ("group.prefill.args.tpp=1", "group.prefill.args.tpp: unknown flag"),
        ("group.prefill.gpus=0", "group.prefill.gpus: must be a list"),
        ("group.rooter.port=1", "group.rooter.port: unknown key"),
        ("group.prefill=1", "group.prefill: unknown key"),
    ],
)
def test_a_wrong_set_is_named(folder, key, wrong):
    assert errors_of(folder, SPLIT, [key]) == [wrong]


def test_secrets_of_members_are_masked():
    sets = {"group.prefill.args.api-key": "sk", "group.decode.1.env.HF_TOKEN": "hf", "group.router.args.log-level": "x"}
    assert public_sets(sets) == {
        "group.prefill.args.api-key": MASK, "group.decode.1.env.HF_TOKEN": MASK, "group.router.args.log-level": "x",
    }  # fmt: skip
