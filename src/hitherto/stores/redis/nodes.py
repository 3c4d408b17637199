"""Which server a hash slot lives on, and how a call finds its way there when that has changed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from hitherto.errors import StoreClosed, StoreUnavailable
from hitherto.stores.gather import Gather
from hitherto.stores.redis.links import Link, connected
from hitherto.stores.redis.scripts import by_hash
from hitherto.stores.redis.wire import ServerError, pack

__all__ = ["Node", "Single"]

LANES = 16
MAX_BATCH = 32


class Node:
    """One server: a connection that comes back when it was lost, and the gathering before it."""

    def __init__(self, make: Callable[[], Any], timeout: float, url: str) -> None:
        self._make, self._timeout, self._url = make, timeout, url
        self._link: Link | None = None
        self._connecting: asyncio.Task[Link] | None = None
        self._closed = False
        self.gather: Gather[bytes, Any] = Gather(
            self._send, lanes=LANES, max_batch=MAX_BATCH, timeout=timeout, url=url
        )

    def execute(self, *commands: bytes) -> asyncio.Future[list[Any]] | Coroutine[Any, Any, list[Any]]:
        """The replies to packed commands that travel together, error replies among them."""
        return self._send(list(commands))

    async def ask(self, *words: bytes | str | int) -> Any:
        """The reply to one command; an error reply is raised."""
        return await self.gather(pack(words))

    def drop(self) -> None:
        """Let the connection go; the next call makes a new one."""
        link, self._link = self._link, None
        if link is not None:
            link.close()

    async def close(self) -> None:
        """Let the connection go for good, after what is under way."""
        self._closed = True
        self.gather.close(StoreClosed("the store was closed; open() it again before using it", url=self._url))
        await self.gather.drained()
        if self._connecting is not None:
            self._connecting.cancel()
            await asyncio.gather(self._connecting, return_exceptions=True)
        self.drop()

    def _send(self, commands: list[bytes]) -> asyncio.Future[list[Any]] | Coroutine[Any, Any, list[Any]]:
        link = self._link
        if link is not None and link.is_open:
            return link.execute(commands)
        return self._reconnected(commands)

    async def _reconnected(self, commands: list[bytes]) -> list[Any]:
        return await (await self.link()).execute(commands)

    async def link(self) -> Link:
        """The connection, made anew if it was lost; everybody who wants it waits for the same one."""
        if self._link is not None and self._link.is_open:
            return self._link
        if self._closed:
            raise StoreClosed("the store was closed; open() it again before using it", url=self._url)
        if self._connecting is None:
            self._connecting = asyncio.get_running_loop().create_task(self._connect())
            self._connecting.add_done_callback(self._connected)
        return await asyncio.shield(self._connecting)

    async def _connect(self) -> Link:
        link = await connected(self._make, self._timeout, self._url)
        try:
            await _taught(link)
        except BaseException:
            link.close()
            raise
        self._link = link
        return link

    def _connected(self, task: asyncio.Task[Link]) -> None:
        self._connecting = None
        if not task.cancelled():
            task.exception()  # whoever waited has it


async def _taught(link: Link) -> None:
    """Teach the server the scripts that it does not know, all in one trip."""
    scripts = by_hash()
    (known,) = await link.execute([pack((b"SCRIPT", b"EXISTS", *scripts))])
    if isinstance(known, ServerError):
        return
    missing = [one for one, there in zip(scripts.values(), known, strict=True) if not there]
    if missing:
        await link.execute([pack((b"SCRIPT", b"LOAD", one.text)) for one in missing])


class Single:
    """One server holds everything; behind sentinels it may become another one."""

    def __init__(self, make: Callable[[], Any], timeout: float, url: str) -> None:
        self._node = Node(make, timeout, url)
        self._url = url

    async def open(self) -> None:
        """Connect."""
        await self._node.link()

    async def close(self) -> None:
        """Let go."""
        await self._node.close()

    def node(self, slot: int) -> Node:
        """The server that holds a slot."""
        return self._node

    def nodes(self) -> list[Node]:
        """Every server that holds slots."""
        return [self._node]

    async def moved(self, error: ServerError, node: Node) -> Node:
        """The server that an error names instead."""
        raise StoreUnavailable("the server belongs to a cluster: use redis+cluster://", url=self._url)

    async def refreshed(self) -> None:
        """Look again who holds what."""
