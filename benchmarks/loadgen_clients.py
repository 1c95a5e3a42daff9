"""The load generator beside SGLang's own Python client, an aiohttp loop and an httpx loop, on the same server.

    .venv/bin/python benchmarks/loadgen_clients.py [--smoke] [--rounds 3] [--streams 64] [--sglang DIR]

The server is sse_mock.c, one thread on a core of its own; the client has another. Twice a round, each client in turn: paced,
a chunk of one token every 10 ms on each stream, replies of 256 tokens with SGLang's cumulative frames; and flooded, as fast
as the client reads. CPU time is read from /proc between two counts of the server's tokens, so that imports and the end don't
count. The other clients run in the environment of tests/sglang_cpu/setup.sh; the generator there too (it has uvloop and
orjson) and in this Python. Medians, but for the highest rate; the last lines say whether the generator takes at most half of
SGLang's CPU time a chunk. A client that is not installed is named and left out. --smoke takes one round of half a second.
"""

import argparse
import asyncio
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

ROOT = Path(__file__).parents[1]
START_S = 120.0  # imports of SGLang on a busy machine
OUTPUT, INPUT, TICK_US = 256, 64, 10_000
CLIENTS = {
    "loadgen": "load generator, standard library",
    "loadgen-fast": "load generator, uvloop and orjson",
    "sglang": "sglang.benchmark.serving",
    "aiohttp": "aiohttp loop, orjson",
    "aiohttp-uvloop": "aiohttp loop, orjson and uvloop",
    "httpx": "httpx loop, orjson",
}
BODY = {
    "input_ids": list(range(100, 100 + INPUT)),
    "sampling_params": {"max_new_tokens": OUTPUT, "temperature": 0.0, "ignore_eos": True},
    "stream": True,
}


async def aiohttp_loop(url: str, streams: int) -> None:
    """Users in a closed loop; every chunk is read as JSON, as SGLang's client does."""
    import aiohttp
    import orjson

    limits = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=limits, read_bufsize=10 << 20) as session:

        async def user() -> None:
            while True:
                stamps = []
                async with session.post(url + "/generate", json=BODY) as response:
                    async for line in response.content:
                        line = line.strip()
                        if line.startswith(b"data: {"):
                            stamps.append(
                                (orjson.loads(line[6:])["meta_info"]["completion_tokens"], time.perf_counter())
                            )

        await asyncio.gather(*(user() for _ in range(streams)))


async def httpx_loop(url: str, streams: int) -> None:
    """The same with httpx."""
    import httpx
    import orjson

    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
    async with httpx.AsyncClient(limits=limits, timeout=None) as client:

        async def user() -> None:
            while True:
                stamps = []
                async with client.stream("POST", url + "/generate", json=BODY) as response:
                    async for line in response.aiter_lines():
                        if line.startswith("data: {"):
                            stamps.append(
                                (orjson.loads(line[6:])["meta_info"]["completion_tokens"], time.perf_counter())
                            )

        await asyncio.gather(*(user() for _ in range(streams)))


def act(client: str, url: str, streams: int) -> None:
    """This process as one of the loops, until it is ended."""
    if client.endswith("uvloop"):
        import uvloop

        uvloop.install()
    asyncio.run((httpx_loop if client == "httpx" else aiohttp_loop)(url, streams))


