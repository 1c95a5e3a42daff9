"""A server as it looks from outside a container: output of several kinds, a port, a drain on SIGTERM.

In: PORT; HOST (127.0.0.1 without); IGNORE_TERM (any value); EXIT (seconds, code); WORKERS (child processes); SAY (text, before anything else);
LINES (so many decode lines, after the start).
"""

import http.server
import os
import signal
import sys
import time


def drain(*_: object) -> None:
    sys.stderr.write("SIGTERM received. Draining requests and shutting down...\n")
    sys.exit(0)


sys.stderr.write(os.environ.get("SAY", ""))
signal.signal(signal.SIGTERM, signal.SIG_IGN if os.environ.get("IGNORE_TERM") else drain)
for _ in range(int(os.environ.get("WORKERS", "0"))):
    if os.fork() == 0:
        time.sleep(1000)
print("stdout line", flush=True)
sys.stderr.write('stderr \x1b[32mline\x1b[0m ä "quoted"\n')
sys.stderr.write("partial without newline ")
sys.stderr.flush()
sys.stderr.write("rest\n" + "x" * 40_000 + "\n")
if "EXIT" in os.environ:
    seconds, code = os.environ["EXIT"].split(",")
    time.sleep(float(seconds))
    os._exit(int(code))


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        sys.stderr.write(f"asked for {self.path}\n")
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


server = http.server.ThreadingHTTPServer((os.environ.get("HOST", "127.0.0.1"), int(os.environ["PORT"])), Handler)
sys.stderr.write("The server is fired up and ready to roll!\n")
for number in range(int(os.environ.get("LINES", "0"))):
    batch = f"#running-req: 1, #token: {number}, token usage: 0.01, gen throughput (token/s): 50.00, #queue-req: 0"
    sys.stderr.write(f"[2026-11-30 10:00:00 TP0] Decode batch. {batch},\n")
server.serve_forever()
