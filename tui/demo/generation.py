"""Generation: what a request asks for, what of it is refused, and its answer, whole or streamed."""

import asyncio
import json
import time
import uuid
from collections.abc import Mapping
from typing import Any

from tui.demo.engine import CHARS_PER_TOKEN, Engine, Request
from tui.demo.frames import NativeFrames, OpenAiFrames, answer, native_answer, openai_answer
from tui.demo.http import Exchange


class Refused(Exception):
    """A request that is answered with an error; `body` is what it says."""

    def __init__(self, status: int, body: object) -> None:
        super().__init__(str(status))
        self.status, self.body = status, body


def _bad(message: str) -> Refused:
    return Refused(400, {"error": {"message": message}})


def _invalid(message: str) -> Refused:
    """Found by the framework, before SGLang sees it."""
    return Refused(400, answer("invalid", message=message))


def body_of(exchange: Exchange) -> dict[str, Any]:
    """The JSON object that a request carries. Raises Refused."""
    try:
        body = json.loads(exchange.query.body or b"{}")
    except ValueError as error:
        detail = f"'type': 'json_invalid', 'msg': 'JSON decode error', 'ctx': {{'error': '{error}'}}"
        raise _invalid(f"1 validation error:\n  {{{detail}}}") from None
    if not isinstance(body, dict):
        raise _invalid("1 validation error")
    return body


