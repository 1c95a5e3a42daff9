"""A prefill or decode server for the real router: it speaks SGLang's HTTP, and is ready when a test wants it to be.

`python fake_worker.py FLAGS` takes SGLang's flags (those that it does not know are ignored) and its own:

    --ready-file PATH      /health is 503, and nothing is generated, until this file is there
    --dies-of TEXT         with it: the text is its last line, and it ends with exit code 1
    --bootstrap-says PORT  what /server_info has as its bootstrap port, whatever it was told
    --settings JSON        of the truth server (truth_server.py)

A prefill listens on its bootstrap port, and its replies have one token.
"""

import argparse
import asyncio
import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))
from tests.support import truth_server
from tests.support.truth_server import TruthServer

# The real router (0.3.2) takes "data: [DONE]" anywhere in a chunk for the end of the stream.
truth_server.WORDS = (" plain", "é", "\\", "😀")


def options(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--model-path", default="/models/tiny")
    parser.add_argument("--tp", type=int, default=1)
    parser.add_argument("--disaggregation-mode", choices=("null", "prefill", "decode"), default="null")
    parser.add_argument("--disaggregation-bootstrap-port", type=int, default=8998)
    parser.add_argument("--ready-file", type=Path)
    parser.add_argument("--dies-of")
    parser.add_argument("--bootstrap-says", type=int)
    parser.add_argument("--settings", type=json.loads, default={})
    return parser.parse_known_args(words)[0]


class FakeWorker(TruthServer):
    """The truth server with a role."""

    def __init__(self, told: argparse.Namespace) -> None:
        super().__init__({"model": told.model_path, "tp": told.tp, **told.settings})
        self.told = told
        self.ready = told.ready_file is None

    async def connection(self, reader: Any, writer: Any) -> None:
        try:
            await super().connection(reader, writer)
        except ValueError:
            writer.close()  # the router's first try is HTTP/2, for gRPC

    def _other(self, path: str) -> tuple[int, Any]:
        path = path.replace("/get_", "/")
        if path in ("/health", "/health_generate", "/ready"):
            return (200, "") if self.ready else (503, "")
        status, found = super()._other(path)
        if path == "/server_info":
            port = self.told.bootstrap_says or self.told.disaggregation_bootstrap_port
            told = {"disaggregation_mode": self.told.disaggregation_mode, "disaggregation_bootstrap_port": port}
            found = {**found, "tp_size": self.told.tp, "dp_size": 1, "served_model_name": self.told.model_path, **told}
        return status, found

    async def _reply(self, reader: Any, writer: Any, request: dict[str, Any], *rest: Any) -> bool:
        if not self.ready:
            return self._answer(writer, 503, {"error": "not ready"})
        self.events.append({"what": "bootstrap", **{k: v for k, v in request.items() if k.startswith("bootstrap_")}})
        if self.told.disaggregation_mode == "prefill":
            if "sampling_params" in request:
                request = {**request, "sampling_params": {**request["sampling_params"], "max_new_tokens": 1}}
            else:
                request = {**request, "max_tokens": 1}
        return await super()._reply(reader, writer, request, *rest)


async def serve(told: argparse.Namespace) -> int:
    worker = FakeWorker(told)
    print(f"server_args=ServerArgs(model_path='{told.model_path}', tp_size={told.tp})", flush=True)
    async with await asyncio.start_server(worker.connection, told.host, told.port, limit=1 << 26):
        if told.disaggregation_mode == "prefill":
            await asyncio.start_server(worker.connection, told.host, told.disaggregation_bootstrap_port)
        print(f"INFO:     Uvicorn running on http://{told.host}:{told.port} (Press CTRL+C to quit)", flush=True)
        while not worker.ready:
            await asyncio.sleep(0.05)
            worker.ready = told.ready_file.exists()
        if told.dies_of:
            print(told.dies_of, file=sys.stderr, flush=True)
            return 1
        print("The server is fired up and ready to roll!", flush=True)
        await asyncio.Event().wait()
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(serve(options(sys.argv[1:]))))
