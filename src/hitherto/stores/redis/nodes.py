"""The servers behind a store, how a call finds the right one, and what is done when that fails.

A call is repeated here as long as its time lasts: at once where the server says what to do (``NOSCRIPT``,
``MOVED``, ``ASK``), with back-off while nobody can answer (a lost connection, ``LOADING``, a failover). One
whose reply was lost may have been done: it is repeated only if that is harmless.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Final

from hitherto.errors import StoreError, StoreUnavailable
from hitherto.stores.gather import Gather, Trip
from hitherto.stores.redis.failures import PASSING, translated
from hitherto.stores.redis.layout import SLOTS
from hitherto.stores.redis.links import Link, Lost, Unreachable, connected
from hitherto.stores.redis.scripts import by_hash, called_by
from hitherto.stores.redis.urls import Servers
from hitherto.stores.redis.wire import ServerError, pack

__all__ = ["Cluster", "Node", "Servers", "Single", "nodes_of"]

LANES: Final = 16
MAX_BATCH: Final = 32
_LONGEST_PAUSE: Final = 0.25
_ASKING: Final = pack((b"ASKING",))
_PING: Final = pack((b"PING",))

Connect = Callable[[], Awaitable[Link]]
Place = tuple[str, int]


class Node:
    """One server: a connection that comes back when it was lost, and the gathering before it."""

    def __init__(self, connect: Connect, timeout: float, url: str) -> None:
        self._connect, self._url = connect, url
        self._link: Link | None = None
        self._connecting: asyncio.Task[Link] | None = None
        self._teaching: asyncio.Task[None] | None = None
        self._closed: StoreError | None = None
        self.gather: Gather[bytes, Any] = Gather(
            self._send, lanes=LANES, max_batch=MAX_BATCH, timeout=timeout, url=url
        )

    async def execute(self, *commands: bytes) -> Sequence[Any]:
        """The replies to packed commands that travel together and at once, error replies among them."""
        return await self._send(list(commands))

    async def ask(self, *words: bytes | str | int) -> Any:
        """The reply to one command; an error reply is raised."""
        return await self.gather(pack(words))

    async def taught(self, packed: bytes) -> Any:
        """The reply to the call of a script that the server did not know: it is taught all of them first,
        once for everybody who misses one, and should it have forgotten it again, this one on the same trip.
        """
        if self._teaching is None:
            self._teaching = asyncio.get_running_loop().create_task(self._teach())
            self._teaching.add_done_callback(self._taught_now)
        await asyncio.shield(self._teaching)
        try:
            return await self.gather(packed, len(packed))
        except ServerError as error:
            if error.code != "NOSCRIPT":
                raise
        return await self.at_once(packed, pack((b"SCRIPT", b"LOAD", called_by(packed).text)))

    async def at_once(self, packed: bytes, before: bytes) -> Any:
        """The reply to a command that travels right behind another; an error reply is raised."""
        _, reply = await self._send([before, packed])
        if isinstance(reply, ServerError):
            raise reply
        return reply

    async def _teach(self) -> None:
        await _taught(await self._connected_link())

    def _taught_now(self, task: asyncio.Task[None]) -> None:
        self._teaching = None
        if not task.cancelled():
            task.exception()  # whoever waited has it

    def drop(self) -> None:
        """Let the connection go; the next call makes a new one."""
        link, self._link = self._link, None
        if link is not None:
            link.close()

    async def close(self, error: StoreError) -> None:
        """Let the connection go for good, after what is under way; who comes later gets *error*."""
        self._closed = error
        self.gather.close(error)
        await self.gather.drained()
        for task in (self._connecting, self._teaching):
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        self.drop()

    def _send(self, commands: list[bytes]) -> Trip | Coroutine[Any, Any, Sequence[Any]]:
        link = self._link
        if link is not None and link.is_open:
            return link.execute(commands)
        return self._reconnected(commands)

    async def _reconnected(self, commands: list[bytes]) -> Sequence[Any]:
        return await (await self._connected_link()).execute(commands)

    async def _connected_link(self) -> Link:
        """The connection, made anew if it was lost; everybody who wants it waits for the same one."""
        if self._link is not None and self._link.is_open:
            return self._link
        if self._closed is not None:
            raise self._closed
        if self._connecting is None:
            self._connecting = asyncio.get_running_loop().create_task(self._prepared())
            self._connecting.add_done_callback(self._prepared_now)
        return await asyncio.shield(self._connecting)

    async def _prepared(self) -> Link:
        link = await self._connect()
        try:
            await _taught(link)
        except BaseException:
            link.close()
            raise
        self._link = link
        return link

    def _prepared_now(self, task: asyncio.Task[Link]) -> None:
        self._connecting = None
        if not task.cancelled():
            task.exception()  # whoever waited has it


async def _taught(link: Link) -> None:
    """Teach the server the scripts that it does not know, all in one trip."""
    scripts = by_hash()
    (greeted,) = await link.execute([_PING])  # to strangers the server hangs up upon anything longer
    if isinstance(greeted, ServerError) and greeted.code == "NOAUTH":
        raise translated(greeted, link.url)
    (known,) = await link.execute([pack((b"SCRIPT", b"EXISTS", *scripts))])
    if isinstance(known, ServerError):
        if known.code == "NOPERM":
            raise translated(known, link.url)
        return  # what is wrong (LOADING, say) is told to whoever calls a script
    missing = [one for one, there in zip(scripts.values(), known, strict=True) if not there]
    if missing:
        for loaded in await link.execute([pack((b"SCRIPT", b"LOAD", one.text)) for one in missing]):
            if isinstance(loaded, ServerError) and loaded.code == "NOPERM":
                raise translated(loaded, link.url)


class Single:
    """One server holds everything; *connect* may find it anew each time, as sentinels do."""

    def __init__(self, connect: Connect, timeout: float, url: str) -> None:
        self._timeout, self._url = timeout, url
        self._node = Node(connect, timeout, url)

    async def open(self) -> None:
        """Connect, and see that it answers; one that starts or loads its data is waited for."""
        began = asyncio.get_running_loop().time()
        try:
            await self._node.gather(_PING)
        except (ServerError, Unreachable) as error:
            await self.again(0, error, began, lambda: _PING, True)

    async def close(self, error: StoreError) -> None:
        """Let go of the connections."""
        await self._node.close(error)

    def node(self, slot: int) -> Node:
        """The server that holds a slot."""
        return self._node

    def all(self) -> list[Node]:
        """Every server that holds slots."""
        return [self._node]

    async def again(
        self,
        slot: int,
        error: ServerError | StoreUnavailable,
        began: float,
        build: Callable[[], bytes],
        harmless: bool,
    ) -> Any:
        """The reply to a call after a first *error*; *build* makes it anew, *harmless*: it may be done twice.

        It ends before *began* plus the timeout, with a ``StoreError`` if nothing helped.
        """
        attempt = 0
        try:
            async with asyncio.timeout_at(began + self._timeout):
                while True:
                    if not _worth_repeating(error, harmless):
                        raise translated(error, self._url) from None
                    if attempt:
                        await asyncio.sleep(
                            min(0.01 * 2**attempt, _LONGEST_PAUSE) * (0.5 + random.random() / 2)
                        )
                    attempt += 1
                    try:
                        return await self._once_more(slot, error, build())
                    except (ServerError, Lost, Unreachable) as next_error:
                        error = next_error
        except TimeoutError:
            raise translated(error, self._url) from None

    async def _once_more(self, slot: int, error: Exception, packed: bytes) -> Any:
        code = error.code if isinstance(error, ServerError) else ""
        if code == "NOSCRIPT":
            return await self.node(slot).taught(packed)
        if code == "READONLY":
            self.node(slot).drop()
        elif code == "MOVED":
            raise StoreError("the server belongs to a cluster: use redis+cluster://", url=self._url)
        return await self.node(slot).gather(packed, len(packed))


def _worth_repeating(error: Exception, harmless: bool) -> bool:
    if isinstance(error, ServerError):
        return error.code in PASSING
    return isinstance(error, Unreachable) or (isinstance(error, Lost) and harmless)


class Cluster(Single):
    """Each server holds some of the slots; who holds which is asked again when it proves to be otherwise."""

    def __init__(
        self,
        connect_to: Callable[[str, int], Awaitable[Link]],
        seeds: tuple[Place, ...],
        timeout: float,
        url: str,
    ) -> None:
        self._connect_to, self._seeds, self._timeout, self._url = connect_to, seeds, timeout, url
        self._by_place: dict[Place, Node] = {}
        self._slots: list[Node | None] = [None] * SLOTS
        self._asking: asyncio.Task[None] | None = None
        self._retiring: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        """Find out who holds what; servers that start or load their data are waited for."""
        error: Exception = Unreachable(f"no answer within {self._timeout:g} s", url=self._url)
        try:
            async with asyncio.timeout(self._timeout):
                while True:
                    try:
                        return await self._refresh()
                    except (ServerError, Unreachable) as passing:
                        error = translated(passing, self._url)
                    await asyncio.sleep(_LONGEST_PAUSE)
        except TimeoutError:
            raise error from None

    async def close(self, error: StoreError) -> None:
        """Let go of all connections."""
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.gather(self._asking, return_exceptions=True)
        closing = [node.close(error) for node in self._by_place.values()]
        await asyncio.gather(*closing, *self._retiring)

    def node(self, slot: int) -> Node:
        """The server that holds a slot."""
        node = self._slots[slot]
        if node is None:
            raise Unreachable("no server of the cluster serves this slot", url=self._url)
        return node

    def all(self) -> list[Node]:
        """Every server that holds slots."""
        return list(dict.fromkeys(node for node in self._slots if node is not None))

    async def _once_more(self, slot: int, error: Exception, packed: bytes) -> Any:
        if not isinstance(error, ServerError):
            await self._refresh()
        elif error.code == "NOSCRIPT":
            return await self.node(slot).taught(packed)
        elif error.code == "ASK":
            return await self._asked(self._pointed_to(slot, error), packed)
        elif error.code == "MOVED":
            self._slots[slot] = self._pointed_to(slot, error)
            self._refresh()
        else:
            await self._refresh()
        return await self.node(slot).gather(packed, len(packed))

    async def _asked(self, node: Node, packed: bytes) -> Any:
        """A slot is on its way: what is not where it was is at its new place already."""
        try:
            return await node.at_once(packed, _ASKING)
        except ServerError as error:
            if error.code != "NOSCRIPT":
                raise
        await node.execute(pack((b"SCRIPT", b"LOAD", called_by(packed).text)))
        return await node.at_once(packed, _ASKING)

    def _pointed_to(self, slot: int, error: ServerError) -> Node:
        """Whom ``MOVED 7 host:port`` or ``ASK 7 host:port`` means; without a host, that of who says so."""
        host, _, port = error.text.split()[2].rpartition(":")
        if not host:
            asked = self._slots[slot]
            host = next((place[0] for place, node in self._by_place.items() if node is asked), "")
        return self._at(host, int(port))

    def _at(self, host: str, port: int) -> Node:
        node = self._by_place.get((host, port))
        if node is None:

            async def connect() -> Link:
                return await self._connect_to(host, port)

            node = self._by_place[host, port] = Node(connect, self._timeout, self._url)
        return node

    def _refresh(self) -> Awaitable[None]:
        """Ask who holds what; everybody who wants to know waits for the same answer."""
        if self._asking is None:
            self._asking = asyncio.get_running_loop().create_task(self._ask_around())
            self._asking.add_done_callback(self._asked_around)
        return asyncio.shield(self._asking)

    def _asked_around(self, task: asyncio.Task[None]) -> None:
        self._asking = None
        if not task.cancelled():
            task.exception()  # whoever waited has it

    async def _ask_around(self) -> None:
        error: Exception = Unreachable("no server of the cluster answers", url=self._url)
        for host, port in dict.fromkeys((*self._by_place, *self._seeds)):
            try:
                async with asyncio.timeout(self._timeout / 4):
                    (found,) = await self._at(host, port).execute(pack((b"CLUSTER", b"SLOTS")))
                if isinstance(found, ServerError):
                    raise found
            except (StoreUnavailable, ServerError, TimeoutError) as failure:
                error = failure if isinstance(failure, ServerError) else error
                continue
            if found:
                await self._learn(host, found)
                return
        if isinstance(error, ServerError) and error.code not in PASSING:
            if "cluster support disabled" in error.text:
                raise StoreError("the server belongs to no cluster: use redis://", url=self._url)
            raise translated(error, self._url)
        raise error

    async def _learn(self, asked: str, ranges: list[list[Any]]) -> None:
        """Take over what a server said; connections to those that hold nothing any more are let go."""
        slots: list[Node | None] = [None] * SLOTS
        for first, last, (host, port, *_), *_replicas in ranges:
            node = self._at(host.decode() if host else asked, int(port))
            slots[first : last + 1] = [node] * (last + 1 - first)
        self._slots = slots
        holders = set(map(id, slots))
        for place, node in list(self._by_place.items()):
            if id(node) not in holders:
                del self._by_place[place]
                self._retire(node)

    def _retire(self, node: Node) -> None:
        gone = Unreachable("the server holds no slots any more", url=self._url)
        task = asyncio.get_running_loop().create_task(node.close(gone))
        self._retiring.add(task)
        task.add_done_callback(self._retiring.discard)


def nodes_of(servers: Servers, timeout: float) -> Single:
    """The servers that a URL or a client speaks of."""
    url, make, sentinels = servers.url, servers.make, servers.sentinels

    async def connect(*place: Any) -> Link:
        return await connected(lambda: make(*place), timeout, url)

    async def connect_to_master() -> Link:
        return await connect(*await sentinels.master(timeout, url)) if sentinels else await connect()

    if servers.seeds:
        return Cluster(connect, servers.seeds, timeout, url)
    return Single(connect_to_master, timeout, url)
