"""The program: reads the plan, carries the bench out, and says how it ended."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import resource
import signal
import sys
from collections.abc import Callable, Coroutine
from typing import Any

from tui.remote.loadgen.bench import Bench
from tui.remote.loadgen.cores import keep_off
from tui.remote.loadgen.measure import carry_out
from tui.remote.loadgen.plan import Plan
from tui.remote.loadgen.protocol import VERSION, Stop, orjson, say, uvloop


def raise_file_limit() -> None:
    """As many connections as this user may have."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def sha256_of_program() -> str:
    """Of all its files, in the order of their names."""
    here = os.path.dirname(os.path.abspath(__file__))
    digest = hashlib.sha256()
    for name in sorted(name for name in os.listdir(here) if name.endswith(".py")):
        with open(os.path.join(here, name), "rb") as file:
            digest.update(name.encode() + b"\0" + file.read())
    return digest.hexdigest()


def main(argv: list[str], work: Callable[[Bench], Coroutine[Any, Any, None]] = carry_out) -> int:
    """Exit status: 0 done, 1 after an `error` event. `work`: what is carried out instead of a bench."""
    versions = {name: getattr(module, "__version__", None) for name, module in (("uvloop", uvloop), ("orjson", orjson))}
    say(
        "hello", version=VERSION, python=sys.version.split()[0], **versions, sha256=sha256_of_program(), pid=os.getpid()
    )
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop() if uvloop else asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    try:
        if len(argv) != 2:
            raise Stop("bad_plan", "one argument is needed", "python3 -m tui.remote.loadgen bench.json")
        plan = Plan.read(argv[1])
        raise_file_limit()
        cores = keep_off(plan.pids)  # before anything is started
        task = loop.create_task(work(Bench(loop, plan, cores)))
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, task.cancel)
        loop.run_until_complete(task)
        ending = None
    except Stop as stop:
        ending = stop
    except asyncio.CancelledError:
        ending = Stop("interrupted", "ended by a signal", "finished runs are whole; measure again for the others")
    except Exception as error:
        ending = Stop("internal", f"{type(error).__name__}: {error}", "this is a fault of the load generator")
    finally:
        loop.close()
    if ending is not None:
        say("error", slug=ending.slug, text=ending.text, hint=ending.hint)
        return 1
    say("done")
    return 0
