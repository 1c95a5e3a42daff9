"""How long one all-reduce takes on this host, at the message sizes of decoding and of verifying drafts.

Runs on the GPU host, in the Python that has SGLang: `python3 allreduce.py --hidden 7168 --layers 61 [--ranks 8]`. It
starts one process a rank with torch.distributed, nccl where there are GPUs and gloo where there are none, and prints one
JSON document. A dense or MoE layer under tensor parallelism makes two all-reduces of tokens x hidden x 2 bytes: one
token a user in decode, `draft tokens` a user in verify.

On GPUs the calls of a whole step (2 x layers) are captured in a CUDA graph and replayed, as SGLang does, so that the
time of launching kernels from Python is not in it; a sample is the time of a replay by the number of calls. Where they
can't be captured (`mode` says eager) each call is a sample. Only NCCL is measured, not an all-reduce of SGLang's own.

{"version", "model": its directory or null, "backend": nccl|gloo, "mode": graph|eager, "ranks", "hidden", "layers",
 "dtype", "device", "torch", "nccl", "env": {NCCL_*}, "seconds", "notes": [],
 "points": [{"what": decode|verify, "batch", "draft_tokens", "tokens", "bytes", "samples", "median_us", "p99_us",
 "min_us", "step_ms"}]}
where a figure is that of the slowest rank, and step_ms = 2 x layers x median_us / 1000.

Failures are {"event": "error", "slug", "text", "hint"} and exit status 1. Needs Linux, Python 3.9 and torch.
"""

import argparse
import importlib
import importlib.util
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from typing import Any

VERSION = 1
START_S = 120.0  # importing torch and making the group, on a loaded host
WARMUP = 20  # calls of each size
SAMPLES = (100, 3000)  # of each size, least and most
_KEPT = ("NCCL_", "GLOO_", "TORCH_NCCL_", "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER")


class Failure(Exception):
    """One line of what is wrong, and how to fix it."""

    def __init__(self, slug: str, text: str, hint: str) -> None:
        super().__init__(text)
        self.document = {"event": "error", "slug": slug, "text": text, "hint": hint}


def arguments(words: "list[str] | None" = None) -> argparse.Namespace:
    """The command line."""

    def numbers(text: str) -> "list[int]":
        found = [int(word) for word in text.split(",")]
        if not found or min(found) < 1:
            raise ValueError(text)
        return found

    parser = argparse.ArgumentParser(description="time of one all-reduce at decode and verify sizes")
    parser.add_argument("--ranks", type=int, help="processes; all GPUs, or two where there are none")
    parser.add_argument("--model", help="directory with a config.json that says hidden and layers")
    parser.add_argument("--hidden", type=int, help="hidden size of the model")
    parser.add_argument("--layers", type=int, help="layers of the model")
    parser.add_argument("--draft-tokens", type=numbers, default=[2, 4, 8], metavar="N,N")
    parser.add_argument("--batches", type=numbers, default=[1, 4, 16], metavar="N,N")
    parser.add_argument("--seconds", type=float, default=20.0, help="of measuring, all sizes together")
    parser.add_argument("--eager", action="store_true", help="no CUDA graph, each call by itself")
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)  # this process is one of them
    parser.add_argument("--meet", help=argparse.SUPPRESS)  # the file by which they find each other
    return parser.parse_args(words)


def shape_of(options: argparse.Namespace) -> "tuple[int, int]":
    """Hidden size and layers, as given or as the model's config.json says."""
    hidden, layers = options.hidden, options.layers
    if options.model and not (hidden and layers):
        path = os.path.join(options.model, "config.json")
        try:
            with open(path, encoding="utf-8") as file:
                config = json.load(file)
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else "is not JSON"
            raise Failure("bad_model_path", f"{path}: {why}", "name the model's directory") from None
        if not isinstance(config, dict):
            config = {}
        nested = [config, *(config.get(key) for key in ("text_config", "llm_config", "language_config"))]
        for table in nested:
            if isinstance(table, dict):
                hidden = hidden or table.get("hidden_size")
                layers = layers or table.get("num_hidden_layers")
    if not (isinstance(hidden, int) and isinstance(layers, int) and hidden > 0 and layers > 0):
        raise Failure("no_shape", "hidden size and layers of the model are not known", "give --hidden and --layers")
    return hidden, layers


