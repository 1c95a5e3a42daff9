"""Rows and meta as the load generator writes them, made up."""


def row(number=0, *, send=0.0, first=None, gaps_ms=(), toks=None, k1=1, due=None, err=None, **fields):
    """A request that was sent at `send`, had its first chunk at `first` and then a chunk after each gap."""
    first = send + 0.1 if first is None else first
    toks = [1] * len(gaps_ms) if toks is None else list(toks)
    told = {
        "i": number,
        "t_sched": send if due is None else due,
        "t_send": send,
        "t_first": first,
        "t_last": round(first + sum(gaps_ms) / 1000, 9),
        "in": 10,
        "out": k1 + sum(toks),
        "chunks": 1 + len(toks),
        "k1": k1,
        "verify_ct": None,
        "correct_drafts": None,
        "proposed_drafts": None,
        "cached": 0,
        "finish": "stop",
        "err": err,
        "gaps_us": [round(gap * 1000) for gap in gaps_ms],
        "toks": toks,
    }
    return told | fields


def failed(number=0, *, send=0.0, err="reset", **fields):
    """A request that brought nothing."""
    nothing = dict.fromkeys(("t_first", "t_last", "in", "out", "k1", "cached", "finish"))
    return row(number, send=send, err=err) | nothing | {"chunks": 0, "gaps_us": [], "toks": []} | fields


def meta(window=(0.0, 100.0), **fields):
    return {"point": {"concurrency": 1}, "window": window and list(window), **fields}


def counters(after, before=()):
    return {"before": dict(before), "after": dict(after), "idle": True}