class Generation:
    """The endpoints that generate."""

    def __init__(self, args: Mapping[str, Any], engine: Engine) -> None:
        self.args, self.engine = args, engine
        self.requests: dict[str, Request] = {}

    @property
    def max_input(self) -> int:
        """Tokens that a prompt may have."""
        config = self.engine.config
        return min(config.context_len, config.pool_tokens) - 6

    def abort(self, body: Mapping[str, Any]) -> None:
        """Aborts the requests that a body names."""
        for rid, request in list(self.requests.items()):
            if body.get("abort_all") or (body.get("rid") and rid.startswith(str(body["rid"]))):
                self.engine.abort(request)

    def submit(
        self,
        rid: str | None,
        prompt: str,
        tokens: int,
        max_new: int,
        *,
        ignore_eos: bool,
        stream: bool,
        ids: bool = False,
    ) -> Request:
        """Queues a request. Raises Refused where it does not fit."""
        limit, room = self.engine.config.context_len, self.max_input
        if tokens + max_new > limit:
            raise _bad(
                f"Requested token count exceeds the model's maximum context length of {limit} tokens. "
                f"You requested a total of {tokens + max_new} tokens: {tokens} tokens from the input messages and "
                f"{max_new} tokens for the completion. Please reduce the number of tokens in the input messages "
                "or the completion to fit within the limit."
            )
        if tokens > room:
            raise _bad(
                f"Input length ({tokens} tokens) exceeds the maximum allowed length ({room} tokens). "
                "Use a shorter input or enable --allow-auto-truncate."
            )
        request = Request(
            rid=rid or uuid.uuid4().hex,
            prompt=prompt,
            prompt_tokens=tokens,
            max_new_tokens=max(1, min(max_new, room + 5 - tokens)),
            ignore_eos=ignore_eos,
            stream=stream,
            random_prompt=ids,
            received=time.time(),
        )
        self.requests[request.rid] = request
        self.engine.submit(request)
        return request

    async def finished(self, request: Request, exchange: Exchange) -> None:
        """Waits for the end of a request; a client that goes away aborts it."""
        done = asyncio.Event()
        request.notify = lambda: done.set() if request.finish else None
        if request.finish:
            done.set()
        gone = asyncio.ensure_future(exchange.connection.closed.wait())
        waiting = asyncio.ensure_future(done.wait())
        try:
            await asyncio.wait({gone, waiting}, return_when=asyncio.FIRST_COMPLETED)
            if not request.finish:
                self.engine.abort(request)
        finally:
            gone.cancel()
            waiting.cancel()
            self.requests.pop(request.rid, None)

    async def native(self, exchange: Exchange) -> None:
        """/generate: one prompt or several, each frame with everything so far."""
        body = body_of(exchange)
        ids, text = body.get("input_ids"), body.get("text")
        if text is None and ids is None:
            raise _bad("Either text, input_ids or input_embeds should be provided.")
        params = body.get("sampling_params") or {}
        stream = bool(body.get("stream", False))
        batch = isinstance(text, list) or (isinstance(ids, list) and bool(ids) and isinstance(ids[0], list))
        given: Any = text if text is not None else ids
        prompts = [_prompt(one) for one in (given if batch else [given])]
        settings = params if isinstance(params, list) else [params] * len(prompts)
        requests = []
        rids = body.get("rid")
        for at, ((prompt, tokens, random_ids), setting) in enumerate(zip(prompts, settings, strict=False)):
            wanted, ignore_eos = _sampling(setting, 128)
            rid = rids[at] if isinstance(rids, list) and at < len(rids) else (rids if at == 0 else None)
            requests.append(
                self.submit(rid, prompt, tokens, wanted, ignore_eos=ignore_eos, stream=stream, ids=random_ids)
            )
        if not stream:
            await asyncio.gather(*(self.finished(request, exchange) for request in requests))
            answers = [native_answer(request, exchange.query.received) for request in requests]
            exchange.answer(200, b"[" + b",".join(answers) + b"]" if batch else answers[0])
            return
        exchange.begin_stream()
        incremental = bool(self.args["incremental_streaming_output"])
        streams = [
            self._stream(exchange, r, NativeFrames(r, at if batch else None, exchange, incremental=incremental))
            for at, r in enumerate(requests)
        ]
        await asyncio.gather(*streams)
        exchange.chunk(b"data: [DONE]\n\n")
        exchange.end_stream()

    async def _stream(self, exchange: Exchange, request: Request, frames: NativeFrames | OpenAiFrames) -> None:
        changed = asyncio.Event()
        request.notify = changed.set
        gone = asyncio.ensure_future(exchange.connection.closed.wait())
        gone.add_done_callback(lambda _: changed.set())
        try:
            while not exchange.gone:
                if len(request.output_ids) > frames.sent or request.finish:
                    frames.send()
                if request.finish:
                    return
                await changed.wait()
                changed.clear()
            self.engine.abort(request)
        finally:
            gone.cancel()
            self.requests.pop(request.rid, None)

    async def openai(self, exchange: Exchange, *, chat: bool) -> None:
        """/v1/chat/completions and /v1/completions."""
        body = body_of(exchange)
        if chat:
            messages = body.get("messages")
            if not isinstance(messages, list) or not messages:
                detail = "{'type': 'missing', 'loc': ('body', 'messages'), 'msg': 'Field required'}"
                raise _invalid(f"1 validation error:\n  {detail}")
            prompt, ids = "\n".join(_content(message) for message in messages), False
            tokens = count_tokens(prompt) + 4 * len(messages)
        else:
            raw = body.get("prompt", "")
            raw = raw[0] if isinstance(raw, list) and raw and isinstance(raw[0], str) else raw
            prompt, tokens, ids = _prompt(raw if isinstance(raw, list) else str(raw))
        default = 16 if not chat else max(1, self.max_input - tokens)
        wanted = body.get("max_completion_tokens") or body.get("max_tokens") or default
        wanted, ignore_eos = _sampling({**body, "max_new_tokens": wanted}, default)
        stream = bool(body.get("stream", False))
        request = self.submit(None, prompt, tokens, wanted, ignore_eos=ignore_eos, stream=stream, ids=ids)
        name = str(body.get("model") or self.args["served_model_name"])
        if not stream:
            await self.finished(request, exchange)
            exchange.json(200, openai_answer(request, name, chat=chat, cached=self.args["enable_cache_report"]))
            return
        exchange.begin_stream()
        options = body.get("stream_options") or {}
        details = bool(body.get("return_spec_tokens_details"))
        frames = OpenAiFrames(request, exchange, name, chat=chat, usage=options, spec_details=details)
        await self._stream(exchange, request, frames)
        frames.end()
        exchange.chunk(b"data: [DONE]\n\n")
        exchange.end_stream()


def _sampling(params: Mapping[str, Any], default: int) -> tuple[int, bool]:
    """How many tokens, and whether to go beyond the end of the text."""
    temperature = params.get("temperature", 1.0)
    if not isinstance(temperature, int | float) or temperature < 0:
        raise _bad(f"temperature must be a non-negative finite number, got {temperature}.")
    wanted = params.get("max_new_tokens", default)
    if not isinstance(wanted, int) or isinstance(wanted, bool) or wanted < 0:
        raise _bad(f"max_new_tokens must be at least 0, got {wanted}.")
    return wanted, bool(params.get("ignore_eos", False))


def _prompt(given: object) -> tuple[str, int, bool]:
    """Text or token ids as text, their number, and whether they are ids."""
    if isinstance(given, str):
        return given, count_tokens(given), False
    if isinstance(given, list):
        return ",".join(map(str, given)), max(1, len(given)), True
    raise _bad("text must be a string, input_ids a list of numbers.")


def count_tokens(text: str) -> int:
    """Tokens of a text: there is no tokenizer here, so its length decides."""
    return max(1, round(len(text) / CHARS_PER_TOKEN))


def _content(message: Any) -> str:
    content = message.get("content") if isinstance(message, dict) else ""
    if isinstance(content, list):
        return " ".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return str(content or "")