def sizes(options: argparse.Namespace) -> "list[dict[str, Any]]":
    """The points to measure, smallest first; verify sizes come after decode sizes."""
    found = []  # type: list[dict[str, Any]]
    for batch in sorted(set(options.batches)):
        found.append({"what": "decode", "batch": batch, "draft_tokens": None, "tokens": batch})
    for drafts in sorted(set(options.draft_tokens)):
        for batch in sorted(set(options.batches)):
            found.append({"what": "verify", "batch": batch, "draft_tokens": drafts, "tokens": batch * drafts})
    return found


# --- a rank -----------------------------------------------------------------------------------------------------------


class Rank:
    """One process of the group."""

    def __init__(self, options: argparse.Namespace, torch: Any) -> None:
        self.torch = torch
        self.rank, self.ranks = options.rank, options.ranks
        self.gpu = torch.cuda.is_available()
        self.device = torch.device("cuda", self.rank) if self.gpu else torch.device("cpu")
        if self.gpu:
            torch.cuda.set_device(self.device)
        torch.distributed.init_process_group(
            "nccl" if self.gpu else "gloo", init_method=f"file://{options.meet}", rank=self.rank, world_size=self.ranks
        )
        self.calls = 2 * shape_of(options)[1]
        self.notes = []  # type: list[str]
        self.captures = self.gpu and not options.eager

    def agreed(self, value: float) -> float:
        """The largest of all ranks' values: what every rank then does alike."""
        tensor = self.torch.tensor([value], dtype=self.torch.float32, device=self.device)
        self.torch.distributed.all_reduce(tensor, op=self.torch.distributed.ReduceOp.MAX)
        return float(tensor.item())

    def check(self) -> None:
        """A sum over all ranks is what it must be; a broken path between GPUs shows here first."""
        tensor = self.torch.full((4096,), float(self.rank + 1), dtype=self.torch.bfloat16, device=self.device)
        self.torch.distributed.all_reduce(tensor)
        wanted = self.ranks * (self.ranks + 1) / 2
        if self.agreed(0.0 if bool((tensor == wanted).all().item()) else 1.0):
            raise Failure(
                "wrong_sum",
                f"an all-reduce of {self.ranks} ranks gives a wrong sum",
                "the path between the GPUs is broken: try NCCL_P2P_DISABLE=1, see IOMMU and ACS",
            )

    def measure(self, tokens: int, hidden: int, seconds: float) -> "list[float]":
        """Microseconds of one all-reduce, a sample each; every rank takes as many."""
        tensor = self.torch.zeros((tokens, hidden), dtype=self.torch.bfloat16, device=self.device)
        reduce = self.torch.distributed.all_reduce
        for _ in range(WARMUP):
            reduce(tensor)
        if self.captures:
            replay = self.capture(tensor)
            if replay is not None:
                return self.samples(replay, self.calls, seconds)
        return self.samples(lambda: reduce(tensor), 1, seconds)

    def capture(self, tensor: Any) -> Any:
        """A replay of a step's all-reduces; None where they cannot be captured, and then for all sizes."""
        torch = self.torch
        try:
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                for _ in range(self.calls):
                    torch.distributed.all_reduce(tensor)
            failed = 0.0
        except RuntimeError as error:
            graph, failed = None, 1.0
            self.notes.append("not captured in a CUDA graph: " + " ".join(str(error).split())[:200])
        if self.agreed(failed):
            self.captures = False
            return None
        return graph.replay

    def samples(self, call: Any, calls: int, seconds: float) -> "list[float]":
        clock = self.gpu_clock if self.gpu else self.host_clock
        once_s = self.agreed(sorted(clock(call, calls) for _ in range(7))[3] * calls / 1e6)
        count = int(self.agreed(min(SAMPLES[1], max(SAMPLES[0], seconds / max(once_s, 1e-9)))))
        self.torch.distributed.barrier()
        return [clock(call, calls) for _ in range(count)]

    def host_clock(self, call: Any, calls: int) -> float:
        began = time.perf_counter()
        call()
        return (time.perf_counter() - began) * 1e6 / calls

    def gpu_clock(self, call: Any, calls: int) -> float:
        begin, end = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        call()
        end.record()
        end.synchronize()
        return float(begin.elapsed_time(end)) * 1000.0 / calls


