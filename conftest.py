"""What holds for every test: which ones are quick, and that none skips for a missing tool where all are installed."""

import os
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import settings

# A machine that is busy is no failure; in CI the same examples each time, elsewhere new ones.
settings.register_profile("default", deadline=None, derandomize="EAGLETUI_CI" in os.environ)
settings.load_profile("default")

# `quick` is what may differ from one Python to the next, a sample: of each test function the first case and every tenth
# after it, for a corpus is data and reads the same everywhere. Left out are fixtures that start real servers, terminals or
# programs, and places of tests that start many, wait for deadlines, draw pictures or ask a host's shells.
EVERY = 10
REAL_PARTS = {
    "sshd",
    "tcp_proxy",
    "start_sshd",
    "make_tcp_proxy",
    "ssh_transport",
    "make_ssh_transport",
    "gpu_host",
    "gpu_hosts",
    "sglang_cpu",
    "sglang_module",
    "make_hosts",
    "router_python",
    "slurm",
    "slurm_cluster",
    "terminal",
    "eagletui",
    "demo",
    "clone",
}
REAL_PLACES = (
    "tests/e2e/",
    "tests/test_benchmarks.py",
    "tests/test_house.py",
    "tests/demo/",
    "tests/core/runs/",
    "tests/core/groups/test_group_session.py",
    "tests/core/groups/test_nodes.py",
    "tests/core/host/test_gpu_sampler.py",
    "tests/panel/test_bench.py",
    "tests/panel/test_dashboard.py",
    "tests/panel/test_flows.py",
    "tests/panel/test_log_files.py",
    "tests/panel/test_odd_states.py",
    "tests/panel/test_overview.py",
    "tests/remote/test_loadgen.py",
    "tests/core/logs/test_excerpt.py",
    "tests/core/logs/test_search.py",
    "tests/core/logs/test_log_file.py",
    "tests/core/results/test_unwritable.py",
    "tests/core/server/test_watch.py",
    "tests/core/bench/test_bench_run.py",
    "tests/core/bench/test_capacity.py",
    "tests/core/bench/test_guards_live.py",
    "tests/core/bench/test_truth.py",
    "tests/core/bench/test_sglang_driver.py",
    "tests/commands/test_bench.py",
    "tests/commands/test_containers.py",
    "tests/core/experiment/test_runner.py",
    "tests/core/verdicts/test_false_verdicts.py",
)

# Reasons that CI mends: a package, the SGLang environment, rights. Others say that a test does not apply.
MENDABLE = re.compile(r"apt-get install|setup\.sh|could not import|needs root|not permitted|cannot mount")


def _python3_works() -> bool:
    try:
        return subprocess.run(["python3", "-c", ""], capture_output=True).returncode == 0
    except OSError:
        return False


def pytest_configure(config: pytest.Config) -> None:
    # A version manager's dead shims come first on some PATHs; programs under test find a python3 all the same.
    if not _python3_works():
        os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    os.environ["COLORTERM"] = "truecolor"  # whatever the terminal of who runs the tests has
    # Where the parent ignores Ctrl-C (nohup, some runners), the programs under test would inherit that.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    config.addinivalue_line("markers", "fault(name, ...): a row of docs/faults.md (tests/support/faults.py)")
    config.addinivalue_line(
        "markers", "quick: may differ between Pythons; needs no sshd, terminal or server (set by itself)"
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    cases: Counter[str] = Counter()  # of each test function, so far
    for item in items:
        if not (REAL_PARTS & set(getattr(item, "fixturenames", ())) or item.nodeid.startswith(REAL_PLACES)):
            function = item.nodeid.partition("[")[0]
            if cases[function] % EVERY == 0:
                item.add_marker("quick")
            cases[function] += 1
    items.sort(key=_place)


# Tests with the real SGLang are on one worker: two of its servers at a time would only take each other's cores.
SGLANG = (
    "tests/e2e/test_bench_sglang.py",
    "tests/e2e/test_chains.py",
    "tests/e2e/test_diagnosis_live.py",
    "tests/e2e/test_nodes.py",
    "tests/e2e/test_panel.py",
    "tests/e2e/test_sglang.py",
    "tests/e2e/test_slurm.py",
)
# What takes minutes comes before everything else, the longest first: else it ends alone, long after all others.
LONG = (
    *SGLANG,
    "tests/core/experiment/test_runner.py",
    "tests/e2e/test_readme.py",
    "tests/e2e/test_demo_verdict.py",
    "tests/test_benchmarks.py",
    "tests/core/bench/test_truth.py",
    "tests/remote/test_loadgen.py",
)


def _group(nodeid: str) -> str:
    """What runs on one worker, in its order: a file, whose tests share servers, unless it shares more or less."""
    file = nodeid.partition("::")[0]
    if file in SGLANG:
        return "the real SGLang"
    return nodeid if file == "tests/test_benchmarks.py" else file


def _place(item: pytest.Item) -> int:
    file = item.nodeid.partition("::")[0]
    return LONG.index(file) if file in LONG else len(LONG)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    from xdist.scheduler import LoadScopeScheduling

    class Together(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return _group(nodeid)

    return Together(config, log)


def _skip_fails(report: pytest.CollectReport | pytest.TestReport) -> None:
    if os.environ.get("EAGLETUI_CI") and report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        if MENDABLE.search(reason):
            report.outcome = "failed"
            report.longrepr = f"may not skip where everything is installed (EAGLETUI_CI): {reason}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    _skip_fails(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    _skip_fails(report)
    return report
