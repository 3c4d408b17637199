"""Sentinels: whom to ask who the master is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from hitherto.errors import StoreError, StoreUnavailable
from hitherto.stores.redis.links import Unreachable, connected
from hitherto.stores.redis.wire import ServerError, pack


class Sentinels:
    """The sentinels of one service; *makers* make connections to them."""

    def __init__(self, makers: Sequence[Callable[[], Any]], service: str) -> None:
        self._makers, self._service = makers, service

    async def master(self, timeout: float, url: str) -> tuple[str, int]:
        """Host and port of the master, from the first sentinel that knows."""
        answered = False
        for make in self._makers:
            try:
                link = await connected(make, timeout / 4, url)
            except StoreUnavailable:
                continue
            try:
                (found,) = await link.execute(
                    [pack((b"SENTINEL", b"GET-MASTER-ADDR-BY-NAME", self._service.encode()))]
                )
            except StoreUnavailable:
                continue
            finally:
                link.close()
            answered = True
            if found and not isinstance(found, ServerError):
                host, port = found
                return host.decode(), int(port)
        if answered:
            raise StoreError(f"no sentinel knows a master called {self._service!r}", url=url)
        raise Unreachable("no sentinel answers", url=url)