def command(client: str, url: str, streams: int, seconds: float, sglang: Path, directory: Path) -> list[str]:
    """What runs a client for about so long."""
    python = str(sglang / "venv" / "bin" / "python")
    if client.startswith("loadgen"):
        plan = {
            "version": 1,
            "base_url": url,
            "api": "generate",
            "points": [{"concurrency": streams}],
            "runs": 1,
            "duration_s": seconds,
            "output_len": OUTPUT,
            "input_len": INPUT,
            "dataset": {"kind": "random-ids"},
            "vocab": [100, 30_000],
            "ignore_eos": True,
            "warmup_s": 0.5,
        }
        (directory / "bench.json").write_text(json.dumps(plan))
        return [sys.executable if client == "loadgen" else python, "-B", "-m", "tui.remote.loadgen", "bench.json"]
    if client == "sglang":
        words = (
            f"-m sglang.benchmark.serving --backend sglang --base-url {url} --dataset-name random-ids --num-prompts 100000 "
            f"--random-input-len {INPUT} --random-output-len {OUTPUT} --random-range-ratio 1 --max-concurrency {streams} "
            f"--disable-tqdm --warmup-requests 0 --tokenizer {sglang}/models/tiny-llama --output-file {directory}/out.jsonl"
        )
        return [python, *words.split()]
    return [python, __file__, "--act", client, "--url", url, "--streams", str(streams)]


def tokens(url: str) -> int:
    """What the server has sent so far."""
    with urllib.request.urlopen(url + "/metrics", timeout=10) as answer:
        found = re.search(r"generation_tokens_total\S* (\d+)", answer.read().decode())
    return int(found[1]) if found else 0


