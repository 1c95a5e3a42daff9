"""The nodes of one simulated server over several hosts: they meet at the address of the process group, wait for each
other, and learn of each other's end.

The node with rank 0 listens there, as torch's store does; the others connect and repeat that until it answers. What they
say is a word a line. A node that is gone is noticed by its connection, which the system closes whatever ended it.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable

_AGAIN_S = 0.1  # between two tries to reach the first node


class PeerGone(Exception):
    """Another node is not there any more."""

    def __init__(self, address: str) -> None:
        super().__init__(address)
        self.address = address  # of its end of the connection: [127.0.0.1]:37549


class Nodes:
    """This node among the others.

    Args:
        count: how many there are.
        rank: which one this is.
        address: HOST:PORT where they meet.
        heard: called with what rank 0 says beside its part of `together`.
    """

    def __init__(self, count: int, rank: int, address: str, heard: Callable[[str], None] = lambda _: None) -> None:
        self.count, self.rank = count, rank
        host, _, port = address.rpartition(":")
        self._host, self._port = host.strip("[]") or "127.0.0.1", int(port)
        self.heard = heard
        self.gone: str | None = None  # the address of the first one that went
        self._said: Counter[str] = Counter()
        self._writers: list[asyncio.StreamWriter] = []
        self._readers: set[asyncio.Task[None]] = set()
        self._changed = asyncio.Event()
        self._times = 0

    async def meet(self) -> None:
        """Returns once all nodes are there. Raises OSError where rank 0 cannot listen."""
        if self.rank == 0:
            await asyncio.start_server(self._met, self._host, self._port)
        else:
            while True:
                with contextlib.suppress(OSError):
                    await self._met(*await asyncio.open_connection(self._host, self._port))
                    break
                await asyncio.sleep(_AGAIN_S)
        await self.together()

    async def _met(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        task = asyncio.create_task(self._read(reader, writer))
        self._readers.add(task)

    async def _read(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while line := await reader.readline():
                word = line.decode().strip()
                self._said[word] += 1
                self._changed.set()
                if not word.isdigit():
                    self.heard(word)
        if self.gone is None:
            peer = writer.get_extra_info("peername") or (self._host, self._port)
            self.gone = f"[{peer[0]}]:{peer[1]}"  # as gloo writes it
        self._changed.set()

    def say(self, word: str) -> None:
        """Says a word to the others; one who has gone does not hear it."""
        for writer in self._writers:
            if not writer.is_closing():
                writer.write(f"{word}\n".encode())

    async def together(self) -> None:
        """Returns once every node has come as far as this one. Raises PeerGone."""
        self._times += 1
        word = str(self._times)
        if self.rank:
            self.say(word)
        while self._said[word] < (1 if self.rank else self.count - 1):
            await self._next()
        if not self.rank:
            self.say(word)

    async def _next(self) -> None:
        if self.gone is not None:
            raise PeerGone(self.gone)
        self._changed.clear()
        await self._changed.wait()

    async def until_gone(self) -> str:
        """The address of a node, once it is gone."""
        while self.gone is None:
            self._changed.clear()
            await self._changed.wait()
        return self.gone
