"""Whether one node reaches another: `listen ADDRESS PORT` on rank 0, `reach ADDRESS PORT` on the others.

Prints one line at once: `listening`, `busy`, `reached`, or `error` and words. A listener ends with its reader, or after 60 s.
"""

import errno
import socket
import sys

LISTEN_S = 60.0
CONNECT_S = 8.0


def listen(address: str, port: int) -> None:
    try:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        with socket.socket(family) as server:
            server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            server.bind((address, port))
            server.listen(64)
            print("listening", flush=True)
            server.settimeout(LISTEN_S)
            while True:
                server.accept()[0].close()
    except socket.timeout:
        return
    except OSError as error:
        print("busy" if error.errno == errno.EADDRINUSE else "error %s" % (error.strerror or error), flush=True)


def reach(address: str, port: int) -> None:
    try:
        socket.create_connection((address, port), timeout=CONNECT_S).close()
        print("reached", flush=True)
    except OSError as error:
        print("error %s" % (error.strerror or error), flush=True)


if __name__ == "__main__":
    (listen if sys.argv[1] == "listen" else reach)(sys.argv[2], int(sys.argv[3]))
