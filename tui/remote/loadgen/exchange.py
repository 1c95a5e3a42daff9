"""One request and what became of it: from the frames of its reply to its row in the file."""

from __future__ import annotations

import array
import json
from typing import Any

from tui.remote.loadgen.endpoints import GENERATE
from tui.remote.loadgen.frames import COUNT, COUNT_NAME, plain, text_in
from tui.remote.loadgen.protocol import loads, short


class Owner:
    """Who is notified about a request: once at its first chunk with tokens, once when it is over."""

    tokens = 0  # that came, of all its requests

    def first(self, exchange: Exchange) -> None:
        """The first chunk with tokens came."""

    def ended(self, exchange: Exchange) -> None:
        """It is over; `exchange.error` says how."""
        raise NotImplementedError


class Exchange:
    """A request and what became of it. Times are `clock()` seconds.

    `stamps` holds the time of each chunk that brought tokens and `counts` the tokens so far; where the server counts only
    at the end (`exact` is false) the counts are of chunks.
    """

    def __init__(self, owner: Owner, method: str, path: str, body: bytes, stream: bool) -> None:
        self.owner, self.method, self.path, self.body, self.stream = owner, method, path, body, stream
        self.index = self.user = self.length = self.tries = 0
        self.item: int | None = None
        self.prompt = ""
        self.sched = 0.0
        self.sent: float | None = None
        self.done_at: float | None = None  # when the stream said that nothing follows
        self.stamps = array.array("d")
        self.counts = array.array("q")
        self.text_raw = bytearray()  # of all chunks, as JSON has it between its quotes
        self.text_ends = array.array("q")  # where the text of each chunk ends in it
        self.pieces = not path.endswith(GENERATE)  # an event brings new text, not all so far
        self.ids: list[int] | None = None
        self.tokens = 0
        self.exact = True  # each chunk so far came with its count
        self.status = 0
        self.text = b""  # body of an answer that isn't a stream
        self.over = False
        self.error: str | None = None
        self.finish: str | None = None
        self.input: int | None = None
        self.output: int | None = None
        self.cached: int | None = None
        self.verify: int | None = None
        self.correct: int | None = None
        self.proposed: int | None = None

    def grew(self, count: int, now: float) -> None:
        """A chunk with tokens: `count` of them so far."""
        if not self.stamps:
            self.owner.first(self)
        self.owner.tokens += count - self.tokens
        self.tokens = count
        self.stamps.append(now)
        self.counts.append(count)
        self.text_ends.append(len(self.text_raw))

    def wrote(self, text: bytes | bytearray) -> None:
        """Text of the newest chunk, or more of it, as JSON has it between its quotes."""
        if self.text_ends:
            self.text_raw += text
            self.text_ends[-1] = len(self.text_raw)

    def frame(self, frame: bytes, now: float) -> None:
        """One event of the stream."""
        if self.exact and self.stamps and plain(frame, 0, len(frame)):
            found = COUNT.match(frame, max(0, frame.rfind(COUNT_NAME)))
            if found is not None and int(found[1]) > self.tokens:
                self.grew(int(found[1]), now)
                if self.pieces:
                    self.wrote(text_in(frame, 0, len(frame)))
                return
        if frame.strip() == b"[DONE]":
            self.done_at = now
            return
        try:
            said = loads(frame)
        except ValueError:
            said = None
        if not isinstance(said, dict):
            self.error = self.error or "malformed: an event that is not a JSON object"
            return
        count, content, usage_only = self._absorb(said)
        if count is not None:
            # Tokens without text are a chunk where each one so far was counted. Usage behind a reply is none where its
            # chunks brought no counts, in an event of its own or in that of the end.
            if count > self.tokens and (content or (self.exact and (self.stamps or not usage_only))):
                self.grew(count, now)
        elif content:
            self.exact = False
            self.grew(self.tokens + 1, now)
        if content:
            self.wrote(json.dumps(content)[1:-1].encode())

    def _absorb(self, said: dict[str, Any]) -> tuple[int | None, str, bool]:
        """Takes what a frame says: the tokens so far as it counts them, the text it brought, and whether it is usage alone."""
        refused = said.get("error") or (said if said.get("object") == "error" else None)
        if refused:
            self.error = self.error or "server: " + short(words_of(refused))
        count = None
        content = ""
        meta, usage, choices = said.get("meta_info"), said.get("usage"), said.get("choices")
        if isinstance(meta, dict):
            count = whole(meta.get("completion_tokens"))
            self.input = whole(meta.get("prompt_tokens"), self.input)
            self.cached = whole(meta.get("cached_tokens"), self.cached)
            self._speculation(meta)
            self._finished(meta.get("finish_reason"))
            ids = said.get("output_ids")
            # All of them, unless the server sends only the new ones.
            self.ids = ids if isinstance(ids, list) and len(ids) == count else None
        if isinstance(usage, dict):
            count = whole(usage.get("completion_tokens"))
            self.input = whole(usage.get("prompt_tokens"), self.input)
            details = usage.get("prompt_tokens_details")
            if isinstance(details, dict):
                self.cached = whole(details.get("cached_tokens"), self.cached)
        extension = said.get("sglext")
        if isinstance(extension, dict) and isinstance(extension.get("spec_tokens_details"), dict):
            self._speculation(extension["spec_tokens_details"])
        if isinstance(choices, list):
            for choice in choices:
                if isinstance(choice, dict):
                    delta = choice.get("delta")
                    delta = delta if isinstance(delta, dict) else {}
                    parts = ("reasoning_content", "reasoning", "content", "tool_calls")
                    for part in (*(delta.get(name) for name in parts), choice.get("text")):
                        content += part if isinstance(part, str) else json.dumps(part) if part else ""
                    self._finished(choice.get("finish_reason"))
        if count is not None:
            self.output = count
        return count, content, choices == []

    def _speculation(self, said: dict[str, Any]) -> None:
        verify = whole(said.get("spec_verify_ct"))
        if verify:
            self.verify = verify
            for correct in ("spec_num_correct_drafts", "spec_accept_token_num"):
                self.correct = whole(said.get(correct), self.correct)
            for proposed in ("spec_num_proposed_drafts", "spec_draft_token_num"):
                self.proposed = whole(said.get(proposed), self.proposed)

    def _finished(self, reason: Any) -> None:
        if isinstance(reason, dict):
            if reason.get("type") == "abort":
                self.error = self.error or "server: abort: " + short(str(reason.get("message", "")))
            reason = reason.get("type")
        if isinstance(reason, str):
            self.finish = reason

    def complete(self) -> None:
        """The body has ended as it should: says whether the reply is whole."""
        if self.stream and self.output is not None and not self.exact:
            self.owner.tokens += self.output - self.tokens  # its chunks were counted, not its tokens
            self.tokens = self.output
        if self.error is None and self.stream:
            if self.finish is None:
                self.error = "closed: the stream ended before the reply did"
            elif self.output is None:
                self.error = "no_count: the reply came without a token count"
            elif not self.stamps:
                self.error = "no_tokens: the reply came without a token"

    def end(self, error: str | None = None) -> None:
        """It is over; at most once."""
        if not self.over:
            self.over = True
            self.error = self.error or error
            if self.error is not None and self.exact and self.tokens:
                self.output = self.tokens  # that came before it broke off
            self.owner.ended(self)

    def row(self, zero: float) -> dict[str, Any]:
        """The line of rows.jsonl."""

        def at(moment: float | None) -> float | None:
            return None if moment is None else round(moment - zero, 6)

        stamps, counts, exact = self.stamps, self.counts, self.exact
        return {
            "i": self.index,
            "t_sched": at(self.sched),
            "t_send": at(self.sent),
            "t_first": at(stamps[0]) if stamps else None,
            "t_last": at(stamps[-1]) if stamps else None,
            "in": self.input,
            "out": self.output,
            "chunks": len(stamps),
            "k1": counts[0] if exact and counts else None,
            "verify_ct": self.verify,
            "correct_drafts": self.correct,
            "proposed_drafts": self.proposed,
            "cached": self.cached,
            "finish": self.finish,
            "err": self.error,
            "gaps_us": [round((b - a) * 1e6) for a, b in zip(stamps, stamps[1:])],
            "toks": [b - a for a, b in zip(counts, counts[1:])] if exact else None,
            "item": self.item,
            "prompt": self.prompt,
            "ids": self.ids,
            "texts": self._texts() if self.pieces else None,
        }

    def _texts(self) -> list[str] | None:
        """The text of each chunk; a surrogate pair that two of them share goes to the second."""
        raw, ends = self.text_raw, self.text_ends
        pieces = [bytes(raw[a:b]) for a, b in zip([0, *ends], ends)]
        try:
            texts: list[str] = json.loads(b'["' + b'","'.join(pieces) + b'"]' if pieces else b"[]")
        except ValueError:
            return None
        half = ""
        for number, text in enumerate(texts):
            text = half + text
            half = text[-1] if text and "\ud800" <= text[-1] <= "\udbff" and number + 1 < len(texts) else ""
            whole_text = text[: len(text) - len(half)]
            texts[number] = whole_text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
        return texts


def whole(value: Any, otherwise: int | None = None) -> int | None:
    """A count that a server gave, or else what was known."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else otherwise


def words_of(refusal: Any) -> str:
    """The words of an error as one of the servers puts them."""
    for key in ("error", "message", "detail"):
        if isinstance(refusal, dict) and refusal.get(key):
            return words_of(refusal[key])
    return refusal if isinstance(refusal, str) else json.dumps(refusal)
