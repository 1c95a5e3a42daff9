"""The simulated `sglang.launch_server`: the main process, from its arguments to its end.

A scheduler that fails ends as on a real host: its exception in the log, then the main process kills itself with SIGKILL
(exit code 137).
"""

import asyncio
import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

from tui.demo import arguments, failures, gpus, launch, model, processes
from tui.demo.api import Api
from tui.demo.engine import Engine
from tui.demo.http import Connection, Exchange, request
from tui.demo.launch import BadModel, Launch
from tui.demo.nodes import Nodes
from tui.demo.output import Output
from tui.demo.startup import SLOW_TOKENIZER, SchedulerFailed, Startup, report_exceptions, report_failure

BIND_FAILED = 3
IDLE_AFTER_S = 0.4  # GPUs learn of an idle server only then: pauses between requests are no idle time
TOKENIZER_WARNING_S = 20.0  # model seconds; never more often than once in two real seconds


class Server:
    """The main process after its arguments were understood."""

    def __init__(self, launch: Launch, board: gpus.Board, children: list[int]) -> None:
        self.launch, self.board, self.children = launch, board, children
        self.out = launch.out
        self.stop = asyncio.Event()
        self.load = -1
        self.idle: asyncio.TimerHandle | None = None
        self.nodes: Nodes | None = None
        if (count := launch.config.nodes) > 1:
            # Without an address each node listens and asks at one of its own, and they never meet.
            address = launch.args["dist_init_addr"] or "127.0.0.1:0"
            self.nodes = Nodes(count, int(launch.args["node_rank"]), address)

    # --- ends -------------------------------------------------------------------------------------------------------

    def die(self) -> NoReturn:
        """What `kill_process_tree` with the parent included does."""
        self.board.mark_dead()
        processes.kill(self.children)
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("unreachable")

    def child_died(self) -> None:
        """A child ended: while serving that is a crash."""
        while (gone := processes.ended(self.children)) is not None:
            at, pid, code = gone
            if self.stop.is_set() and code >= 0:
                continue
            name = f"scheduler_{at}" if at < len(self.launch.ranks) else "detokenizer"
            self.out.record(
                f"Subprocess {name} (pid={pid}) crashed with exit code {code}. Triggering SIGQUIT for cleanup..."
            )
            self._quit()
            return

    def _quit(self) -> None:
        """The end of a server that serves: what remains is looked at first."""
        self.out.record("SIGQUIT received. signum=None, frame=None. It usually means one child failed.")
        self.out.record("Sleeping 5 seconds before crash diagnostics to let GPU activity settle.")
        asyncio.get_running_loop().call_later(5.0 / max(1.0, self.launch.speed), self._crashed)

    def _crashed(self) -> None:
        self.out.record("No live scheduler processes found; skipping py-spy and CUDA coredump.")
        self.out.killed_tree(include_parent=True)
        self.die()

    async def _end_with_nodes(self, startup: Startup, nodes: Nodes) -> None:
        """Of the node with rank 0: its schedulers fail where another node is gone."""
        address = await nodes.until_gone()
        if not self.stop.is_set():
            report_exceptions(startup, failures.peer_gone(address, "serving"))
            self._quit()

    async def watch_host(self) -> None:
        """Ends with the simulated host, however that ended."""
        words = self.launch.env.get(launch.HOST, "").split()
        if len(words) != 2:
            return
        while gpus.process_start(int(words[0])) == words[1]:  # noqa: ASYNC110 - another process: there is no event
            await asyncio.sleep(1.0)
        processes.kill(self.children)
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
            if self.nodes is not None and self.launch.leads:
                self.nodes.say(f"load {users}")
        elif not users and self.load:

            def idle() -> None:
                self.load = 0
                startup.publish(0.0, 0.0)
                if self.nodes is not None and self.launch.leads:
                    self.nodes.say("load 0")

            self.idle = asyncio.get_running_loop().call_later(IDLE_AFTER_S, idle)

    # --- the whole course -------------------------------------------------------------------------------------------

    async def run(self) -> int:
        """From the schedulers' first line to the end; returns the exit code of an orderly end."""
        host = asyncio.ensure_future(self.watch_host())
        startup = Startup(self.launch, self.board, self.children[: len(self.launch.ranks)], self.nodes)
        try:
            await startup.run()
        except SchedulerFailed as failed:
            report_failure(startup, failed.failure)
            await asyncio.sleep(0.05)
            self.die()
        if self.nodes is not None and not self.launch.leads:
            code = await self._follow(startup, self.nodes)
            host.cancel()
            return code
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGCHLD, self.child_died)
        self.child_died()
        beside = asyncio.ensure_future(self._end_with_nodes(startup, self.nodes)) if self.nodes is not None else None
        startup.report_timings()
        engine = Engine(
            self.launch.config,
            self.out,
            seed=self.launch.seed,
            configuration=self.launch.configuration,
            launch=self.launch.number(),
            log_interval=max(1, int(self.launch.args["decode_log_interval"])),
            on_load=lambda users: self.show_load(startup, users),
        )
        scheduler = asyncio.ensure_future(engine.run())
        code = await self._serve(self._api(engine, startup))
        scheduler.cancel()
        host.cancel()
        if beside is not None:
            beside.cancel()
        return code

    async def _follow(self, startup: Startup, nodes: Nodes) -> int:
        """What a node without rank 0 does from here on: it answers that it is well, and ends with its schedulers."""
        loop = asyncio.get_running_loop()
        over: asyncio.Future[int] = loop.create_future()  # the exit code of its schedulers

        def ended(code: int) -> None:
            if not over.done():
                over.set_result(code)

        def child_died() -> None:
            if (gone := processes.ended(self.children)) is not None:
                self.children.insert(gone[0], gone[1])  # it is reported below
                ended(gone[2])

        def heard(word: str) -> None:
            if word == "stop":
                ended(0)
            elif word.startswith("load "):
                self.show_load(startup, int(word.removeprefix("load ")))

        nodes.heard = heard
        rank, address, port = nodes.rank, str(self.launch.args["host"]), int(self.launch.args["port"])
        with contextlib.suppress(OSError):  # taken: nothing of a server depends on it
            await loop.create_server(lambda: Connection(_well, lambda *_: None), address, port)
        self.out.record(f"Dummy health check server started in background thread at {address}:{port}")
        told = f"SIGTERM received on node_rank {rank}; waiting for the rank-0 ShutdownReq broadcast to stop the schedulers."
        loop.add_signal_handler(signal.SIGTERM, self.out.record, told)
        loop.add_signal_handler(signal.SIGCHLD, child_died)

        def end_with(gone: asyncio.Task[str]) -> None:
            if not over.done() and not gone.cancelled():
                report_failure(startup, failures.peer_gone(gone.result(), "serving"))
                self.die()

        gone = asyncio.create_task(nodes.until_gone())
        gone.add_done_callback(end_with)
        code = await over
        gone.cancel()
        loop.remove_signal_handler(signal.SIGCHLD)
        for pid in self.children:
            self.out.record(f"Scheduler or DataParallelController {pid} terminated with {code}")
        self._end_children()
        return 0

    def _api(self, engine: Engine, startup: Startup) -> Api:
        args, env = self.launch.args, self.launch.env
        info = json.loads(arguments.DATA.read_text(encoding="utf-8"))["model_info"]
        info |= {name: args[name] for name in ("model_path", "served_model_name", "tokenizer_path")}
        info["model_type"] = "kimi_k25" if self.launch.config.kimi else "qwen3"
        info["architectures"] = [self.launch.architecture]
        generates = env.get("SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION", "true").lower() not in ("0", "false", "no")
        return Api(
            args,
            engine,
            startup.timings,
            startup.memory,
            argv=self.launch.argv,
            model_info=info,
            health_generates=generates,
        )

    async def _serve(self, api: Api) -> int:
        """The HTTP server from its first line to the last answer."""
        loop = asyncio.get_running_loop()
        self.out.uvicorn(f"Started server process [{os.getpid()}]")
        self.out.uvicorn("Waiting for application startup.")
        self.out.uvicorn("Application startup complete.")
        address, port = str(self.launch.args["host"]), int(self.launch.args["port"])
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
        beside = [asyncio.ensure_future(self._warm_up(api)), asyncio.ensure_future(self._tokenizer_warnings())]
        await self.stop.wait()
        api.stopping = True
        for task in beside:
            task.cancel()
        self.out.record("SIGTERM received. signum=None frame=None. Draining requests and shutting down...")
        while api.engine.running or api.engine.waiting:  # noqa: ASYNC110 - seldom, and once in a life
            await asyncio.sleep(0.02)
        await asyncio.sleep(0.05)  # the last answers leave
        self.out.record("Gracefully exiting... Remaining number of requests 0. Remaining requests remaining_rids=[].")
        loop.remove_signal_handler(signal.SIGCHLD)
        http.close()
        self._goodbye()
        return 0

    def _goodbye(self) -> None:
        if self.nodes is not None:
            self.nodes.say("stop")
        self._end_children()
        self.out.uvicorn("Shutting down")
        self.out.uvicorn("Waiting for application shutdown.")
        self.out.uvicorn("Application shutdown complete.")
        self.out.uvicorn(f"Finished server process [{os.getpid()}]")
        self.out.killed_tree(include_parent=False)

    def _end_children(self) -> None:
        """What `kill_process_tree` without the parent does."""
        self.out.killed_tree(include_parent=False)
        processes.kill(self.children)
        self.board.withdraw()

    async def _port_taken(self, address: str, port: int, error: OSError) -> None:
        """Found last of all; the warm-up then talks to whoever has the port, and may well be pleased with it."""
        reason = os.strerror(error.errno or 0).lower()
        self.out.uvicorn(
            f"[Errno {error.errno}] error while attempting to bind on address ('{address}', {port}): {reason}", "ERROR"
        )
        try:
            if await self._probe():
                self.out.record("The server is fired up and ready to roll!")
        except (OSError, TimeoutError):
            pass  # whoever has the port is not a server, or not of this kind
        self.out.uvicorn("Waiting for application shutdown.")
        self.out.uvicorn("Application shutdown complete.")
        self._end_children()

    async def _ask(self, method: str, path: str, body: object = None) -> int:
        """The status of a request to our own address, whoever answers there."""
        args = self.launch.args
        host = "127.0.0.1" if args["host"] in ("0.0.0.0", "::") else str(args["host"])
        headers = {"Authorization": f"Bearer {args['api_key']}"} if args["api_key"] else {}
        return await request(host, int(args["port"]), method, path, body, headers)

    async def _probe(self) -> bool:
        if await asyncio.wait_for(self._ask("GET", "/model_info"), 120) != 200:
            return False
        body = {"text": "The capital city of France is", "sampling_params": {"temperature": 0, "max_new_tokens": 8}}
        return await asyncio.wait_for(self._ask("POST", "/generate", body), 600) == 200

    async def _warm_up(self, api: Api) -> None:
        if not self.launch.args["skip_server_warmup"]:
            await asyncio.sleep((model.WARMUP_S if self.launch.config.kimi else 2.0) / self.launch.speed)
            try:
                answered = await self._probe()
            except (OSError, TimeoutError) as error:
                self.out.record(f"Initialization failed. warmup error: {type(error).__name__}: {error}")
                self.die()
            if not answered:
                self.out.record("Initialization failed. warmup error: the server did not answer with 200")
                self.die()
            await self._ask("POST", "/freeze_gc", {})
        api.starting = False
        api.engine.next_run()
        self.out.record("The server is fired up and ready to roll!")

    async def _tokenizer_warnings(self) -> None:
        """A slow tokenizer says so for as long as the server lives."""
        if not self.launch.config.kimi and self.launch.args["tokenizer_mode"] != "slow":
            return
        while True:
            await asyncio.sleep(max(2.0, TOKENIZER_WARNING_S / self.launch.speed))
            self.out.record(SLOW_TOKENIZER)