def quantile(ordered: "list[float]", share: float) -> float:
    """Of a sorted list, linear between neighbours."""
    at = share * (len(ordered) - 1)
    low = int(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (at - low)


def work(options: argparse.Namespace) -> None:
    """A rank's part; rank 0 prints what was measured."""
    torch: Any = importlib.import_module("torch")
    hidden, layers = shape_of(options)
    began = time.monotonic()
    rank = Rank(options, torch)
    rank.check()
    points = sizes(options)
    messages = sorted({point["tokens"] for point in points})
    measured = {}
    for tokens in messages:
        ordered = sorted(rank.measure(tokens, hidden, options.seconds / len(messages)))
        median_us = rank.agreed(quantile(ordered, 0.5))
        measured[tokens] = {
            "bytes": tokens * hidden * 2,
            "samples": len(ordered),
            "median_us": round(median_us, 2),
            "p99_us": round(rank.agreed(quantile(ordered, 0.99)), 2),
            "min_us": round(rank.agreed(ordered[0]), 2),
            "step_ms": round(2 * layers * median_us / 1000.0, 4),
        }
    for point in points:
        point.update(measured[point["tokens"]])
    if rank.rank == 0:
        version = ".".join(map(str, torch.cuda.nccl.version())) if rank.gpu else None
        document = {
            "version": VERSION,
            "model": options.model,
            "backend": "nccl" if rank.gpu else "gloo",
            "mode": "graph" if rank.captures else "eager",
            "ranks": rank.ranks,
            "hidden": hidden,
            "layers": layers,
            "dtype": "bfloat16",
            "device": torch.cuda.get_device_name(0) if rank.gpu else "cpu",
            "torch": str(torch.__version__),
            "nccl": version,
            "env": {name: value for name, value in sorted(os.environ.items()) if name.startswith(_KEPT)},
            "seconds": round(time.monotonic() - began, 2),
            "notes": rank.notes,
            "points": points,
        }
        say(document)
    torch.distributed.destroy_process_group()


# --- all of them ------------------------------------------------------------------------------------------------------


def say(document: "dict[str, Any]") -> None:
    """One line on standard output."""
    sys.stdout.write(json.dumps(document) + "\n")
    sys.stdout.flush()


def group_size(options: argparse.Namespace) -> int:
    """How many ranks there will be. Raises Failure where that is not possible here."""
    if importlib.util.find_spec("torch") is None:
        raise Failure(
            "no_torch",
            f"{sys.executable} has no torch",
            "run it with the Python that has SGLang: python = ... of the host in config.toml",
        )
    torch: Any = importlib.import_module("torch")
    gpus = torch.cuda.device_count()
    ranks = options.ranks or gpus or 2
    if ranks < 2:
        raise Failure("too_few_gpus", "one rank reduces nothing", "it takes two GPUs")
    if gpus and ranks > gpus:
        raise Failure(
            "too_few_gpus", f"{ranks} ranks need {ranks} GPUs, this host shows {gpus}", f"give --ranks {gpus}"
        )
    return int(ranks)


def lead(options: argparse.Namespace) -> str:
    """Starts the ranks, waits for them, returns what rank 0 printed. Raises Failure; leaves no process behind."""
    ranks = group_size(options)
    shape_of(options)
    limit_s = START_S + 4 * options.seconds
    with tempfile.TemporaryDirectory(prefix="allreduce-") as directory:
        out = os.path.join(directory, "out")
        words = [*sys.argv[1:], "--ranks", str(ranks), "--meet", os.path.join(directory, "meet")]
        environment = {**os.environ, "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1")}
        if not importlib.import_module("torch").cuda.device_count():
            # Gloo looks for its address by the host's name, which often does not resolve.
            environment.setdefault("GLOO_SOCKET_IFNAME", "lo")
        processes = []  # type: list[subprocess.Popen[bytes]]
        asked = []  # type: list[int]
        # Looked at between the ranks' starts only: an exception in the middle of one would forget its process.
        signal.signal(signal.SIGTERM, lambda number, _frame: asked.append(number))
        try:
            for rank in range(ranks):
                stdout = out if rank == 0 else os.devnull
                with open(stdout, "wb") as said, open(os.path.join(directory, f"err{rank}"), "wb") as errors:
                    command = [sys.executable, os.path.abspath(__file__), *words, "--rank", str(rank)]
                    processes.append(
                        subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=said, stderr=errors, env=environment)
                    )
            watch(processes, directory, limit_s, asked)
        finally:
            for process in processes:
                if process.poll() is None:
                    process.kill()
                process.wait()
        with open(out, encoding="utf-8") as file:
            return file.read()


