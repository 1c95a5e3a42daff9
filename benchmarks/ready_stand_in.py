"""Log lines and answers of an SGLang start, held before the ready line: PORT GO_FILE WRITTEN_FILE [SERVES].

Writes "fired up" once GO_FILE exists, then the time of that write into WRITTEN_FILE; with a fourth word a line about a decode batch a
second from then on.
"""

import http.server
import json
import os
import sys
import threading
import time
from pathlib import Path

LINES = """\
server_args={'model_path': '/models/tiny', 'host': '127.0.0.1', 'port': %(port)d, 'tp_size': 1}
Init parallel begin.
Init parallel ends. elapsed=0.01 s
Load weight begin. avail mem=20.14 GB
Load weight end. elapsed=0.02 s, type=LlamaForCausalLM, avail mem=20.14 GB, mem usage=0.00 GB.
KV Cache is allocated. dtype: torch.bfloat16, #tokens: 8192, K size: 0.00 GB, V size: 0.00 GB
Memory pool end. avail mem=20.13 GB
max_total_num_tokens=8192, chunked_prefill_size=2048, max_prefill_tokens=16384, max_running_requests=48, context_len=2048
INFO:     Started server process [%(pid)d]
INFO:     Waiting for application startup.
INFO:     Application startup complete.
INFO:     Uvicorn running on http://127.0.0.1:%(port)d (Press CTRL+C to quit)
INFO:     127.0.0.1:50214 - "GET /model_info HTTP/1.1" 200 OK
"""


class Answers(http.server.BaseHTTPRequestHandler):
    """503 until the line is written, as SGLang's /health, then 200."""

    ready = False

    def do_GET(self) -> None:
        body = json.dumps({"model_path": "/models/tiny"}).encode()
        self.send_response(200 if Answers.ready else 503)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


def log(line: str) -> None:
    sys.stderr.write(f"[{time.strftime('%Y-%m-%d %H:%M:%S')}] {line}\n")
    sys.stderr.flush()


def main() -> None:
    port, go, written = int(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3])
    server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Answers)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    for line in (LINES % {"port": port, "pid": os.getpid()}).splitlines():
        log(line)
    while not go.exists():
        time.sleep(0.005)
    log("The server is fired up and ready to roll!")
    moment = time.time()
    Answers.ready = True
    part = written.with_suffix(".part")
    part.write_text(repr(moment))
    part.rename(written)
    while len(sys.argv) > 4:
        log(
            "Decode batch, #running-req: 16, #token: 9216, token usage: 0.11, cuda graph: True, gen throughput (token/s): 802.13, #queue-req: 0"
        )
        time.sleep(1)
    threading.Event().wait()


if __name__ == "__main__":
    main()
