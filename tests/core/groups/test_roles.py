"""What is checked between prefill, decode and router before anything is started: pure, and on this machine."""

import socket
from dataclasses import replace

import pytest

from tests.support import fakes
from tests.support.profiles import SPLIT, errors_of
from tests.support.role_lab import RoleLab
from tui.core.config import HostEntry
from tui.core.groups.roles import Part, between, places
from tui.core.groups.session import new_group
from tui.core.host.gpus import HostFacts
from tui.core.model.group import Role
from tui.core.profiles.command import build_command
from tui.core.profiles.files import ProfileBroken
from tui.core.profiles.load import load_launch
from tui.core.profiles.roles import member_profile, router_profile
from tui.core.server import launch_records
from tui.core.server.finding import Finding, Level
from tui.core.server.launch import LaunchPlan, in_the_way
from tui.core.server.launch_records import LaunchRecord

TWO = SPLIT.replace("[group.prefill]", '[group.prefill]\nhost = "gpu1"').replace(
    "[group.decode]", '[group.decode]\nhost = "gpu2"'
)


def parts_of(tmp_path, text: str, *, versions=("0.5.23", "0.5.23"), files=(None, None)) -> list[Part]:
    (tmp_path / "split.toml").write_text(text)
    profile = load_launch("split", [tmp_path])
    group = new_group(profile.name, places(profile, "gpu1"))
    apart = len(group.hosts) > 1
    addresses = {"gpu1": "10.0.0.1", "gpu2": "10.0.0.2"} if apart else {"gpu1": "127.0.0.1"}
    urls = [
        (table, f"http://{table.address or addresses[member.host]}:{table.port}")
        for member, table in zip(group.members[:-1], profile.group[:-1], strict=True)
    ]
    profiles = [member_profile(profile, table, apart=apart) for table, _ in urls]
    profiles.append(router_profile(profile, profile.group[-1], "python3", urls))
    found = []
    for at, (member, table, one) in enumerate(zip(group.members, profile.group, profiles, strict=True)):
        version, sum_ = (*versions, None)[at], (*files, None)[at]
        facts = HostFacts(sglang=version)
        findings = (Finding("model", Level.OK, "there", files=sum_),) if sum_ else ()
        plan = LaunchPlan(one, build_command(one, HostEntry("h", "h"), version, None), findings, facts)
        found.append(Part(member, table, plan, table.address or addresses[member.host], member.host))
    return found


def said(tmp_path, text: str, **options) -> list[str]:
    return [f"{one.level}: {one.text}" for one in between(parts_of(tmp_path, text, **options), {})]


def test_a_group_without_a_fault_says_where_each_listens(tmp_path):
    assert said(tmp_path, SPLIT) == ["ok: prefill 0 on gpu1:30001, decode 0 on gpu1:30002, router on gpu1:30000"]
    assert said(tmp_path, TWO) == ["ok: prefill 0 on gpu1:30001, decode 0 on gpu2:30002, router on gpu1:30000"]


@pytest.mark.parametrize(
    ("text", "finding"),
    [
        # One of them names its host, which is where the others are launched: that is known at the launch alone.
        (TWO.replace('host = "gpu2"\ngpus = [2, 3]', 'host = "gpu1"\ngpus = [2, 3]\nport = 30000'),
         "block: port 30000 of gpu1 is taken by decode 0 as its port and by router as its port"),
        (SPLIT.replace("gpus = [2, 3]", 'host = "gpu1"\ngpus = [1, 2]'),
         "block: prefill 0 and decode 0 both take GPU 1 of gpu1: name gpus of each"),
        (TWO.replace("gpus = [2, 3]", 'gpus = [2, 3]\nargs = { host = "127.0.0.1" }'),
         "block: decode 0 listens on 127.0.0.1 of gpu2, where no other host reaches it: leave out host, or write 0.0.0.0"),
        (TWO.replace("gpus = [2, 3]", 'gpus = [2, 3]\naddress = "127.0.0.1"'),
         "block: address 127.0.0.1 of decode 0 is another machine on each host: write the address of gpu2"),
        (SPLIT + 'env = { SGLANG_DISAGGREGATION_WAITING_TIMEOUT = "3600" }\n',
         "warn: SGLANG_DISAGGREGATION_WAITING_TIMEOUT of decode 0 is 3600 s, the router gives up after 1800 s: "
         "raise request-timeout-secs of the router"),
    ],
)  # fmt: skip
def test_each_fault_is_one_line(tmp_path, text, finding):
    assert said(tmp_path, text) == [finding]


