"""`[slurm]` in a launch profile; nothing hostile gets through it."""

import pytest

from tests.support.profiles import BASE, errors_of
from tui.core.profiles.difference import profile_difference
from tui.core.profiles.launch_profile import SlurmTable
from tui.core.profiles.load import load_launch

CHILD = 'kind = "launch"\nextends = "base"\n'


def test_every_key_has_a_default(folder) -> None:
    assert load_launch("x", [folder(x=BASE + "[slurm]\n")]).slurm == SlurmTable()


def test_a_child_and_a_set_change_a_key_of_the_base(folder) -> None:
    directory = folder(base=BASE + '[slurm]\nnodes = 2\ntime = "1:00:00"\n', child=CHILD + '[slurm]\nqos = "high"\n')
    child = load_launch("child", [directory], ["slurm.nodes=4", "slurm.time=30", "slurm.hold=true"])
    assert child.slurm == SlurmTable(nodes=4, time="30", qos="high", hold=True)
    assert {line.key for line in profile_difference(load_launch("base", [directory]), child)} >= {"slurm.qos"}


def test_of_nodes_and_slurm_the_later_word_holds(folder) -> None:
    nodes = '[nodes]\nhosts = ["a", "b"]\n'
    directory = folder(base=BASE + nodes, job=CHILD + "[slurm]\n", back=CHILD.replace("base", "job") + nodes)
    job, back = load_launch("job", [directory]), load_launch("back", [directory])
    assert (job.nodes, job.slurm, back.slurm) == (None, SlurmTable(), None)


@pytest.mark.parametrize(
    ("more", "key", "says"),
    [
        ("nodes = 0", "slurm.nodes", "must be at least 1"),
        ("time = 60", "slurm.time", "must be text"),
        ('time = "4h"', "slurm.time", "is not a time"),
        ('partition = "a b"', "slurm.partition", "is not a word that sbatch takes"),
        ('partition = "a\\n#SBATCH --wrap=x"', "slurm.partition", "is not a word that sbatch takes"),
        ("account = \"x'; touch y; '\"", "slurm.account", "is not a word that sbatch takes"),
        ('constraint = "a#b"', "slurm.constraint", "is not a word that sbatch takes"),
        ('options = ["--mem 0"]', "slurm.options.0", "is not an option of sbatch in one word"),
        ('options = ["mem=0"]', "slurm.options.0", "is not an option of sbatch in one word"),
        ('options = ["--exclusive", "--requeue"]', "slurm.options.1", "--requeue is set by the launch"),
        ('options = ["--wrap=id"]', "slurm.options.0", "--wrap is set by the launch"),
        ('options = ["--arr=1-3"]', "slurm.options.0", "--arr is set by the launch"),
        ('options = ["--export=NONE"]', "slurm.options.0", "--export is set by the launch"),
        ('options = ["-N4"]', "slurm.options.0", "-N is set by the launch"),
        ('options = ["--gres=gpu:8"]', "slurm.options.0", "--gres is set by the launch"),
        ('mounts = ["/a:/a"]', "slurm.mounts", "are for an image"),
        ('image = "x"\nmounts = ["/a"]', "slurm.mounts", "names no place in the container"),
        ('image_runner = "docker"', "slurm.image_runner", "must be 'pyxis', 'apptainer' or 'singularity'"),
        ("gpus = 8", "slurm.gpus", "unknown key"),
        ("hosts = ['a']", "slurm.hosts", "unknown key"),
    ],
)
def test_what_is_wrong_with_the_table(folder, more: str, key: str, says: str) -> None:
    assert says in errors_of(folder(x=f"{BASE}\n[slurm]\n{more}\n"), "x")[key][0]


@pytest.mark.parametrize("other", ['[nodes]\nhosts = ["a", "b"]', "[container]\nimage = 'x'"])
def test_it_excludes_other_ways_to_launch(folder, other: str) -> None:
    assert "exclude each other" in errors_of(folder(x=f"{BASE}\n[slurm]\nnodes = 2\n{other}\n"), "x")["slurm"][0]


def test_flags_that_differ_from_node_to_node_are_not_given_by_hand(folder) -> None:
    errors = errors_of(folder(x=f"{BASE}\nnnodes = 2\n[slurm]\nnodes = 2\n"), "x")
    assert errors["args.nnodes"] == ("is what [slurm] sets on each node", "remove it")
