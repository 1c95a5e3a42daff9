"""A TCP connection as standard input and output: `python -c … HOST PORT`. A line feed says that it is made.

Ends with the connection, or with the standard input: whoever asked is gone then. Python's standard library alone.
"""

import os
import socket
import sys
import threading


def relay(host: str, port: int) -> None:
    """Passes bytes both ways until one side ends."""
    try:
        there = socket.create_connection((host, port), timeout=10)
    except OSError as error:
        sys.exit(str(error))
    there.settimeout(None)
    os.write(1, b"\n")

    def up() -> None:
        while True:
            data = os.read(0, 65536)
            if not data:
                os._exit(0)
            there.sendall(data)

    threading.Thread(target=up, daemon=True).start()
    while True:
        data = there.recv(65536)
        if not data:
            os._exit(0)
        while data:
            data = data[os.write(1, data) :]


if __name__ == "__main__":
    relay(sys.argv[1], int(sys.argv[2]))
