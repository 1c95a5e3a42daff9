"""The simulated `sglang.launch_server`: one main process, one child for each rank, one for the detokenizer.

The children do nothing but be there: they belong to the process tree, hold the GPUs' memory by their numbers, and die
with their parent (their end of a pipe closes). Everything else happens in the main process. A scheduler that fails
ends as on a real host: its exception in the log, then the main process kills itself with SIGKILL (exit code 137).
"""

import asyncio
import json
import os
import random
import re
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

from tui.demo import arguments, failures, gpus, model
from tui.demo.api import Api
from tui.demo.engine import Engine
from tui.demo.http import Connection, request
from tui.demo.output import Output
from tui.demo.startup import SLOW_TOKENIZER, SchedulerFailed, Startup, failure_lines

ROOT = "EAGLETUI_DEMO_ROOT"  # the simulated host's directory; also says that this is the simulated host
HOST = "EAGLETUI_DEMO_HOST"  # "pid start" of the process behind which this host ends
SPEED, SEED = "EAGLETUI_DEMO_SPEED", "EAGLETUI_DEMO_SEED"
WRONG_DRAFTS = "EAGLETUI_DEMO_WRONG_DRAFTS"  # share of tokens that a broken verification lets through
BIND_FAILED = 3
IDLE_AFTER_S = 0.4  # GPUs are told of an idle server only then: pauses between requests are no idle time
TOKENIZER_WARNING_S = 20.0  # model seconds; never more often than once in two real seconds


class BadModel(Exception):
    """A model path with no model behind it."""


def number(env: Mapping[str, str], name: str, default: float) -> float:
    """A positive number from the environment. Raises ValueError, naming the variable."""
    text = env.get(name, "")
    if not text:
        return default
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1e9:
        raise ValueError(f"{name} must be a number above 0, not {text!r}")
    return value


def hub_copy(env: Mapping[str, str], name: str) -> Path | None:
    """The snapshot of a model in the cache of Hugging Face, None where it was never downloaded."""
    home = env.get("HF_HOME") or os.path.join(env.get("HOME", "/"), ".cache", "huggingface")
    hub = Path(env.get("HF_HUB_CACHE") or os.path.join(home, "hub"))
    repository = hub / ("models--" + name.replace("/", "--"))
    try:
        place = repository / "snapshots" / (repository / "refs" / "main").read_text(encoding="utf-8").strip()
    except OSError:
        return None
    return place if place.is_dir() else None


def architecture_of(root: Path, env: Mapping[str, str], path: str) -> str:
    """The first architecture in a model's config.json. Raises BadModel where there is no model."""
    place: Path | None = None
    if path.startswith("/"):
        place = root / path.lstrip("/")
        if not place.exists():
            place = Path(path)
    elif path.count("/") == 1 and not path.startswith((".", "~")):
        place = hub_copy(env, path)
        if place is None:  # nothing outside the simulated host can be reached
            raise BadModel(
                "We couldn't connect to 'https://huggingface.co' to load the files, and couldn't find them in the cached "
                f"files. Check your internet connection or see how to run the library in offline mode. ({path})"
            )
    try:
        loaded = json.loads((place / "config.json").read_text(encoding="utf-8")) if place else None
    except (OSError, ValueError):
        loaded = None
    if not isinstance(loaded, dict):
        raise BadModel(
            f"Repo id must be in the form 'repo_name' or 'namespace/repo_name': '{path}'. "
            "Use `repo_type` argument if needed."
        )
    names = loaded.get("architectures") or ["LlamaForCausalLM"]
    return str(names[0])


def parameters(path: str) -> float:
    """Billions of parameters, by the name of a model."""
    found = re.search(r"(\d+(?:\.\d+)?)[bB](?![a-zA-Z])", path)
    return float(found[1]) if found else 8.0


