"""What earlier launches say of one that is to be made."""

from pathlib import Path

import pytest

from tests.support.journal_scenes import NO_KERNEL, crash, launch, ready, result
from tui.core.journal import reading, writing
from tui.core.journal.model import Known
from tui.core.model.profile import DiffLine
from tui.core.profiles.launch_profile import LaunchProfile

SYMM = (DiffLine("+", "enable-symm-mem", None, "true"),)


def knows(host: str = "gpu1", env: dict[str, str] | None = None, **args: object) -> tuple[Known, ...]:
    writing.sync()
    flags = {"model-path": "/data/models/Kimi-K2.5", "tp": 8, "port": 31000} | {
        name.replace("_", "-"): value for name, value in args.items()
    }
    profile = LaunchProfile("any", Path("any.toml"), args=flags, env=env or {})
    return reading.knows(profile, {}, host)


def test_the_same_configuration_that_crashed():
    crash(1)
    run = crash(2, "eagle3")
    (known,) = knows()
    assert known.text.endswith("Nov: crashed, no kernel for SM120")
    assert known.text.startswith("tried 20") or known.text.startswith("tried 21")
    assert (known.entry_id, known.run_id, known.flags) == (f"launch:{run.run_id}", run.run_id, ())


def test_the_same_configuration_that_started():
    crash(1)
    result(ready(2), 1, 72.1)
    (known,) = knows()
    assert known.text.endswith(": ready after 11:09, 72.1 tok/s per user (L0)")


@pytest.mark.parametrize(
    "fields", [{"outcome": "starting"}, {"outcome": "stopped"}, {"outcome": "crashed", "cause": "port_in_use"}]
)
def test_a_launch_that_says_nothing_is_not_named(fields):
    launch(1, **fields)
    assert knows() == ()


def test_other_flags_another_host_and_nothing_at_all():
    assert knows() == ()
    crash(1)
    assert knows(mem_fraction_static=0.9) == ()
    assert knows("gpu2") == ()


def test_a_flag_that_crashed_in_another_configuration():
    crash(1, args={"enable-symm-mem": True}, difference=SYMM)
    (known,) = knows(enable_symm_mem=True, mem_fraction_static=0.9)
    assert known.flags == ("enable-symm-mem=True",)
    assert "with enable-symm-mem=True tried" in known.text
    assert NO_KERNEL.title in known.text
    assert knows(mem_fraction_static=0.9) == ()


def test_a_flag_that_started_since_is_not_named():
    crash(1, args={"enable-symm-mem": True}, difference=SYMM)
    ready(2, args={"enable-symm-mem": True, "tp": 4})
    assert knows(enable_symm_mem=True, mem_fraction_static=0.9) == ()


def test_a_flag_that_was_given_for_one_launch_and_a_variable():
    crash(1, args={"attention-backend": "fa4"}, sets={"attention-backend": "fa4", "port": 30000}, env={"A": "1"})
    assert knows(attention_backend="fa4", env={"A": "1"}, mem_fraction_static=0.9)[0].flags == (
        "attention-backend=fa4",
    )
    crash(2, env={"B": "2"}, difference=(DiffLine("+", "env.B", None, '"2"'),), args={"x": 1})
    assert knows(env={"B": "2"}, mem_fraction_static=0.9)[0].flags == ("env.B=2",)


def test_memory_is_no_matter_of_one_flag():
    crash(1, "eagle3", "oom_kv_pool", args={"enable-symm-mem": True}, difference=SYMM)
    assert knows(enable_symm_mem=True, mem_fraction_static=0.9) == ()


def test_where_it_listens_is_no_feature():
    crash(1, args={"port": 31000, "x": 1}, sets={"port": 31000})
    assert knows(mem_fraction_static=0.9) == ()