def cpu_s(pid: int) -> float:
    """Of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def peak_mib(pid: int) -> float:
    """Largest resident size of a process."""
    found = re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
    return int(found[1]) / 1024 if found else 0.0


class NotRunning(Exception):
    """A client that ended, or did not begin; its last words."""


def missing(client: str, sglang: Path) -> str | None:
    """Why a client cannot run here, None where it can."""
    if client == "loadgen":
        return None
    python = sglang / "venv" / "bin" / "python"
    if not python.exists():
        return f"no {python}: tests/sglang_cpu/setup.sh makes it"
    needs = {"loadgen-fast": "uvloop orjson", "sglang": "sglang"}.get(client, client.replace("-", " ") + " orjson")
    names = needs.split()
    program = f"import importlib.util as u; print(*[n for n in {names} if u.find_spec(n) is None])"
    lacking = subprocess.run([python, "-c", program], capture_output=True, text=True, check=True).stdout.strip()
    return f"{python} has no {lacking}" if lacking else None


def last_line(directory: Path) -> str:
    said = (directory / "stderr").read_text(errors="replace") or (directory / "stdout").read_text(errors="replace")
    return next((line for line in reversed(said.splitlines()) if line.strip()), "it did not say why")


def measure(
    client: str, mock: Path, tick_us: int, options: argparse.Namespace
) -> tuple[float, float, float, dict | None]:
    """CPU µs a chunk, tokens a second, peak MiB; of the load generator also what it says of itself."""
    with tempfile.TemporaryDirectory() as place:
        directory = Path(place)
        server = subprocess.Popen(
            ["taskset", "-c", "1", mock, str(tick_us), "1", "300"],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert server.stdout is not None
        url = f"http://127.0.0.1:{int(server.stdout.readline())}"
        offline = {"SGLANG_USE_CPU_ENGINE": "1", "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
        environment = os.environ | offline | {"PYTHONPATH": str(ROOT)}
        seconds = options.seconds
        program = subprocess.Popen(
            ["taskset", "-c", "0", *command(client, url, options.streams, seconds + 3, options.sglang, directory)],
            cwd=directory,
            env=environment,
            stdout=(directory / "stdout").open("wb"),
            stderr=(directory / "stderr").open("wb"),
        )
        deadline = time.monotonic() + START_S

        def ready() -> bool:
            """Past imports; of the load generator, past its warm-up too."""
            if client.startswith("loadgen"):
                return b'"window"' in (directory / "stdout").read_bytes()
            return tokens(url) > options.streams * OUTPUT // 2

        try:
            while not ready():
                if program.poll() is not None or time.monotonic() > deadline:
                    raise NotRunning(last_line(directory))
                time.sleep(0.1)
            time.sleep(1)
            before, cpu, begin = tokens(url), cpu_s(program.pid), time.monotonic()
            time.sleep(seconds)
            gone, used, lasted = tokens(url) - before, cpu_s(program.pid) - cpu, time.monotonic() - begin
            peak = peak_mib(program.pid)
            said = None
            if client.startswith("loadgen"):
                program.wait(60)
                said = json.loads((directory / f"c{options.streams}-1.json").read_text())["client"]
        finally:
            program.kill()
            program.wait()
            server.send_signal(signal.SIGTERM)
            server.wait()
    return used / gone * 1e6, gone / lasted, peak, said


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--streams", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=5.0, help="that count, of each client in each round")
    parser.add_argument("--sglang", type=Path, help="environment made by tests/sglang_cpu/setup.sh")
    parser.add_argument("--clients", nargs="+", choices=CLIENTS, default=list(CLIENTS))
    parser.add_argument("--smoke", action="store_true", help="one short round: whether it runs at all")
    parser.add_argument("--act", help=argparse.SUPPRESS)
    parser.add_argument("--url", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.act:
        act(options.act, options.url, options.streams)
        return
    if options.smoke:
        options.rounds, options.seconds, options.streams = 1, 0.5, 4
    if options.sglang is None:
        setup = ROOT / "tests" / "sglang_cpu" / "setup.sh"
        options.sglang = Path(
            subprocess.run([setup, "--where"], check=True, capture_output=True, text=True).stdout.strip()
        )
    with tempfile.TemporaryDirectory() as place:
        mock = Path(place) / "sse_mock"
        subprocess.run(["cc", "-O2", "-o", mock, Path(__file__).with_name("sse_mock.c")], check=True)
        found: dict[str, list[tuple]] = {}
        for client in options.clients:
            if why := missing(client, options.sglang):
                print(f"{CLIENTS[client]}: left out: {why}", file=sys.stderr)
            else:
                found[client] = []
        for number in range(options.rounds):
            for client in list(found):
                try:
                    paced, flooded = measure(client, mock, TICK_US, options), measure(client, mock, 0, options)
                except NotRunning as error:
                    print(f"{CLIENTS[client]}: left out: it does not run: {error}", file=sys.stderr)
                    del found[client]
                    continue
                found[client].append((paced, flooded))
                print(
                    f"round {number + 1}: {client}: {paced[0]:.1f} µs a chunk, {flooded[1]:.0f} tok/s", file=sys.stderr
                )
    if not found:
        raise SystemExit("no client could be measured")

    def median(client: str, part: int, figure: int) -> float:
        return statistics.median(entry[part][figure] for entry in found[client])

    def ratio(value: float, base: float) -> str:
        return f"{value / base:.2f}x" if base else "–"  # a short run may take less than the clock tells

    def highest(client: str) -> float:
        return max(entry[1][1] for entry in found[client])

    compared = "sglang" if "sglang" in found else next(iter(found))
    print(f"{options.streams} streams, rounds: {options.rounds}")
    print(
        f"| client | CPU µs/chunk | to {compared}'s | tok/s, paced | flooded: CPU µs/chunk | to {compared}'s | highest tok/s | peak MiB |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for client in found:
        paced, flooded = median(client, 0, 0), median(client, 1, 0)
        print(
            f"| {CLIENTS[client]} | {paced:.1f} | {ratio(paced, median(compared, 0, 0))} | {median(client, 0, 1):,.0f} | {flooded:.1f} | "
            f"{ratio(flooded, median(compared, 1, 0))} | {highest(client):,.0f} | {median(client, 0, 2):.0f} |"
        )
    for client in found:
        if client.startswith("loadgen"):
            for name, part in (("paced", 0), ("flooded", 1)):
                print(f"{CLIENTS[client]}, {name}, says of itself: {json.dumps(found[client][-1][part][3])}")
    if "sglang" in found and not options.smoke:
        for client in ("loadgen", "loadgen-fast"):
            if client in found:
                share = median(client, 0, 0) / median("sglang", 0, 0)
                print(
                    f"{CLIENTS[client]}: {share:.2f} of SGLang's CPU time a chunk, bar 0.50: {'held' if share <= 0.5 else 'MISSED'}"
                )


if __name__ == "__main__":
    main()