def resolve(args: dict[str, Any], env: Mapping[str, str], kimi: bool, notes: list[str]) -> model.Config:
    """Fills in what SGLang derives from what was given, in `args` itself, and says what it did in `notes`."""
    args["tokenizer_path"] = args["tokenizer_path"] or args["model_path"]
    args["served_model_name"] = args["served_model_name"] or args["model_path"]
    if args["random_seed"] is None:
        args["random_seed"] = random.Random(env.get(SEED, "1")).randrange(1 << 30)
    if args["attention_backend"] is None:
        args["attention_backend"] = "triton" if kimi else "flashinfer"
        notes.append(f"Attention backend not specified. Use {args['attention_backend']} backend by default.")
    algorithm = args["speculative_algorithm"]
    speculative = algorithm is not None and str(algorithm).upper() != "NONE"
    given = [args[k] for k in ("speculative_num_steps", "speculative_eagle_topk", "speculative_num_draft_tokens")]
    if speculative:
        if given == [None, None, None]:
            given = [3, 1, 4]
        elif given[0] is None:
            raise AssertionError("speculative_num_steps must be set when the other speculative arguments are")
        steps, topk, tokens = int(given[0]), int(given[1] or 1), int(given[2] or int(given[0]) + 1)
        if topk == 1 and tokens != steps + 1:
            tokens = steps + 1
            notes.append(
                "speculative_num_draft_tokens is adjusted to speculative_num_steps + 1 when speculative_eagle_topk == 1"
            )
        (args["speculative_num_steps"], args["speculative_eagle_topk"], args["speculative_num_draft_tokens"]) = (
            steps,
            topk,
            tokens,
        )
        if args["max_running_requests"] is None:
            args["max_running_requests"] = model.SPEC_MAX_RUNNING
            notes.append(
                f"Max running requests is reset to {model.SPEC_MAX_RUNNING} for speculative decoding. "
                "You can override this by explicitly setting --max-running-requests."
            )
    else:
        steps, topk, tokens = 0, 1, 1
    if args["mem_fraction_static"] is None:
        args["mem_fraction_static"] = model.DEFAULT_FRACTION
    max_running = int(args["max_running_requests"] or model.MAX_RUNNING)
    wanted_bs = args["cuda_graph_bs_decode"] or None
    max_bs = max(wanted_bs) if wanted_bs else int(args["cuda_graph_max_bs_decode"] or 512)
    max_bs = max(1, min(max_bs, max_running))
    graphs = not (
        args["disable_cuda_graph"]
        or args["disable_decode_cuda_graph"]
        or args["cuda_graph_backend_decode"] == "disabled"
    )
    sizes = sorted(wanted_bs) if wanted_bs else model.buckets(max_bs, speculative=speculative)
    decode = dict(args["cuda_graph_config"]["decode"])
    decode |= {"backend": "full" if graphs else "disabled", "max_bs": max_bs, "bs": sizes}
    args["cuda_graph_config"] = {**args["cuda_graph_config"], "decode": decode}
    forced = env.get("SGLANG_ENABLE_PCIE_IPC_ALLREDUCE", "").lower() not in ("", "0", "false")
    simulated = env.get("SGLANG_SIMULATE_ACC_LEN", "")
    return model.Config(
        kimi=kimi,
        tp=int(args["tp_size"]),
        fraction=float(args["mem_fraction_static"]),
        max_bs=max_bs,
        graphs=graphs,
        speculative=speculative,
        steps=steps,
        draft_tokens=tokens,
        topk=topk,
        matching_draft=not speculative or str(algorithm).upper() != "EAGLE",
        simulated_accept=float(simulated) if simulated else None,
        custom_allreduce=forced and not args["disable_custom_all_reduce"],
        context_len=int(args["context_length"] or (model.CONTEXT_LEN if kimi else 40960)),
        kv_fp8="fp8" in str(args["kv_cache_dtype"]),
        max_running=max_running,
        max_total_tokens=args["max_total_tokens"],
        billions=parameters(args["model_path"]),
    )


