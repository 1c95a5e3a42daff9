"""SGLang's own benchmark, the referee, driven on the GPU host against the server that the load generator measures.

python3 -m tui.remote.sglang_bench bench.json     (docs/load-generator.md has the formats)
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import json
import math
import os
import re
import signal
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from tui.remote.loadgen import main as program
from tui.remote.loadgen.bench import Bench
from tui.remote.loadgen.counters import counted_by_then
from tui.remote.loadgen.endpoints import SERVER_INFO
from tui.remote.loadgen.http import Client
from tui.remote.loadgen.measure import measure
from tui.remote.loadgen.plan import Plan
from tui.remote.loadgen.prompts import Workload
from tui.remote.loadgen.protocol import Stop, clock, label_of, say, short, uptime, write_whole
from tui.remote.loadgen.warmup import warm_up

MODULES = (("benchmark", "serving"), ("bench_serving",))
FLAG = re.compile(r'"(--[a-z][a-z0-9-]*)"')
EXTRA = "--extra-request-body"
CHAT = "\nasync def async_request_openai_chat_completions("
COUNTS = ('data.get("usage")', 'data.get("choices") or []')  # in that function
TAIL_BYTES = 2000
PROGRESS_S = 1.0
START_S = 300.0  # its imports alone take some 20 s


class Benchmark:
    """The benchmark in this interpreter's sglang: which module, and which flags it takes."""

    def __init__(self) -> None:
        """Raises Stop(no_referee). Nothing of sglang is imported: that takes 20 s."""
        try:
            spec = importlib.util.find_spec("sglang")
        except (ImportError, ValueError):
            spec = None
        places = list(spec.submodule_search_locations or ()) if spec else []
        self.flags: frozenset[str] = frozenset()
        self.counts_chat = False  # by the server's usage, and bears an event that has nothing else
        for parts in MODULES:
            for place in places:
                path = os.path.join(place, *parts) + ".py"
                if os.path.isfile(path):
                    self.module = ".".join(("sglang", *parts))
                    with open(path, encoding="utf-8", errors="replace") as file:
                        source = file.read()
                    self.flags = frozenset(FLAG.findall(source))
                    self.counts_chat = EXTRA in self.flags and all(
                        words in source.partition(CHAT)[2].partition("\nasync def ")[0] for words in COUNTS
                    )
                    self.version = version_of()
                    return
        raise Stop(
            "no_referee",
            f"no benchmark of sglang for {sys.executable}",
            "name the interpreter that has sglang as `python` of this host",
        )

    def command(
        self,
        plan: Plan,
        point: dict[str, Any],
        run: int,
        requests: int,
        *,
        output: str,
        prompts: str | None,
        tokenizer: str | None,
    ) -> list[str]:
        """Its command line. Flags that this version lacks are left out, all but those without which it is another run.

        Args:
            prompts: a file of conversations, None for random ids.
            tokenizer: a local path, so that nothing is looked up in the network.

        Raises Stop(unsupported).
        """
        chat = plan.api == "chat"
        host = f"[{plan.host}]" if ":" in plan.host else plan.host
        needed: list[tuple[object, ...]] = [("--base-url", f"http://{host}:{plan.port}{plan.prefix}")]
        optional: list[tuple[object, ...]] = [("--flush-cache",), ("--warmup-requests", 0), ("--disable-tqdm",)]
        optional += [("--output-details",)]
        if tokenizer:
            optional.append(("--model", tokenizer))
            needed.append(("--tokenizer", tokenizer))
        if chat:
            body = {"stream_options": {"include_usage": True}, "temperature": plan.temperature}
            needed.append((EXTRA, json.dumps(body)))
            if plan.model:
                optional.append(("--served-model-name", plan.model))
        else:
            (needed if plan.temperature else optional).append(("--temperature", plan.temperature))
        if prompts is None:
            needed += [("--dataset-name", "random-ids"), ("--random-range-ratio", 1.0)]
            needed += [("--random-input-len", plan.input_len), ("--random-output-len", plan.output_len)]
            optional.append(("--tokenize-prompt",))
        else:
            needed += [("--dataset-name", "custom"), ("--dataset-path", prompts)]
            needed.append(("--sharegpt-output-len", plan.output_len))
        if "concurrency" in point:
            needed.append(("--max-concurrency", point["concurrency"]))
        needed += [("--request-rate", point.get("rate", "inf")), ("--num-prompts", requests)]
        needed += [("--seed", plan.seed * 1000 + run), ("--output-file", output)]
        if not plan.ignore_eos:
            needed.append(("--disable-ignore-eos",))
        for flag, *_ in needed:
            if flag not in self.flags:
                tool = f"{self.module} {self.version or ''}"
                raise Stop("unsupported", f"{tool} has no {flag}", "measure with the driver eagletui")
        given = [*needed, *(words for words in optional if words[0] in self.flags)]
        argv = [sys.executable, "-m", self.module, "--backend", "sglang-oai-chat" if chat else "sglang"]
        return argv + [str(word) for words in given for word in words]


