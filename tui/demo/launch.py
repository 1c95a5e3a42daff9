"""One launch of the simulated server: what was asked for, and what SGLang derives from it before it starts anything."""

import fcntl
import json
import os
import random
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tui.demo import gpus, model
from tui.demo.failures import Failure
from tui.demo.output import Output

ROOT = "EAGLETUI_DEMO_ROOT"  # the simulated host's directory; also says that this is the simulated host
HOST = "EAGLETUI_DEMO_HOST"  # "pid start" of the process behind which this host ends
SPEED, SEED = "EAGLETUI_DEMO_SPEED", "EAGLETUI_DEMO_SEED"
WRONG_DRAFTS = "EAGLETUI_DEMO_WRONG_DRAFTS"  # share of tokens that a broken verification lets through


class BadModel(Exception):
    """A model path with no model behind it."""


@dataclass(frozen=True)
class Launch:
    """Everything that a server and its start need to know."""

    args: dict[str, Any]
    config: model.Config
    out: Output
    root: Path  # the simulated host's
    argv: list[str]
    env: Mapping[str, str]
    speed: float
    seed: int
    architecture: str
    draft_architecture: str
    gpu_of_rank: list[int]
    began: float  # time.monotonic()
    failure: Failure | None

    @property
    def ranks(self) -> range:
        """The ranks of this node."""
        here, node = self.config.tp // self.config.nodes, int(self.args["node_rank"])
        return range(node * here, (node + 1) * here)

    @property
    def leads(self) -> bool:
        """Whether this is the node with rank 0, which alone serves."""
        return self.ranks[0] == 0

    @property
    def configuration(self) -> str:
        """What launches of one profile have in common."""
        kept = sorted((k, v) for k, v in self.env.items() if k.startswith(("NCCL_", "SGLANG_", "CUDA_")))
        return model.configuration_key(self.argv, kept)

    def number(self) -> int:
        """Of this launch among those of its configuration and seed, from 1; counts it."""
        place = self.root / "launches"
        place.mkdir(parents=True, exist_ok=True)
        with open(place / f"{self.seed}-{self.configuration}", "a+", encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0)
            count = int(file.read() or 0) + 1
            file.seek(0)
            file.truncate()
            file.write(str(count))
        return count


def positive(env: Mapping[str, str], name: str, default: float) -> float:
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


# Models


def _hub_copy(env: Mapping[str, str], name: str) -> Path | None:
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
        place = _hub_copy(env, path)
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
    return str((loaded.get("architectures") or ["LlamaForCausalLM"])[0])


def _billions(path: str) -> float:
    """Parameters, by the name of a model."""
    found = re.search(r"(\d+(?:\.\d+)?)[bB](?![a-zA-Z])", path)
    return float(found[1]) if found else 8.0


# Arguments


def resolve(args: dict[str, Any], env: Mapping[str, str], kimi: bool, notes: list[str]) -> model.Config:
    """Fills in what SGLang derives from what was given, in `args` itself, and says what it did in `notes`."""
    args["tokenizer_path"] = args["tokenizer_path"] or args["model_path"]
    args["served_model_name"] = args["served_model_name"] or args["model_path"]
    if args["random_seed"] is None:
        args["random_seed"] = random.Random(env.get(SEED, "1")).randrange(1 << 30)
    if args["attention_backend"] is None:
        args["attention_backend"] = "triton" if kimi else "flashinfer"
        notes.append(f"Attention backend not specified. Use {args['attention_backend']} backend by default.")
    algorithm = str(args["speculative_algorithm"] or "NONE").upper()
    speculative = algorithm != "NONE"
    steps, topk, tokens = _speculation(args, notes) if speculative else (0, 1, 1)
    if args["mem_fraction_static"] is None:
        args["mem_fraction_static"] = model.DEFAULT_FRACTION
    max_running = int(args["max_running_requests"] or model.MAX_RUNNING)
    graphs, max_bs = _graphs(args, max_running, speculative=speculative)
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
        matching_draft=algorithm != "EAGLE",
        simulated_accept=float(simulated) if simulated else None,
        custom_allreduce=forced and not args["disable_custom_all_reduce"],
        context_len=int(args["context_length"] or (model.CONTEXT_LEN if kimi else 40960)),
        kv_fp8="fp8" in str(args["kv_cache_dtype"]),
        max_running=max_running,
        max_total_tokens=args["max_total_tokens"],
        billions=_billions(args["model_path"]),
        nodes=_nodes(args),
    )


def _nodes(args: Mapping[str, Any]) -> int:
    """How many hosts. Raises AssertionError as SGLang does where its ranks do not divide among them."""
    count = int(args["nnodes"])
    if int(args["tp_size"]) % count:
        raise AssertionError("tp_size must be divisible by number of nodes")
    return count


def _speculation(args: dict[str, Any], notes: list[str]) -> tuple[int, int, int]:
    """Steps, top k and draft tokens."""
    names = ("speculative_num_steps", "speculative_eagle_topk", "speculative_num_draft_tokens")
    given = [args[name] for name in names]
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
    args.update(zip(names, (steps, topk, tokens), strict=True))
    if args["max_running_requests"] is None:
        args["max_running_requests"] = model.SPEC_MAX_RUNNING
        notes.append(
            f"Max running requests is reset to {model.SPEC_MAX_RUNNING} for speculative decoding. "
            "You can override this by explicitly setting --max-running-requests."
        )
    return steps, topk, tokens


def _graphs(args: dict[str, Any], max_running: int, *, speculative: bool) -> tuple[bool, int]:
    """Whether there are CUDA graphs, and the largest batch that has one."""
    wanted = args["cuda_graph_bs_decode"] or None
    max_bs = max(1, min(max(wanted) if wanted else int(args["cuda_graph_max_bs_decode"] or 512), max_running))
    disabled = args["disable_cuda_graph"] or args["disable_decode_cuda_graph"]
    graphs = not (disabled or args["cuda_graph_backend_decode"] == "disabled")
    sizes = sorted(wanted) if wanted else model.buckets(max_bs, speculative=speculative)
    decode = {"backend": "full" if graphs else "disabled", "max_bs": max_bs, "bs": sizes}
    args["cuda_graph_config"] = {
        **args["cuda_graph_config"],
        "decode": {**args["cuda_graph_config"]["decode"], **decode},
    }
    return graphs, max_bs


def visible_gpus(args: Mapping[str, Any], env: Mapping[str, str], ranks: int) -> list[int]:
    """The GPU of each rank of this node. Raises RuntimeError as CUDA does where there are too few."""
    text = env.get("CUDA_VISIBLE_DEVICES")
    found = list(range(gpus.COUNT))
    if text is not None:
        by_name = {gpus.uuid(i): i for i in range(gpus.COUNT)}
        found = []
        for word in map(str.strip, text.split(",")):
            if word.isdigit() and int(word) < gpus.COUNT:
                found.append(int(word))
            elif word in by_name:
                found.append(by_name[word])
            else:
                break  # what follows an invalid entry is invisible, as CUDA has it
    first, step = int(args["base_gpu_id"]), int(args["gpu_id_step"])
    wanted = [first + step * rank for rank in range(ranks)]
    if not found or wanted[-1] >= len(found):
        raise RuntimeError("CUDA error: invalid device ordinal")
    return [found[at] for at in wanted]