def next_launch(root: Path, seed: int, configuration: str) -> int:
    """The number of this launch among those of its configuration and seed, from 1."""
    import fcntl

    place = root / "launches"
    place.mkdir(parents=True, exist_ok=True)
    with open(place / f"{seed}-{configuration}", "a+", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        count = int(file.read() or 0) + 1
        file.seek(0)
        file.truncate()
        file.write(str(count))
    return count


def _title(text: str) -> None:
    """Renames this process as SGLang does (setproctitle): over its own argument area, where the system lets it."""
    import ctypes

    try:
        Path("/proc/self/comm").write_text(text[:15], encoding="utf-8")
        fields = Path("/proc/self/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        start, end = int(fields[45]), int(fields[46])
        if 0 < start < end:
            data = text.encode()[: end - start - 1]
            ctypes.memset(start, 0, end - start)
            ctypes.memmove(start, data, len(data))
    except (OSError, IndexError, ValueError):
        return


def spawn(count: int, board: gpus.Board) -> tuple[list[int], int]:
    """Forks the children; each ends when this process is gone. Returns their numbers and the end of the pipe to keep."""
    reading, writing = os.pipe()
    pids = []
    for at in range(count):
        pid = os.fork()
        if pid == 0:
            try:
                signal.signal(signal.SIGTERM, signal.SIG_DFL)
                signal.signal(signal.SIGINT, signal.SIG_IGN)
                os.close(writing)
                _title(f"sglang::scheduler_TP{at}" if at < count - 1 else "sglang::detokenizer")
                null = os.open(os.devnull, os.O_RDWR)
                for descriptor in (0, 1, 2):
                    os.dup2(null, descriptor)
                os.read(reading, 1)
                if at == 0:
                    board.mark_dead()
                time.sleep(0.3)
            finally:
                os._exit(0)
        pids.append(pid)
    os.close(reading)
    return pids, writing


class Server:
    """The main process after its arguments were understood."""

    def __init__(
        self,
        args: dict[str, Any],
        config: model.Config,
        out: Output,
        *,
        root: Path,
        argv: Sequence[str],
        env: Mapping[str, str],
        speed: float,
        seed: int,
        architecture: str,
        draft_architecture: str,
        gpu_of_rank: list[int],
        began: float,
    ) -> None:
        self.args, self.config, self.out = args, config, out
        self.root, self.argv, self.env = root, argv, env
        self.speed, self.seed = speed, seed
        self.architecture, self.draft_architecture = architecture, draft_architecture
        self.gpu_of_rank = gpu_of_rank
        self.began = began
        self.children: list[int] = []
        self.board = gpus.Board(root / "gpu", os.getpid())
        self.failure = failures.failure_of(args, env, config, draft_architecture)
        self.stop = asyncio.Event()
        self.load = -1
        self.idle: asyncio.TimerHandle | None = None

    # --- ends -------------------------------------------------------------------------------------------------------

    def kill_children(self) -> None:
        for pid in self.children:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue

    def die(self) -> NoReturn:
        """What `kill_process_tree` with the parent included does."""
        self.board.mark_dead()
        self.kill_children()
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("unreachable")

    def child_died(self) -> None:
        """A child ended: while serving that is a crash."""
        for pid in list(self.children):
            try:
                gone, status = os.waitpid(pid, os.WNOHANG)
            except ChildProcessError:
                continue
            if not gone:
                continue
            at = self.children.index(pid)
            self.children.remove(pid)
            if self.stop.is_set() and not os.WIFSIGNALED(status):
                continue
            code = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
            name = f"scheduler_{at}" if at < self.config.tp else "detokenizer"
            self.out.record(
                f"Subprocess {name} (pid={pid}) crashed with exit code {code}. Triggering SIGQUIT for cleanup..."
            )
            self.out.record("SIGQUIT received. signum=None, frame=None. It usually means one child failed.")
            self.out.record("Sleeping 5 seconds before crash diagnostics to let GPU activity settle.")
            asyncio.get_running_loop().call_later(5.0 / max(1.0, self.speed), self._crashed)
            return

    def _crashed(self) -> None:
        me = os.getpid()
        self.out.record("No live scheduler processes found; skipping py-spy and CUDA coredump.")
        self.out.record(f"kill_process_tree called: parent_pid={me}, include_parent=True, pid={me}")
        self.die()

    async def watch_host(self) -> None:
        """Ends with the simulated host, however that ended."""
        words = self.env.get(HOST, "").split()
        if len(words) != 2:
            return
        while gpus.process_start(int(words[0])) == words[1]:  # noqa: ASYNC110 - another process: there is no event
            await asyncio.sleep(1.0)
        self.kill_children()
        os._exit(143)

    # --- GPUs -------------------------------------------------------------------------------------------------------

    def show_load(self, startup: Startup, users: int) -> None:
        """Tells the GPUs how busy they are; idle only after a moment."""
        if self.idle is not None:
            self.idle.cancel()
            self.idle = None
        if users and users != self.load:
            self.load = users
            startup.publish(0.96, min(1.0, 0.94 + 0.06 * min(users, 16) / 16))
        elif not users and self.load:

            def idle() -> None:
                self.load = 0
                startup.publish(0.0, 0.0)

            self.idle = asyncio.get_running_loop().call_later(IDLE_AFTER_S, idle)

    # --- the whole course -------------------------------------------------------------------------------------------

    async def run(self) -> int:
        """From the schedulers' first line to the end; returns the exit code of an orderly end."""
        loop = asyncio.get_running_loop()
        host = asyncio.ensure_future(self.watch_host())
        startup = Startup(
            self.args,
            self.config,
            self.out,
            self.board,
            self.gpu_of_rank,
            self.children[: self.config.tp],
            speed=self.speed,
            seed=self.seed,
            architecture=self.architecture,
            draft_architecture=self.draft_architecture,
            failure=self.failure,
            began=self.began,
            env=self.env,
        )
        startup.clock = time.monotonic()
        try:
            await startup.run()
        except SchedulerFailed as failed:
            failure_lines(startup, failed.failure)
            await asyncio.sleep(0.05)
            self.die()
        loop.add_signal_handler(signal.SIGCHLD, self.child_died)
        self.child_died()
        t = startup.timings
        t.tokenizer_e2e = time.monotonic() - self.began
        graphs = ", ".join(f"{name}={took:.2f}" for name, took in t.cuda_graph.items())
        self.out.record(
            f"Engine startup timings (s): load_weight={t.load_weight:.2f}, kv_cache_allocation={t.kv_cache_allocation:.2f}, "
            f"scheduler_e2e={t.scheduler_e2e:.2f}, cuda_graph={{{graphs}}}, tokenizer_e2e={t.tokenizer_e2e:.2f}"
        )
        env = sorted((k, v) for k, v in self.env.items() if k.startswith(("NCCL_", "SGLANG_", "CUDA_")))
        configuration = model.configuration_key(self.argv, env)
        engine = Engine(
            self.config,
            self.out,
            seed=self.seed,
            configuration=configuration,
            launch=next_launch(self.root, self.seed, configuration),
            log_interval=max(1, int(self.args["decode_log_interval"])),
            on_load=lambda users: self.show_load(startup, users),
        )
        info = json.loads(arguments.DATA.read_text(encoding="utf-8"))["model_info"]
        info |= {
            "model_path": self.args["model_path"],
            "served_model_name": self.args["served_model_name"],
            "tokenizer_path": self.args["tokenizer_path"],
            "model_type": "kimi_k25" if self.config.kimi else "qwen3",
            "architectures": [self.architecture],
        }
        generates = self.env.get("SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION", "true").lower() not in ("0", "false", "no")
        api = Api(self.args, engine, t, startup.memory, argv=self.argv, model_info=info, health_generates=generates)
        scheduler = asyncio.ensure_future(engine.run())
        me = os.getpid()
        self.out.uvicorn(f"Started server process [{me}]")
        self.out.uvicorn("Waiting for application startup.")
        self.out.uvicorn("Application startup complete.")
        address, port = str(self.args["host"]), int(self.args["port"])
        try:
            http = await loop.create_server(
                lambda: Connection(api.handle, lambda q, status: self.out.access(q.peer, q.method, q.path, status)),
                address,
                port,
                backlog=2048,
            )
        except OSError as error:
            await self._port_taken(address, port, error)
            return BIND_FAILED
        self.out.uvicorn(f"Uvicorn running on http://{address}:{port} (Press CTRL+C to quit)")
        loop.add_signal_handler(signal.SIGTERM, self.stop.set)
        loop.add_signal_handler(signal.SIGINT, self.stop.set)
        warmup = asyncio.ensure_future(self._warm_up(api, address, port))
        chatter = asyncio.ensure_future(self._tokenizer_warnings())
        await self.stop.wait()
        api.stopping = True
        warmup.cancel()
        chatter.cancel()
        self.out.record("SIGTERM received. signum=None frame=None. Draining requests and shutting down...")
        while engine.running or engine.waiting:  # noqa: ASYNC110 - seldom, and once in a life
            await asyncio.sleep(0.02)
        await asyncio.sleep(0.05)  # the last answers leave
        self.out.record("Gracefully exiting... Remaining number of requests 0. Remaining requests remaining_rids=[].")
        loop.remove_signal_handler(signal.SIGCHLD)
        http.close()
        scheduler.cancel()
        host.cancel()
        self._goodbye()
        return 0

    def _goodbye(self) -> None:
        me = os.getpid()
        self.out.record(f"kill_process_tree called: parent_pid={me}, include_parent=False, pid={me}")
        self.kill_children()
        self.board.withdraw()
        self.out.uvicorn("Shutting down")
        self.out.uvicorn("Waiting for application shutdown.")
        self.out.uvicorn("Application shutdown complete.")
        self.out.uvicorn(f"Finished server process [{me}]")

    async def _port_taken(self, address: str, port: int, error: OSError) -> None:
        """Found last of all; the warm-up then talks to whoever has the port, and may well be pleased with it."""
        reason = os.strerror(error.errno or 0).lower()
        self.out.uvicorn(
            f"[Errno {error.errno}] error while attempting to bind on address ('{address}', {port}): {reason}", "ERROR"
        )
        try:
            if await self._probe(address, port):
                self.out.record("The server is fired up and ready to roll!")
        except (OSError, TimeoutError):
            pass  # whoever has the port is no server, or not this kind
        me = os.getpid()
        self.out.uvicorn("Waiting for application shutdown.")
        self.out.uvicorn("Application shutdown complete.")
        self.out.record(f"kill_process_tree called: parent_pid={me}, include_parent=False, pid={me}")
        self.kill_children()
        self.board.withdraw()

    async def _probe(self, address: str, port: int) -> bool:
        host = "127.0.0.1" if address in ("0.0.0.0", "::") else address
        headers = {"Authorization": f"Bearer {self.args['api_key']}"} if self.args["api_key"] else {}
        if await asyncio.wait_for(request(host, port, "GET", "/model_info", headers=headers), 120) != 200:
            return False
        body = {"text": "The capital city of France is", "sampling_params": {"temperature": 0, "max_new_tokens": 8}}
        return await asyncio.wait_for(request(host, port, "POST", "/generate", body, headers), 600) == 200

    async def _warm_up(self, api: Api, address: str, port: int) -> None:
        if not self.args["skip_server_warmup"]:
            await asyncio.sleep((model.WARMUP_S if self.config.kimi else 2.0) / self.speed)
            try:
                answered = await self._probe(address, port)
            except (OSError, TimeoutError) as error:
                self.out.record(f"Initialization failed. warmup error: {type(error).__name__}: {error}")
                self.die()
            if not answered:
                self.out.record("Initialization failed. warmup error: the server did not answer with 200")
                self.die()
            host = "127.0.0.1" if address in ("0.0.0.0", "::") else address
            headers = {"Authorization": f"Bearer {self.args['api_key']}"} if self.args["api_key"] else {}
            await request(host, port, "POST", "/freeze_gc", {}, headers)
        api.starting = False
        api.engine.next_run()
        self.out.record("The server is fired up and ready to roll!")

    async def _tokenizer_warnings(self) -> None:
        """A slow tokenizer says so for as long as the server lives."""
        if not self.config.kimi and self.args["tokenizer_mode"] != "slow":
            return
        while True:
            await asyncio.sleep(max(2.0, TOKENIZER_WARNING_S / self.speed))
            self.out.record(SLOW_TOKENIZER)


def visible_gpus(args: Mapping[str, Any], env: Mapping[str, str], tp: int) -> list[int]:
    """The GPU of each rank. Raises RuntimeError as CUDA does where there are too few."""
    text = env.get("CUDA_VISIBLE_DEVICES")
    found = list(range(gpus.COUNT))
    if text is not None:
        by_name = {gpus.uuid(i): i for i in range(gpus.COUNT)}
        found = []
        for word in text.split(","):
            word = word.strip()
            if word.isdigit() and int(word) < gpus.COUNT:
                found.append(int(word))
            elif word in by_name:
                found.append(by_name[word])
            else:
                break  # what follows an invalid entry is invisible, as CUDA has it
    first, step = int(args["base_gpu_id"]), int(args["gpu_id_step"])
    wanted = [first + step * rank for rank in range(tp)]
    if not found or wanted[-1] >= len(found):
        raise RuntimeError("CUDA error: invalid device ordinal")
    return [found[at] for at in wanted]


def bad_model(out: Output, reason: str) -> int:
    """The model path leads nowhere: found while arguments are resolved, before any process is started."""
    me = os.getpid()
    out.record(f"kill_process_tree called: parent_pid={me}, include_parent=False, pid={me}")
    site = out.site
    out.raw(
        "Traceback (most recent call last):\n"
        f'  File "{site}/transformers/utils/hub.py", line 537, in cached_files\n'
        "    hf_hub_download(\n"
        f'  File "{site}/huggingface_hub/utils/_validators.py", line 133, in validate_repo_id\n'
        "    raise HFValidationError(\n"
        f"huggingface_hub.errors.HFValidationError: {reason}\n"
        "\nThe above exception was the direct cause of the following exception:\n\n"
        "Traceback (most recent call last):\n"
        f'  File "{site}/sglang/launch_server.py", line 84, in <module>\n'
        "    run_server(server_args)\n"
        f'  File "{site}/sglang/srt/utils/hf_transformers/config.py", line 387, in get_config\n'
        "    meta = load_pointer_adapter(model, revision)\n"
        f'  File "{site}/transformers/utils/hub.py", line 595, in cached_files\n'
        '    raise OSError(f"{e}") from e\n'
        f"OSError: {reason}\n"
    )
    return 1


def failing_early(out: Output, function: str, error: str) -> int:
    """An argument that SGLang refuses with an assertion or an error of CUDA, before any process is started."""
    out.raw(
        "Traceback (most recent call last):\n"
        f'  File "{out.site}/sglang/launch_server.py", line 84, in <module>\n'
        "    run_server(server_args)\n"
        f'  File "{out.site}/sglang/srt/server_args.py", line 277, in {function}\n'
        f"{error}\n"
    )
    return 1


def main(argv: Sequence[str] | None = None, site: Path | None = None) -> int:
    """Runs a server; returns its exit code, unless it ends by a signal."""
    began = time.monotonic()
    words = list(sys.argv[1:] if argv is None else argv)
    env = dict(os.environ)
    root = Path(env.get(ROOT, "/nonexistent"))
    site = site or Path(__file__).resolve().parent
    out = Output(1, site)
    if "-h" not in words and "--help" not in words:
        out.warning(
            "sglang/launch_server.py:71",
            "UserWarning: 'python -m sglang.launch_server' is still supported, but 'sglang serve' is the recommended entrypoint.\n"
            "  Example: sglang serve --model-path <model> [options]",
            "warnings.warn(",
        )
    args = arguments.parse(words)
    try:
        speed = number(env, SPEED, 20.0)
        seed = int(number(env, SEED, 1.0))
        wrong_drafts = number(env, WRONG_DRAFTS, 0.0)
    except ValueError as error:
        out.raw(f"{arguments.PROG}: error: {error}\n")
        return 2
    tp = int(args["tp_size"])
    out.tagged = tp > 1
    try:
        architecture = architecture_of(root, env, args["model_path"])
        kimi = architecture.startswith("Kimi")
        draft_architecture = ""
        if args["speculative_algorithm"]:
            draft = args["speculative_draft_model_path"] or args["model_path"]
            draft_architecture = architecture_of(root, env, draft)
    except BadModel as error:
        return bad_model(out, str(error))
    try:
        gpu_of_rank = visible_gpus(args, env, tp)
    except RuntimeError as error:
        return failing_early(out, "get_device", f"RuntimeError: {error}")
    notes: list[str] = []
    try:
        config = resolve(args, env, kimi, notes)
    except AssertionError as error:
        return failing_early(out, "resolve_once", f"AssertionError: {error}")
    _pause(began, 0.8 * model.LAUNCH_S, speed)
    for note in notes:
        out.record(note)
    out.record("Fail to set RLIMIT_NOFILE: current limit exceeds maximum limit")
    out.record(f"server_args={args!r}")
    _pause(began, model.LAUNCH_S, speed)
    now = gpus.read(root / "gpu")
    taken = [max(0.0, now[gpu].memory_used_mib / 1024 - 0.01) for gpu in gpu_of_rank]
    free_gib = model.FREE_BEFORE_LOAD_GIB - max(taken)
    config = replace(config, free_gib=free_gib, wrong_drafts=wrong_drafts)
    server = Server(
        args,
        config,
        out,
        root=root,
        argv=words,
        env=env,
        speed=speed,
        seed=seed,
        architecture=architecture,
        draft_architecture=draft_architecture,
        gpu_of_rank=gpu_of_rank,
        began=began,
    )
    (root / "gpu").mkdir(parents=True, exist_ok=True)
    server.children, _kept = spawn(tp + 1, server.board)
    server.failure = crowded(server, taken) or server.failure
    return asyncio.run(server.run())


def crowded(server: Server, taken: list[float]) -> failures.Failure | None:
    """The failure that others on the GPUs bring; `taken` is what they hold of each, GiB."""
    least, most = min(taken), max(taken)
    free, usual = server.config.free_gib, model.FREE_BEFORE_LOAD_GIB
    if most > 1.0 and most - least > 0.1 * usual:
        return failures.unbalanced(usual - most, usual - least)
    if most > 1.0 and free < server.config.weights_gib + 0.5:
        return failures.weights_oom(server.gpu_of_rank[0], max(0.2, min(0.9, free)))
    return None


def _pause(began: float, seconds: float, speed: float) -> None:
    left = began + seconds / speed - time.monotonic()
    if left > 0:
        time.sleep(left)