@pytest.mark.parametrize(
    ("text", "message", "advice"),
    [
        (SPLIT.replace("gpus = [2, 3]", "gpus = [1, 2]"),
         "prefill 0 and decode 0 both take GPU 1", "name gpus of each"),
        (SPLIT.replace("gpus = [2, 3]", "").replace("gpus = [0, 1]", ""),
         "prefill 0 and decode 0 both take GPU 0", "name gpus of each"),
        (TWO.replace('"gpu2"', '"gpu1"').replace("gpus = [2, 3]", 'env = { CUDA_VISIBLE_DEVICES = "1,5" }'),
         "prefill 0 and decode 0 both take GPU 1 of gpu1", "name gpus of each"),
        (SPLIT.replace("gpus = [2, 3]", "gpus = [2, 3]\nport = 30000"),
         "port 30000 is taken by decode 0 as its port and by router as its port", "give each a port of its own"),
        (SPLIT.replace("gpus = [2, 3]", "gpus = [2, 3]\nport = 8998"),
         "port 8998 is taken by prefill 0 as its bootstrap port and by decode 0 as its port", "give each a port of its own"),
        (SPLIT.replace("gpus = [0, 1]", "gpus = [0, 1]\nbootstrap_port = 29000"),
         "port 29000 is taken by prefill 0 as its bootstrap port and by router as its prometheus-port",
         "give each a port of its own"),
        (SPLIT.replace("gpus = [2, 3]", 'gpus = [2, 3]\nargs = { model-path = "/other" }'),
         "prefill 0 has model-path /m, decode 0 /other", "both sides need the same"),
        (SPLIT.replace("gpus = [2, 3]", 'gpus = [2, 3]\nargs = { disaggregation-transfer-backend = "nixl" }'),
         "prefill 0 has disaggregation-transfer-backend of SGLang's own choice, decode 0 nixl", "both sides need the same"),
        (TWO.replace("gpus = [2, 3]", "gpus = [2, 3]\nargs = { page-size = 64 }"),
         "prefill 0 has page-size of SGLang's own choice, decode 0 64", "both sides need the same"),
        (SPLIT + 'env = { SGLANG_DISAGGREGATION_WAITING_TIMEOUT = "10m" }\n',
         "SGLANG_DISAGGREGATION_WAITING_TIMEOUT of decode 0 is '10m'", "write whole seconds"),
    ],
)  # fmt: skip
def test_what_follows_from_the_profile_alone_is_said_when_it_is_read(tmp_path, text, message, advice):
    (tmp_path / "split.toml").write_text(text)
    assert errors_of(tmp_path, "split") == {"group": (message, advice)}
    with pytest.raises(ProfileBroken):
        load_launch("split", [tmp_path])


@pytest.mark.parametrize(
    "text",
    [
        TWO.replace("gpus = [2, 3]", "gpus = [0, 1]"),  # of another host
        TWO.replace("gpus = [2, 3]", "gpus = [2, 3]\nport = 30000"),
        SPLIT.replace("gpus = [0, 1]", "").replace("gpus = [2, 3]", "").replace("tp = 2", 'tp = 2\ndevice = "cpu"'),
        SPLIT.replace("gpus = [0, 1]", "").replace("gpus = [2, 3]", "args = { base-gpu-id = 2 }"),
    ],
)
def test_what_only_a_host_can_tell_is_no_fault_of_a_profile(tmp_path, text):
    (tmp_path / "split.toml").write_text(text)
    assert errors_of(tmp_path, "split") == {}


