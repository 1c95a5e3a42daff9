"""Load generator: runs on the GPU host against a server on it and measures what a client sees.

    python3 loadgen.py bench.json            (working directory: where the artifacts go)

Needs Python 3.8 and nothing else; uvloop and orjson are used where they can be imported. It ends by itself: every request,
every phase and the number of requests are bounded. SIGTERM (or SIGINT) ends it at once and leaves whole what is finished.

bench.json
    version        1
    base_url       "http://127.0.0.1:30000"
    api            "generate" (SGLang's own) or "chat" (OpenAI's, also vLLM's)
    model          name for "chat"; null: the first of /v1/models
    headers_env    null, or the name of the environment variable that holds the API key
    points         [{"concurrency": 4}, {"rate": 2.0}]: users at once, or requests a second (Poisson)
    runs           measured runs at each point; run numbers begin at 1
    duration_s     length of the steady window of each run
    max_requests   null, or requests at most in a run
    output_len     tokens at most a request (an item's own output_len outranks it)
    input_len      tokens a request, of random-ids
    dataset        {"kind": "prompts" | "random-ids" | "jsonl", "sha": text or null, "items": [...]}
                   an item is {"prompt": text} or {"messages": [...]} or {"input_ids": [...]}, with an optional "output_len";
                   "chat" takes no token ids
    vocab          [low, high): ids that random-ids draws from
    seed           integer; (seed, point, run) fixes prompts, their order and the arrival times
    ignore_eos, temperature, warmup_s
    server         {"log": path or null, "pid": integer or null, "gpus": [indices] or null}
    limits         optional; seconds, with defaults: connect_s 10, stall_s 180 (no byte), request_s 900, drain_s 300,
                   ramp_s 120 (all users busy), settle_s 5 (counters at rest), tail_s 2 (end of a body after its last event);
                   body_mib 256

A run: warm-up with other prompts (once a point until the rate is steady: three 2-s spans within 3 %, at most warmup_s;
before later runs of the point a short one) → drained → cache flushed → counters read → load → at the end of the window no new
request → drained → counters read when they rest. The window begins when each user has had a first chunk (open loop: when the
first request has ended) and lasts duration_s, or until max_requests leave a user idle.
The items go round in an order of their own for each run; from the second round on, and where the cache can't be flushed,
a short mark is put in front of a prompt so that the prefix cache does not answer.

Files, each whole from the moment it has its name; LABEL is c4 or r2.5
    LABEL-RUN.rows.jsonl.gz   a request a line, in the order of `i`; times in seconds since the run began, null where it did
                              not happen or is not known:
        i                 number of the request
        t_sched           when it was due: open loop, its arrival; closed loop, when its user became free
        t_send            when it was handed to the socket
        t_first, t_last   first and last chunk with new tokens
        in, out           prompt and completion tokens as the reply said
        chunks            chunks with new tokens
        k1                tokens of the first chunk
        verify_ct         verify steps, correct_drafts, proposed_drafts: of speculative decoding; null without it
        cached            prompt tokens from the prefix cache
        finish            "stop", "length", ... as the server names it
        err               null, or a reason: "SLUG" or "SLUG: detail", SLUG one of connect, reset, closed, http, stalled,
                          too_slow, too_large, not_ended, malformed, server, no_tokens, no_count, drain
        gaps_us           microseconds between chunks, after the first: chunks - 1 of them
        toks              tokens of each chunk after the first; null, as k1, where the server counts only at the end
    LABEL-RUN.json            meta: label, point, run, seed, started_at (epoch of time 0), window [begin, end] or null, end_s,
        requests (begun), flush {ok: true | false | null (no such endpoint), hit_rate: cached / in over all rows, or null},
        counters {before, after: {name: sum over series, ranks of one replica counted once} or null (no /metrics),
        idle: whether the server said it was idle at both readings},
        gpu {samples: [[t, index, power_w, util_pct, mem_mib, sm_mhz, throttle (bit mask of NVML)]], foreign_pids: [...] or
        null (can't be told)} or null,
        graph {on, off: decode lines in the server's log during the window} or null,
        client {cpu_fraction (of a core, in the window), loop_lag_p99_ms, send_lag_p99_ms, rss_mib},
        warmup {seconds, stable, requests}, errors {reason: count},
        options {continuous_usage, spec_details}: what "chat" was asked for, rounds (through the items), rows_sha256
    server.json               {"kind": "sglang" | "vllm" | null, "version", "first": {"server_info", "model_info", "models"},
                              "last": the same at the end, "env": allow-listed variables of server.pid or null, "argv"};
                              written when the first run begins and once more at the end; without secrets

stdout: one JSON object a line, at most 4 a second
    {"event": "hello", "version": 1, "python", "uvloop", "orjson" (versions or null), "sha256" (of this file), "pid"}
    {"event": "progress", "label", "point", "run", "runs", "phase": "warmup" | "window" | "drain", "t" (s in this phase),
     "tok_s" (over the last second), "tokens", "active", "completed", "errors", "ttft_ms", "tpot_ms" (medians of this run so
     far), "accept_length", "power_w" (sum), "memory_used_mib" (fullest GPU), "left_s" (of the whole bench)};
     "window" includes the ramp before it
    {"event": "run", "label", "point", "run", "meta": file, "rows": file, "sha256": {"meta", "rows"}}
    {"event": "done"}
    {"event": "error", "slug", "text", "hint"}, then exit status 1; slugs: bad_plan, unreachable, unauthorized, no_endpoint,
     refused (the server takes no such request), server_lost, interrupted, disk, internal
"""