def watch(processes: "list[subprocess.Popen[bytes]]", directory: str, limit_s: float, asked: "list[int]") -> None:
    """Returns when every rank has ended well. Raises Failure at the first that did not, or at the deadline.

    `asked` holds the signals that asked for an end; SystemExit is raised then.
    """
    deadline = time.monotonic() + limit_s
    while True:
        if asked:
            raise SystemExit(128 + asked[0])
        codes = [process.poll() for process in processes]
        failed = []
        for rank, code in enumerate(codes):
            if code:
                with open(os.path.join(directory, f"err{rank}"), "rb") as file:
                    failed.append(failed_rank(rank, code, file.read().decode("utf-8", "replace")))
        if failed:
            # The others fail when one is gone: the one that knows why comes first.
            raise min(failed, key=lambda failure: failure.document["slug"] == "rank_failed")
        if all(code == 0 for code in codes):
            return
        if time.monotonic() > deadline:
            slow = ", ".join(str(rank) for rank, code in enumerate(codes) if code is None)
            raise Failure(
                "timeout",
                f"rank {slow} did not end within {limit_s:.0f} s",
                "an all-reduce that never ends: try NCCL_P2P_DISABLE=1, and NCCL_DEBUG=INFO to see where it waits",
            )
        time.sleep(0.05)


def failed_rank(rank: int, code: int, said: str) -> Failure:
    """What a rank's last words mean."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    for line in lines:
        if line.startswith("{"):  # its own Failure
            document = json.loads(line)
            return Failure(document["slug"], document["text"], document["hint"])
    last = " ".join((lines[-1] if lines else f"exit status {code}").split())[:300]
    if "out of memory" in said.lower():
        return Failure(
            "out_of_memory",
            f"rank {rank}: the GPUs have no room for it",
            "NCCL needs some 500 MiB a GPU: stop the server first",
        )
    return Failure("rank_failed", f"rank {rank}: {last}", "NCCL_DEBUG=INFO tells more")


def main() -> int:
    """Exit status 0, or 1 with a document that says why."""
    options = arguments()
    try:
        if options.rank is not None:
            work(options)
        else:
            sys.stdout.write(lead(options))
            sys.stdout.flush()
    except Failure as failure:
        # A rank says it to the process that started it.
        stream = sys.stderr if options.rank is not None else sys.stdout
        stream.write(json.dumps(failure.document) + "\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