def version_of() -> str | None:
    from importlib import metadata

    with contextlib.suppress(metadata.PackageNotFoundError, ValueError):
        return metadata.version("sglang")
    return None


def prompts_of(plan: Plan, label: str, run: int, requests: int, name: str) -> str | None:
    """The prompts of the load generator's run of this number, as a file of conversations; None for random ids.

    Raises Stop(unsupported).
    """
    if plan.dataset == "random-ids":
        return None
    workload = iter(Workload(plan, label, str(run), fresh=True))
    lines = []
    for _ in range(requests):
        fields, length = next(workload)
        turns = fields.get("messages") or [{"role": "user", "content": fields.get("text")}]
        if len(turns) > 1 or not isinstance(turns[0]["content"], str) or length != plan.output_len:
            raise Stop(
                "unsupported",
                "SGLang's benchmark takes texts of one output length alone",
                "give each line of the dataset a prompt and no output_len, or use the driver eagletui",
            )
        # Of a conversation it sends the first turn; the second one only has to be there.
        answer = {"role": "assistant", "content": "and so on"}
        lines.append(json.dumps({"conversations": [*turns, answer]}))
    write_whole(name, "\n".join(lines).encode() + b"\n")
    return os.path.abspath(name)


def tokenizer_of(facts: dict[str, Any]) -> str | None:
    """Where the server took its tokenizer from: a path on this host, or a name that is in its cache."""
    info = facts.get("model_info")
    if not isinstance(info, dict):
        return None
    path = info.get("tokenizer_path") or info.get("model_path")
    return path if isinstance(path, str) and path else None


async def server_info_ms(client: Client) -> float | None:
    """What one GET /server_info takes on an idle server, milliseconds."""
    took = []
    for _ in range(3):
        begin = time.perf_counter()
        answer = await client.ask("GET", SERVER_INFO[0])
        if answer.status != 200:
            return None
        took.append((time.perf_counter() - begin) * 1000)
    return round(statistics.median(took), 3)


def tail(path: str) -> str:
    """The last line of what it printed, as one short line."""
    try:
        with open(path, "rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - TAIL_BYTES))
            lines = file.read().decode("utf-8", "replace").splitlines()
    except OSError:
        return ""
    return short(next((line for line in reversed(lines) if line.strip()), ""))


async def carried_out(argv: list[str], log: str, limit_s: float, progress: Callable[[float], None]) -> int:
    """Runs the tool to its end; it never outlives this process. Returns its exit status. Raises Stop."""
    out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        # A session of its own, so that it and its children can be ended together.
        child = await asyncio.create_subprocess_exec(
            *argv, stdin=asyncio.subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True
        )
    finally:
        os.close(out)
    begin = time.monotonic()
    ended = asyncio.ensure_future(child.wait())
    try:
        while not ended.done():
            passed = time.monotonic() - begin
            if passed > limit_s:
                raise Stop(
                    "referee_failed",
                    f"SGLang's benchmark did not end within {limit_s:.0f} s: {tail(log)}",
                    f"read {log} in the run's directory",
                )
            progress(passed)
            await asyncio.wait([ended], timeout=PROGRESS_S)
        return ended.result()
    finally:
        if not ended.done():
            ended.cancel()
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)


