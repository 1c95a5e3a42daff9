"""What a generated answer looks like on the wire: the body of a whole one, and the frames of a streamed one.

Their keys and order are recorded: data/answers.json has those of objects, `tests/demo/test_stand_ins.py` holds the rest.
"""

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tui.demo.engine import Request
from tui.demo.http import Exchange

_ANSWERS: dict[str, dict[str, Any]] = json.loads(
    (Path(__file__).with_name("data") / "answers.json").read_text(encoding="utf-8")
)


def answer(name: str, **values: Any) -> dict[str, Any]:
    """An object as the real server sends it, in its order, with these values filled in."""
    return {**_ANSWERS[name], **values}


def dump(value: object) -> str:
    """JSON without spaces."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _meta(request: Request) -> dict[str, Any]:
    cached = request.cached_tokens
    return answer(
        "meta",
        id=request.rid,
        finish_reason=request.finish,
        prompt_tokens=request.prompt_tokens,
        forward_entry_time=request.forward_entry,
        prefill_finished_time=request.prefill_finished,
        queue_time=request.queue_s,
        completion_tokens=len(request.output_ids),
        cached_tokens=cached,
        cached_tokens_details={"device": cached, "host": 0} if cached else None,
    )


def _final_meta(request: Request, received: float) -> dict[str, Any]:
    count = len(request.output_ids)
    meta: dict[str, Any] = {}
    for name, value in _meta(request).items():
        if name == "cached_tokens_details":
            meta["weight_versions"] = [{"version": "default", "start": 0, "end": count}]
        meta[name] = value
    meta["e2e_latency"] = request.finished - received
    if request.verify_steps:
        meta |= _speculation(request)
    meta |= {
        "request_received_ts": received,
        "first_token_latency": request.first_token - received,
        "api_server_dispatch_finish_ts": received + 0.0006,
        "response_sent_to_client_ts": time.time(),
        "request_finished_ts": request.finished,
    }
    if count > 1 and request.finished > request.first_token:
        meta["decode_throughput"] = (count - 1) / (request.finished - request.first_token)
    return meta


def _speculation(request: Request, **capped: float) -> dict[str, Any]:
    histogram = list(request.histogram)
    while histogram and not histogram[-1]:
        histogram.pop()
    return {
        "spec_accept_rate": request.correct_drafts / max(1, request.proposed_drafts),
        "spec_accept_length": len(request.output_ids) / request.verify_steps,
        **capped,
        "spec_num_correct_drafts": request.correct_drafts,
        "spec_num_proposed_drafts": request.proposed_drafts,
        "spec_verify_ct": request.verify_steps,
        "spec_correct_drafts_histogram": histogram,
    }


def native_answer(request: Request, received: float) -> bytes:
    """The body of /generate for one finished request."""
    body = {
        "text": "".join(request.words),
        "output_ids": request.output_ids,
        "meta_info": _final_meta(request, received),
    }
    return dump(body).encode()


def openai_answer(request: Request, name: str, *, chat: bool, cached: bool) -> dict[str, Any]:
    """The answer of an OpenAI endpoint for one finished request."""
    count, tokens, text = len(request.output_ids), request.prompt_tokens, "".join(request.words)
    finish = request.finish or {}
    content: dict[str, Any] = {"text": text}
    if chat:
        content = {"message": {"role": "assistant", "content": text, "reasoning_content": None}}
    usage = answer("usage", prompt_tokens=tokens, total_tokens=tokens + count, completion_tokens=count)
    if cached:
        usage["prompt_tokens_details"] = {"cached_tokens": request.cached_tokens}
    return answer(
        "completion",
        id=request.rid,
        object="chat.completion" if chat else "text_completion",
        created=int(time.time()),
        model=name,
        choices=[_choice(content, str(finish.get("type")), finish.get("matched"))],
        usage=usage,
        metadata={"weight_version": "default", "weight_versions": [{"version": "default", "start": 0, "end": count}]},
    )


def _choice(content: dict[str, Any], reason: object = None, matched: object = None) -> dict[str, Any]:
    return {"index": 0, **content, "logprobs": None, "finish_reason": reason, "matched_stop": matched}


class NativeFrames:
    """Frames of /generate: each holds everything so far, so text and ids are kept as JSON that only grows.

    Args:
        incremental: each holds what is new.
    """

    def __init__(self, request: Request, index: int | None, exchange: Exchange, *, incremental: bool = False) -> None:
        self.request, self.index, self.exchange, self.incremental = request, index, exchange, incremental
        self.sent = 0
        self.text = ""
        self.ids = ""
        self.fixed: tuple[str, str] | None = None

    def send(self) -> None:
        request = self.request
        first = self.sent == 0
        if self.incremental:
            self.text = self.ids = ""
        for word in request.words[self.sent :]:
            self.text += dump(word)[1:-1]
        if len(request.output_ids) > self.sent:
            new = ",".join(map(str, request.output_ids[self.sent :]))
            self.ids = f"{self.ids},{new}" if self.ids else new
        self.sent = len(request.output_ids)
        if request.finish:
            meta = dump(_final_meta(request, self.exchange.query.received))
        elif first:
            meta = dump({**_meta(request), "response_sent_to_client_ts": time.time()})
        else:
            if self.fixed is None:
                before, after = dump({**_meta(request), "completion_tokens": "@@"}).split('"@@"')
                self.fixed = (before, after)
            meta = f"{self.fixed[0]}{self.sent}{self.fixed[1]}"
        index = f',"index":{self.index}' if self.index is not None else ""
        self.exchange.chunk(
            f'data: {{"text":"{self.text}","output_ids":[{self.ids}],"meta_info":{meta}{index}}}\n\n'.encode()
        )


class OpenAiFrames:
    """Frames of the two OpenAI endpoints: each holds what is new."""

    def __init__(
        self,
        request: Request,
        exchange: Exchange,
        name: str,
        *,
        chat: bool,
        usage: Mapping[str, Any],
        spec_details: bool = False,
    ) -> None:
        self.request, self.exchange, self.chat = request, exchange, chat
        self.sent = 0
        self.head = {
            "id": request.rid,
            "object": "chat.completion.chunk" if chat else "text_completion",
            "created": int(time.time()),
            "model": name,
        }
        self.usage = bool(usage.get("include_usage"))
        self.continuous = self.usage and bool(usage.get("continuous_usage_stats"))
        self.begun = False
        self.spec_details = spec_details

    def _usage(self) -> dict[str, Any]:
        count, tokens = len(self.request.output_ids), self.request.prompt_tokens
        usage = answer("usage", prompt_tokens=tokens, total_tokens=tokens + count, completion_tokens=count)
        return usage if self.chat else {name: value for name, value in usage.items() if not name.endswith("_details")}

    def _frame(self, choice: dict[str, Any] | None, usage: object = "absent") -> None:
        frame: dict[str, Any] = {**self.head, "choices": [choice] if choice is not None else []}
        if usage != "absent":
            frame["usage"] = usage
        self.exchange.chunk(f"data: {dump(frame)}\n\n".encode())

    def send(self) -> None:
        request = self.request
        text = "".join(request.words[self.sent :])
        self.sent = len(request.output_ids)
        absent: object = "absent" if self.chat else None
        usage = self._usage() if self.continuous else absent
        reason = (request.finish or {}).get("type")
        matched = (request.finish or {}).get("matched")
        if not self.chat:
            self._frame(_choice({"text": text}, reason, matched), usage)
            return
        if not self.begun:
            self.begun = True
            opening = {"delta": {"reasoning_content": None, "role": "assistant", "content": ""}}
            self._frame(_choice(opening))  # with text alone it is counted
        if text:
            self._frame(_choice({"delta": {"reasoning_content": None, "content": text}}), usage)
        if reason:
            self._frame(_choice({"delta": {"reasoning_content": None}}, reason, matched))

    def end(self) -> None:
        """The frames behind the text, where they were asked for: speculation, usage."""
        if self.spec_details and self.request.verify_steps:
            details = _speculation(self.request, spec_cap_length=0.0, spec_block_accept_length=0.0)
            details["spec_cap_lens_histogram"] = []
            extension = {"spec_tokens_details": details}
            frame: dict[str, Any] = {**self.head, "choices": [], "usage": None, "sglext": extension}
            self.exchange.chunk(f"data: {dump(frame)}\n\n".encode())
        if self.usage:
            self._frame(None, self._usage())
