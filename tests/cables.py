"""Links to a server that can be cut, held and deafened: what a network does to those at its ends."""

import asyncio
from asyncio import StreamReader, StreamWriter
from collections.abc import Callable
from contextlib import suppress
from threading import Thread
from typing import Any, Self

from celeriac.programs.port import LOOPBACK

__all__ = ["Cable", "Cables"]

_CHUNK = 64 * 1024


class Cable:
    """One way to a server, by a port of its own, that many links can go through.

    To be used from any thread. A cable is sound until it is told otherwise, and again from :meth:`mend` on.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, server_port: int) -> None:
        self.port = 0
        #: Links that were ended, and bytes that were kept on their way.
        self.ended_links = 0
        self.held_bytes = 0
        self._loop = loop
        self._server_port = server_port
        self._is_cut = False
        self._is_deaf = False
        self._last_answered: bytes | None = None
        #: Whether bytes go on: those to the server, and those from it.
        self._to_server, self._from_server = asyncio.Event(), asyncio.Event()
        self._writers: set[StreamWriter] = set()
        self._listening: asyncio.Server | None = None

    def url_of(self, url: str, *, port: int) -> str:
        """Return the address of the server as it is by this cable."""
        return url.replace(f":{port}/", f":{self.port}/")

    def cut(self) -> None:
        """End all links, and refuse new ones."""
        self._call(self._cut)

    def hold(self) -> None:
        """Keep all bytes on their way: they arrive when it is mended, and who sent them may be gone."""
        self._call(self._to_server.clear)
        self._call(self._from_server.clear)

    def deafen(self) -> None:
        """Let all reach the server, and no answer come back; when it is mended the links are lost."""
        self._call(self._deafen)

    def hold_answers_after(self, data: bytes) -> None:
        """Let some data reach the server, and no answer come back from then on until it is mended."""
        self._last_answered = data

    def mend(self) -> None:
        """Be sound again."""
        self._call(self._mend)

    # -- in the thread of the loop

    async def open(self) -> None:
        """Listen."""
        self._mend()
        self._listening = await asyncio.start_server(self._carry, LOOPBACK, 0)
        self.port = self._listening.sockets[0].getsockname()[1]

    async def close(self) -> None:
        """End all, for good."""
        self._cut()
        if self._listening is not None:
            self._listening.close()
            await self._listening.wait_closed()

    def _cut(self) -> None:
        self._is_cut = True
        self._abort()

    def _deafen(self) -> None:
        self._is_deaf = True
        self._from_server.clear()

    def _mend(self) -> None:
        if self._is_deaf:
            self._abort()
        self._is_cut = self._is_deaf = False
        self._last_answered = None
        self._to_server.set()
        self._from_server.set()

    def _abort(self) -> None:
        self.ended_links += len(self._writers) // 2
        for writer in self._writers:
            writer.transport.abort()

    async def _carry(self, reader: StreamReader, writer: StreamWriter) -> None:
        if self._is_cut:
            writer.transport.abort()
            return
        self._writers.add(writer)
        try:
            theirs, to_them = await asyncio.open_connection(LOOPBACK, self._server_port)
        except OSError:  # the server is away, as may be
            writer.transport.abort()
            self._writers.discard(writer)
            return
        self._writers.add(to_them)
        if writer.transport.is_closing():  # it was cut meanwhile
            to_them.transport.abort()
        await asyncio.gather(
            self._pump(reader, to_them, self._to_server), self._pump(theirs, writer, self._from_server)
        )
        self._writers -= {writer, to_them}

    async def _pump(self, source: StreamReader, target: StreamWriter, is_open: asyncio.Event) -> None:
        with suppress(OSError):  # one of the ends is gone, and so is the link
            while data := await source.read(_CHUNK):
                if self._last_answered is not None and self._last_answered in data:
                    self._from_server.clear()
                self.held_bytes += 0 if is_open.is_set() else len(data)
                await is_open.wait()
                target.write(data)
                await target.drain()
        target.close()
        with suppress(OSError):
            await target.wait_closed()

    def _call(self, act: Callable[[], object]) -> None:
        self._loop.call_soon_threadsafe(act)


class Cables:
    """Carries what goes through cables, in a thread; as a context manager."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, name="cables", daemon=True)
        self._all: list[Cable] = []

    def lay(self, server_port: int) -> Cable:
        """Return a new cable to a port of the loopback interface, where a server need not be yet."""
        cable = Cable(self._loop, server_port)
        self._wait_for(cable.open())
        self._all.append(cable)
        return cable

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._wait_for(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _close(self) -> None:
        for cable in self._all:
            await cable.close()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _wait_for(self, act: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(act, self._loop).result(30)