class Referee:
    """What all its runs share."""

    def __init__(self, bench: Bench, tool: Benchmark, tokenizer: str | None) -> None:
        self.bench, self.tool, self.tokenizer = bench, tool, tokenizer

    async def measure(self, point: dict[str, Any], run: int, requests: int) -> None:
        """One run, from its warm-up to its files. Raises Stop."""
        bench, plan = self.bench, self.bench.plan
        label = label_of(point)
        stem = f"{label}-{run}.referee"
        prompts = prompts_of(plan, label, run, requests, f".{stem}.prompts")
        output = os.path.join(os.getcwd(), f".{stem}.part")
        argv = self.tool.command(plan, point, run, requests, output=output, prompts=prompts, tokenizer=self.tokenizer)
        warmup = await warm_up(bench, point, run)
        flushed = await bench.server.flush()
        info_ms = await server_info_ms(bench.client)
        before, idle_before = await bench.server.at_rest(warmup.least)
        started_at, zero = time.time(), clock()

        with contextlib.suppress(FileNotFoundError):
            os.unlink(output)  # it appends
        limit_s = START_S + max(10 * plan.duration_s, plan.limits["request_s"])
        status = await carried_out(argv, f"{stem}.log", limit_s, partial(self._progress, point, run))
        ended = clock()
        if prompts is not None:
            os.unlink(prompts)
        record = self._record(output, status, f"{stem}.log")
        total = record.get("total_output_tokens")
        least = counted_by_then(before, total) if isinstance(total, int) else None
        after, idle_after = await bench.server.at_rest(least)
        meta = {
            "label": label,
            "point": point,
            "run": run,
            "seed": plan.seed,
            "started_at": round(started_at, 3),
            "uptime_s": round(uptime(zero), 3),
            "end_s": round(ended - zero, 3),
            "requests": requests,
            "flush": {"ok": flushed and "--flush-cache" in self.tool.flags, "hit_rate": None},
            "counters": {"before": before, "after": after, "idle": idle_before and idle_after},
            "gpu": bench.gpus.during(zero, ended),
            "warmup": warmup.meta,
            "command": argv,
            "module": self.tool.module,
            "version": self.tool.version,
            "server_info_ms": info_ms,
        }
        bench.gpus.forget(ended)
        sha = {
            "record": write_whole(f"{stem}.jsonl", json.dumps(record).encode() + b"\n"),
            "meta": write_whole(f"{stem}.json", json.dumps(meta).encode()),
        }
        say(
            "run", label=label, point=point, run=run, tool="sglang",
            meta=f"{stem}.json", record=f"{stem}.jsonl", sha256=sha,
        )  # fmt: skip

    def _progress(self, point: dict[str, Any], run: int, passed_s: float) -> None:
        """All that is known of a run while the tool measures."""
        power, memory = self.bench.gpus.now()
        say(
            "progress",
            label=label_of(point),
            point=point,
            run=run,
            runs=self.bench.plan.runs,
            phase="window",
            tool="sglang",
            t=round(passed_s, 2),
            power_w=None if power is None else round(power, 1),
            memory_used_mib=memory,
        )

    def _record(self, output: str, status: int, log: str) -> dict[str, Any]:
        with contextlib.suppress(OSError, ValueError):
            with open(output, "rb") as file:
                lines = [line for line in file.read().splitlines() if line.strip()]
            os.unlink(output)
            record = json.loads(lines[-1]) if status == 0 and lines else None
            if isinstance(record, dict):
                record.pop("generated_texts", None)  # long, and of no use
                return record
        raise Stop(
            "referee_failed",
            f"SGLang's benchmark ended with exit status {status} and no result: {tail(log)}",
            f"read {log} in the run's directory",
        )


async def requests_of(bench: Bench, point: dict[str, Any]) -> int:
    """How many requests a run of this point takes: as many as fill its duration at the rate of a warm-up."""
    plan = bench.plan
    if plan.max_requests is not None:
        return plan.max_requests
    if "rate" in point:
        return int(max(2, math.ceil(point["rate"] * plan.duration_s)))
    warm = (await warm_up(bench, point, 1)).meta
    rate = warm["requests"] / warm["seconds"] if warm["seconds"] else 0.0
    return int(max(2 * point["concurrency"], math.ceil(rate * plan.duration_s)))


async def counted(bench: Bench, point: dict[str, Any], run: int, requests: int) -> None:
    """The load generator's run of so many requests, however long they take."""
    plan = bench.plan
    before = plan.max_requests, plan.duration_s
    plan.max_requests, plan.duration_s = requests, 10 * plan.duration_s
    try:
        await measure(bench, point, run)
    finally:
        plan.max_requests, plan.duration_s = before


async def carry_out(bench: Bench, verify: bool) -> None:
    """All points and runs. Raises Stop."""
    plan = bench.plan
    tool = Benchmark()
    if plan.api == "chat" and not tool.counts_chat:
        raise Stop(
            "wrong_api",
            f"by chat {tool.module} {tool.version or ''} counts the requested length, not what came",
            "name an interpreter with a newer sglang as `python` of this host",
        )
    if plan.key:
        os.environ["OPENAI_API_KEY"] = plan.key  # where it looks for one
    try:
        facts = await bench.server.facts()
        await bench.server.negotiate()
        await bench.server.write()
        referee = Referee(bench, tool, tokenizer_of(facts))
        for point in plan.points:
            requests = await requests_of(bench, point)
            for run in range(1, plan.runs + 1):
                if verify:
                    await counted(bench, point, run, requests)
                await referee.measure(point, run, requests)
        await bench.server.write()
    finally:
        bench.server.close()
        bench.gpus.end()


def main(argv: list[str]) -> int:
    """Exit status: 0 done, 1 after an `error` event."""
    verify = False
    with contextlib.suppress(OSError, ValueError, IndexError, AttributeError), open(argv[1], "rb") as file:
        verify = bool(json.loads(file.read()).get("verify"))
    return program.main(argv, lambda bench: carry_out(bench, verify))


if __name__ == "__main__":
    sys.exit(main(sys.argv))