async def _well(exchange: Exchange) -> None:
    """The health check of a node without rank 0: always well, whatever its ranks do."""
    exchange.answer(200 if exchange.query.path in ("/health", "/health_generate") else 404)


def _refused(out: Output, name: str, **values: object) -> int:
    """Arguments with which SGLang ends before any process is started."""
    out.raw(failures.words_of(name, **values).replace("{site}", str(out.site)))
    return 1


def main(argv: Sequence[str] | None = None, site: Path | None = None) -> int:
    """Runs a server; returns its exit code, unless it ends by a signal."""
    began = time.monotonic()
    words = list(sys.argv[1:] if argv is None else argv)
    env = dict(os.environ)
    root = Path(env.get(launch.ROOT, "/nonexistent"))
    out = Output(1, site or Path(__file__).resolve().parent)
    if "-h" not in words and "--help" not in words:
        out.warning(
            "sglang/launch_server.py:71",
            "UserWarning: 'python -m sglang.launch_server' is still supported, but 'sglang serve' is the recommended entrypoint.\n"
            "  Example: sglang serve --model-path <model> [options]",
            "warnings.warn(",
        )
    args = arguments.parse(words)
    try:
        speed = launch.positive(env, launch.SPEED, 20.0)
        seed = int(launch.positive(env, launch.SEED, 1.0))
        wrong_drafts = launch.positive(env, launch.WRONG_DRAFTS, 0.0)
    except ValueError as error:
        out.raw(f"{arguments.PROG}: error: {error}\n")
        return 2
    tp = int(args["tp_size"])
    out.tagged = tp > 1
    try:
        architecture = launch.architecture_of(root, env, args["model_path"])
        draft = args["speculative_draft_model_path"] or args["model_path"]
        draft_architecture = launch.architecture_of(root, env, draft) if args["speculative_algorithm"] else ""
    except BadModel as error:
        out.killed_tree(include_parent=False)
        return _refused(out, "bad_model", reason=error)
    notes: list[str] = []
    try:
        config = launch.resolve(args, env, architecture.startswith("Kimi"), notes)
        gpu_of_rank = launch.visible_gpus(args, env, tp // config.nodes)
    except RuntimeError as error:
        return _refused(out, "early", function="get_device", error=f"RuntimeError: {error}")
    except AssertionError as error:
        return _refused(out, "early", function="resolve_once", error=f"AssertionError: {error}")
    _pause(began, 0.8 * model.LAUNCH_S, speed)
    for note in (*notes, "Fail to set RLIMIT_NOFILE: current limit exceeds maximum limit", f"server_args={args!r}"):
        out.record(note)
    _pause(began, model.LAUNCH_S, speed)
    now = gpus.read(root / "gpu")
    taken = [max(0.0, now[gpu].memory_used_mib / 1024 - 0.01) for gpu in gpu_of_rank]
    config = replace(config, free_gib=model.FREE_BEFORE_LOAD_GIB - max(taken), wrong_drafts=wrong_drafts)
    failure = failures.crowded(config, gpu_of_rank[0], taken)
    failure = failure or failures.failure_of(args, env, config, draft_architecture)
    (root / "gpu").mkdir(parents=True, exist_ok=True)
    board = gpus.Board(root / "gpu", os.getpid())
    started = Launch(
        args, config, out, root, words, env, speed, seed, architecture, draft_architecture, gpu_of_rank, began, failure
    )
    titles = [f"scheduler_TP{rank}" for rank in started.ranks]
    children, _kept = processes.spawn([*titles, "detokenizer"] if started.leads else titles, board)
    return asyncio.run(Server(started, board, children).run())


def _pause(began: float, seconds: float, speed: float) -> None:
    left = began + seconds / speed - time.monotonic()
    if left > 0:
        time.sleep(left)
