"""The bench drivers by name."""

from tui.core.bench.command_driver import CommandDriver
from tui.core.bench.driver import Driver
from tui.core.bench.loadgen_driver import LoadgenDriver
from tui.core.bench.sglang_driver import SglangDriver

DRIVERS: dict[str, Driver] = {driver.name: driver for driver in (LoadgenDriver(), SglangDriver(), CommandDriver())}
VERIFY: Driver = SglangDriver(verify=True)  # the load generator before each run of SGLang's benchmark