def test_a_set_may_solve_it_and_may_make_it(tmp_path):
    (tmp_path / "split.toml").write_text(SPLIT.replace("gpus = [2, 3]", "gpus = [1, 2]"))
    assert load_launch("split", [tmp_path], ["group.decode.gpus=2,3"]).group[1].gpus == (2, 3)
    (tmp_path / "split.toml").write_text(SPLIT)
    with pytest.raises(ProfileBroken, match="both take GPU 0, 1"):
        load_launch("split", [tmp_path], ["group.decode.gpus=0,1"])


def test_a_longer_patience_of_the_router_is_heard(tmp_path):
    waits = (
        SPLIT
        + 'env = { SGLANG_DISAGGREGATION_WAITING_TIMEOUT = "3600" }\n[group.router]\nargs = { request-timeout-secs = 4000 }\n'
    )
    assert said(tmp_path, waits)[0].startswith("ok: ")


def test_other_versions_and_other_files_of_the_model(tmp_path):
    assert said(tmp_path, TWO, versions=("0.5.23", "0.5.20")) == [
        "warn: prefill 0 runs sglang 0.5.23, decode 0 0.5.20: use one version"
    ]
    assert said(tmp_path, TWO, files=("10 abc", "10 abd")) == [
        "block: the model of prefill 0 on gpu1 is another one than that of decode 0 on gpu2: its files differ"
    ]
    assert said(tmp_path, TWO, files=("10 abc", "10 abc"))[0].startswith("ok: ")


def test_a_router_that_waits_less_than_starts_took_is_told(tmp_path):
    text = SPLIT + "[group.router]\nargs = { worker-startup-timeout-secs = 300 }\n"
    parts = parts_of(tmp_path, text)
    for part, took in zip(parts, (280.0, 100.0, 2.0), strict=True):
        group = new_group("split", [(one.member.role, one.member.number, "gpu1") for one in parts])
        member = next(one for one in group.members if one.name == part.member.name)
        launch_records.write(
            LaunchRecord(member.run_id, "gpu1", "server", "split", "2026-11-30T12:00:00Z", ready_after_s=took, group=group.extra())
        )  # fmt: skip
    assert [one.text for one in between(parts, {})] == [
        "prefill 0 took up to 280 s to start here, the router forgets it after 300 s: "
        "raise worker-startup-timeout-secs of the router"
    ]


def test_a_router_takes_no_gpus_from_anybody(tmp_path):
    *_, router = parts_of(tmp_path, SPLIT)
    anywhere = fakes.run(run_id="x-20261130T120000Z-7c31d0", gpus=(), port=1)  # on all GPUs, as far as anybody knows
    assert in_the_way(router.profile, router.plan.command, [anywhere]) == ()
    assert in_the_way(router.profile, router.plan.command, [replace(anywhere, port=30000)]) != ()
    group = new_group("split", places(router.profile, "gpu1") or [(Role.ROUTER, 0, "gpu1")])
    of_group = replace(anywhere, run_id=group.members[-1].run_id, extra={"group": group.extra()})
    prefill = parts_of(tmp_path, SPLIT)[0]
    assert in_the_way(prefill.profile, prefill.plan.command, [anywhere]) == (anywhere,)
    assert in_the_way(prefill.profile, prefill.plan.command, [of_group]) == ()


async def test_ports_that_are_taken_and_a_router_that_is_not_installed(make_hosts, tmp_path):
    lab = RoleLab(make_hosts("gpu1"), tmp_path, "python3")
    other = RoleLab(make_hosts("gpu1"), tmp_path, "python3")
    with socket.create_server(("127.0.0.1", lab.bootstrap_port)):
        plan = await lab.plan(router='env = { X = "1" }')
    assert plan.blocked
    texts = [finding.text for finding in plan.findings if finding.level is Level.BLOCK]
    assert texts[0].startswith(f"port {lab.bootstrap_port} of gpu1, the bootstrap port of prefill 0, is in use by PID ")
    assert texts[1] == (
        "gpu1: python3 has no sglang_router: pip install sglang-router there, or name its program with command in [group.router]"
    )
    assert len(texts) == 2
    assert not [f for f in (await other.plan()).findings if "bootstrap port" in f.text]
