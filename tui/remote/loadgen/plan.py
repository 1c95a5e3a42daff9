"""What is asked for: bench.json, checked."""

from __future__ import annotations

import json
import os
from typing import Any
from urllib.parse import urlsplit

from tui.remote.loadgen.protocol import VERSION, Stop
from tui.remote.loadgen.search import Search

HINT = "docs/load-generator.md has its format"
LIMITS = {
    "connect_s": 10.0,
    "stall_s": 180.0,
    "request_s": 900.0,
    "drain_s": 300.0,
    "ramp_s": 120.0,
    "settle_s": 5.0,
    "tail_s": 2.0,
}


def need(holds: object, text: str) -> None:
    """Raises Stop("bad_plan") unless it holds."""
    if not holds:
        raise Stop("bad_plan", "bench.json: " + text, HINT)


class Plan:
    """bench.json, checked."""

    def __init__(self, document: Any) -> None:
        need(isinstance(document, dict), "not an object")
        need(document.get("version") == VERSION, f"version is {document.get('version')!r}, not {VERSION}")
        self._take_server(document)
        self._take_loads(document)
        self._take_dataset(document)
        self.ignore_eos: bool = bool(document.get("ignore_eos", False))
        self.temperature: float = float(document.get("temperature", 0.0))
        self.warmup_s: float = float(document.get("warmup_s", 30.0))
        self.limits: dict[str, float] = {**LIMITS, **(document.get("limits") or {})}

    def _take_server(self, document: dict[str, Any]) -> None:
        url = urlsplit(str(document.get("base_url", "")))
        need(url.scheme == "http" and url.hostname, "base_url is not an http:// address")
        self.host: str = url.hostname or ""
        self.port: int = url.port or 80
        self.prefix: str = url.path.rstrip("/")
        self.api: str = document.get("api", "generate")
        need(self.api in ("generate", "chat"), f"api is {self.api!r}, not generate or chat")
        self.model: str | None = document.get("model")
        self.key: str | None = None
        variable = document.get("headers_env")
        if variable:
            self.key = os.environ.get(variable)
            need(self.key, f"headers_env: {variable} is not set")
        server = document.get("server") or {}
        self.log: str | None = server.get("log")
        self.pid: int | None = server.get("pid")
        self.gpus: list[int] | None = server.get("gpus")
        self.members: list[dict[str, Any]] = server.get("members") or []
        for part in self.members:
            need(
                part.get("role") in ("prefill", "decode"),
                f"a member's role is {part.get('role')!r}, not prefill or decode",
            )
            address = urlsplit(str(part.get("url", "")))
            need(address.scheme == "http" and address.hostname, "url of a member is not an http:// address")

    @property
    def pids(self) -> list[int]:
        """Of the server and of its members on this host."""
        return [pid for pid in (self.pid, *(part.get("pid") for part in self.members)) if pid is not None]

    def _take_loads(self, document: dict[str, Any]) -> None:
        self.points: list[dict[str, Any]] = document.get("points") or []
        search = document.get("search")
        self.search: Search | None = Search(search) if search else None
        need(self.points or self.search, "no points")
        for point in self.points:
            value = point.get("concurrency", point.get("rate"))
            need(len(point) == 1 and isinstance(value, (int, float)) and value > 0, f"bad point {point!r}")
            need("concurrency" not in point or isinstance(value, int), f"bad point {point!r}")
        self.runs: int = int(document.get("runs", 1))
        self.duration_s: float = float(document["duration_s"])
        self.duration_max_s = max(self.duration_s, float(document.get("duration_max_s") or 0.0))
        needs = document.get("needs") or {}
        self.needs: tuple[int, int] = int(needs.get("tokens") or 0), int(needs.get("replies") or 0)
        self.max_requests: int | None = document.get("max_requests")
        self.output_len: int = int(document["output_len"])
        self.input_len: int = int(document.get("input_len") or 0)
        positive = self.runs > 0 and self.duration_s > 0 and self.output_len > 0
        need(positive, "runs, duration_s or output_len is not above 0")
        need(self.max_requests is None or self.max_requests > 0, "max_requests is not above 0")

    def _take_dataset(self, document: dict[str, Any]) -> None:
        dataset = document.get("dataset") or {}
        self.seed: int = int(document.get("seed", 1))
        self.dataset: str = dataset.get("kind", "")
        self.items: list[dict[str, Any]] = dataset.get("items") or []
        need(self.dataset in ("prompts", "random-ids", "jsonl"), f"unknown dataset {self.dataset!r}")
        vocab = document.get("vocab")
        self.vocab: tuple[int, int] | None = (int(vocab[0]), int(vocab[1])) if vocab else None
        if self.dataset == "random-ids":
            need(self.vocab and self.vocab[1] > self.vocab[0] >= 0, "random-ids without a vocab [low, high)")
            need(self.input_len > 0, "random-ids without input_len")
            need(self.api == "generate", "random-ids needs the api generate: chat takes no token ids")
            return
        need(self.items, f"dataset {self.dataset} without items")
        for number, item in enumerate(self.items):
            kinds = [kind for kind in ("prompt", "messages", "input_ids") if item.get(kind)]
            need(len(kinds) == 1, f"item {number} needs one of prompt, messages, input_ids")
            need(self.api == "chat" or kinds[0] != "messages", f"item {number}: messages need the api chat")
            need(self.api == "generate" or kinds[0] != "input_ids", f"item {number}: input_ids need the api generate")

    @classmethod
    def read(cls, path: str) -> Plan:
        """Raises Stop("bad_plan") for anything that can't be carried out."""
        try:
            with open(path, "rb") as file:
                return cls(json.loads(file.read()))
        except OSError as error:
            raise Stop("bad_plan", f"{path}: {error.strerror}", "give the path of bench.json") from None
        except (ValueError, TypeError, KeyError, AttributeError, IndexError) as error:
            raise Stop("bad_plan", f"{path}: {type(error).__name__}: {error}", HINT) from None
