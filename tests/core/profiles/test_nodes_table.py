"""`[nodes]` in a launch profile."""

import pytest

from tests.support.profiles import BASE, errors_of
from tui.core.profiles.difference import profile_difference
from tui.core.profiles.files import ProfileBroken
from tui.core.profiles.launch_profile import NodesTable
from tui.core.profiles.load import load_launch

NODES = '[nodes]\nhosts = ["gpu3", "gpu4"]\n'
CHILD = 'kind = "launch"\nextends = "base"\n'


def test_hosts_in_the_order_of_ranks_and_defaults(folder) -> None:
    assert load_launch("x", [folder(x=BASE + NODES)]).nodes == NodesTable(("gpu3", "gpu4"), None, 20000)


def test_a_child_changes_a_key_of_its_base(folder) -> None:
    directory = folder(base=BASE + NODES, child=CHILD + '[nodes]\ninterface = "ib0"\n')
    assert load_launch("child", [directory]).nodes == NodesTable(("gpu3", "gpu4"), "ib0")
    assert load_launch("child", [directory], ["nodes.hosts=a,b,c", "nodes.dist_port=20100"]).nodes == NodesTable(
        ("a", "b", "c"), "ib0", 20100
    )


def test_of_host_and_nodes_the_later_word_holds(folder) -> None:
    directory = folder(
        base=BASE.replace("[args]", 'host = "gpu1"\n[args]', 1), over=CHILD + NODES,
        back='kind = "launch"\nextends = "over"\nhost = "gpu2"\n',
    )  # fmt: skip
    over, back = load_launch("over", [directory]), load_launch("back", [directory])
    assert (over.host, over.nodes) == (None, NodesTable(("gpu3", "gpu4")))
    assert (back.host, back.nodes) == ("gpu2", None)
    assert {line.key for line in profile_difference(back, over)} >= {"nodes.hosts", "host"}


@pytest.mark.parametrize(
    ("more", "key", "says"),
    [
        ('[nodes]\nhosts = ["a"]', "nodes.hosts", "needs at least 2 entries"),
        ('[nodes]\nhosts = ["a", "a"]', "nodes.hosts", "names a host twice"),
        ('[nodes]\nhosts = ["a", ""]', "nodes.hosts", "has an empty name"),
        ('[nodes]\nhosts = "a,b"', "nodes.hosts", "must be a list"),
        ('[nodes]\nhosts = ["a", "b"]\ndist_port = 70000', "nodes.dist_port", "must be at most 65,535"),
        ('[nodes]\nhosts = ["a", "b"]\ninterface = "e th0"', "nodes.interface", "is not the name of an interface"),
        ('[nodes]\nhosts = ["a", "b"]\nport = 1', "nodes.port", "unknown key"),
        ("[nodes]\ninterface = 'ib0'", "nodes.hosts", "is missing"),
    ],
)
def test_what_is_wrong_with_the_table(folder, more: str, key: str, says: str) -> None:
    assert says in errors_of(folder(x=BASE + more), "x")[key][0]


@pytest.mark.parametrize("flag", ["nnodes = 2", "node-rank = 1", 'dist-init-addr = "a:1"', 'nccl-init-addr = "a:1"'])
def test_flags_that_differ_from_node_to_node_are_not_given_by_hand(folder, flag: str) -> None:
    errors = errors_of(folder(x=f"{BASE}\n{flag}\n{NODES}"), "x")
    assert errors[f"args.{flag.split()[0]}"] == ("is what [nodes] sets on each host", "remove it, or [nodes]")


def test_nor_by_a_base_or_an_override(folder) -> None:
    directory = folder(base=f"{BASE}\nnnodes = 2\n", child=CHILD + NODES, good=BASE + NODES)
    with pytest.raises(ProfileBroken, match=r"args\.nnodes: is what \[nodes\] sets"):
        load_launch("child", [directory])
    with pytest.raises(ProfileBroken, match=r"args\.node-rank: is what \[nodes\] sets"):
        load_launch("good", [directory], ["node-rank=1"])
    assert load_launch("child", [directory], {"nnodes": False}).nodes is not None


@pytest.mark.parametrize("given", ["nodes.hosts=a", "nodes.dist_port=x", "nodes.colour=red"])
def test_overrides_are_checked_as_the_file_is(folder, given: str) -> None:
    with pytest.raises(ProfileBroken, match=given.partition("=")[0].replace(".", r"\.")):
        load_launch("x", [folder(x=BASE + NODES)], [given])


def test_other_servers_have_no_nodes_that_we_know(folder) -> None:
    text = f'kind = "launch"\ncommand = ["vllm"]\n{NODES}'
    assert "exclude each other" in errors_of(folder(x=text), "x")["nodes"][0]
    text = f'kind = "launch"\nhost = "gpu1"\n[args]\nmodel-path = "/m"\n{NODES}'
    assert "host exclude each other" in errors_of(folder(x=text), "x")["nodes"][0]
