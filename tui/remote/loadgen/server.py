"""The server that is measured: what it says of itself, what it can be asked for, its counters, its cache."""

from __future__ import annotations

import asyncio
import contextlib
import json
import statistics
from typing import Any

from tui.remote.loadgen import endpoints
from tui.remote.loadgen.counters import read_metrics
from tui.remote.loadgen.http import Client
from tui.remote.loadgen.identity import environment_of, identity_of, without_secrets
from tui.remote.loadgen.members import Members
from tui.remote.loadgen.plan import Plan
from tui.remote.loadgen.prompts import Workload
from tui.remote.loadgen.protocol import Stop, clock, loads, write_whole


class Server:
    """The server that is measured: what it is, its counters, its cache."""

    def __init__(self, client: Client, plan: Plan) -> None:
        self.client, self.plan = client, plan
        self.members = Members(client.loop, plan) if plan.members else None
        self.kind: str | None = None
        self.version: str | None = None
        self.first: dict[str, Any] | None = None
        self.first_identity: dict[str, Any] | None = None
        self.continuous_usage = self.spec_details = plan.api == "chat"
        self.pieces = plan.api == "chat"  # an event brings new text, not all so far
        self.metrics = True

    async def _document(self, *paths: str) -> Any:
        for path in paths:
            answer = await self.client.ask("GET", path)
            if answer.error:
                raise Stop("unreachable", f"GET {path}: {answer.error}", "is the server up, and on this port?")
            if answer.status == 401:
                raise Stop("unauthorized", f"GET {path}: 401", "name the variable with the API key in headers_env")
            if answer.status == 200:
                with contextlib.suppress(ValueError):
                    return loads(answer.text)
        return None

    async def _members_info(self) -> list[dict[str, Any]] | None:
        """What each part says of itself; None of a server that has none. Raises Stop."""
        if self.members is None:
            return None
        found = []
        for part, answer in await self.members.ask(*endpoints.SERVER_INFO):
            info = None
            with contextlib.suppress(ValueError):
                info = loads(answer.text) if answer.status == 200 else None
            if not isinstance(info, dict):
                said = answer.error or f"GET {endpoints.SERVER_INFO[0]}: {answer.status}"
                raise Stop("unreachable", f"{part['name']} at {part['url']}: {said}", "is it up, and on this port?")
            found.append({"name": part["name"], "role": part["role"], "server_info": info})
        return found

    async def facts(self) -> dict[str, Any]:
        """What it says about itself now. Raises Stop."""
        members = await self._members_info()
        decodes = [part["server_info"] for part in members or () if part["role"] == "decode"]
        server_info = decodes[0] if decodes else await self._document(*endpoints.SERVER_INFO)
        model_info = await self._document(*endpoints.MODEL_INFO) if server_info else None
        models = await self._document(*endpoints.MODELS)
        if isinstance(server_info, dict):
            self.kind, self.version = "sglang", server_info.get("version")
            self.pieces = self.plan.api == "chat" or bool(server_info.get("incremental_streaming_output"))
        else:
            version = await self._document(*endpoints.VLLM_VERSION)
            if isinstance(version, dict) and "version" in version:
                self.kind, self.version = "vllm", str(version["version"])
        if self.plan.model is None and isinstance(models, dict):
            with contextlib.suppress(LookupError, TypeError):
                self.plan.model = models["data"][0]["id"]
        found = {"server_info": server_info, "model_info": model_info, "models": models}
        if members is not None:
            found["members"] = members
        return {name: without_secrets(value, self.plan.key) for name, value in found.items()}

    async def after_run(self) -> tuple[dict[str, Any] | None, float | None]:
        """What tells it from another server on its port, and the average accept length that SGLang itself keeps since the
        last flush; None where it doesn't answer: a server that died at the end of a run costs no run."""
        try:
            facts = await self.facts()
        except Stop:
            return None, None
        return identity_of(facts, self.version, self.plan.pid), accept_length_of(facts["server_info"])

    async def write(self) -> None:
        """server.json, with the facts of now as the last ones."""
        facts = await self.facts()
        self.first = self.first or facts
        self.first_identity = self.first_identity or identity_of(facts, self.version, self.plan.pid)
        env, argv = environment_of(self.members.pid if self.members is not None else self.plan.pid)
        document = {
            "kind": self.kind,
            "version": self.version,
            "first": self.first,
            "last": facts,
            "env": env,
            "argv": without_secrets(argv, self.plan.key),
        }
        write_whole("server.json", json.dumps(document).encode())

    def request(self, fields: dict[str, Any], length: int) -> tuple[str, dict[str, Any]]:
        """Path and body of a request for a prompt."""
        plan = self.plan
        if plan.api == "generate":
            sampling: dict[str, Any] = {"max_new_tokens": length, "temperature": plan.temperature}
            if plan.ignore_eos:
                sampling["ignore_eos"] = True
            return endpoints.GENERATE, {**fields, "sampling_params": sampling, "stream": True}
        document = {
            "model": plan.model,
            **fields,
            "max_tokens": length,
            "temperature": plan.temperature,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if plan.ignore_eos:
            document["ignore_eos"] = True
        if self.continuous_usage:
            document["stream_options"] = {"include_usage": True, "continuous_usage_stats": True}
        if self.spec_details:
            document["return_spec_tokens_details"] = True
        return endpoints.CHAT, document

    async def negotiate(self) -> None:
        """One short generation, with fewer extras each time that the server refuses. Raises Stop."""
        self.spec_details = self.spec_details and self.kind == "sglang"
        workload = iter(Workload(self.plan, "probe", "probe", fresh=False))
        while True:
            fields, length = next(workload)
            path, document = self.request(fields, min(length, 8))
            answer = await self.client.ask("POST", path, document, self.plan.limits["stall_s"])
            if answer.status in (400, 422) and (self.spec_details or self.continuous_usage):
                if self.spec_details:
                    self.spec_details = False
                else:
                    self.continuous_usage = False
                continue
            if answer.status == 401:
                raise Stop("unauthorized", f"POST {path}: 401", "name the variable with the API key in headers_env")
            if answer.status == 404:
                generate = path == endpoints.GENERATE
                hint = "this server has no such endpoint; try the api chat" if generate else "check model and address"
                raise Stop("no_endpoint", f"POST {path}: {answer.error}", hint)
            if answer.error:
                slug = "unreachable" if answer.status == 0 else "refused"
                raise Stop(
                    slug, f"POST {path}: {answer.error}", "send one such request by hand and read the server's log"
                )
            return

    async def flush(self) -> bool | None:
        """Empties the prefix cache; None where there is no endpoint for it."""
        until = clock() + self.plan.limits["settle_s"]
        for path in endpoints.FLUSH:
            while True:
                answer = await self.client.ask("POST", path)
                if answer.status == 200:
                    return True
                if answer.status in (404, 405):
                    break
                if answer.error or answer.status in (401, 403) or clock() > until:
                    return False
                await asyncio.sleep(0.2)
        return None

    async def _counters(self) -> tuple[dict[str, float], float] | None:
        if self.members is not None:
            found, self.metrics = await self.members.counters()
            return found
        answer = await self.client.ask("GET", endpoints.METRICS)
        if answer.status == 200 and answer.error is None:
            return read_metrics(answer.text.decode("utf-8", "replace"))
        self.metrics = not 400 <= answer.status < 500
        return None

    def close(self) -> None:
        """Closes every connection."""
        self.client.close()
        if self.members is not None:
            self.members.close()

    async def at_rest(self, least: dict[str, float] | None = None) -> tuple[dict[str, float] | None, bool]:
        """Counters that no longer change on an idle server, and whether it said that it is idle.

        least: waited for as well, as long as settle_s allows: counters may lag behind the replies.
        """
        until = clock() + self.plan.limits["settle_s"]
        before: tuple[dict[str, float], float] | None = None
        while self.metrics:
            found = await self._counters()
            if found is None:
                break
            counters, busy = found
            reached = all(counters.get(name, 0) >= value for name, value in (least or {}).items())
            if found == before and not busy and reached:
                return counters, True
            if clock() > until:
                return counters, not busy
            before = found
            await asyncio.sleep(0.2)
        return None, False


def accept_length_of(server_info: Any) -> float | None:
    """The mean over the replicas of an SGLang server; None without speculation."""
    states = server_info.get("internal_states") if isinstance(server_info, dict) else None
    lengths = [
        state["avg_spec_accept_length"]
        for state in (states if isinstance(states, list) else [])
        if isinstance(state, dict) and isinstance(state.get("avg_spec_accept_length"), float)
    ]
    return round(statistics.mean(lengths), 4) if lengths else None
