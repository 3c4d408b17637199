"""Stores and how to open one by its URL.

Every store is found through the entry-point group ``hitherto.stores``; the ones of this package work without
it too.
"""

from __future__ import annotations

from importlib import import_module
from typing import Final
from urllib.parse import urlsplit

from hitherto.errors import BadStoreURL, redact
from hitherto.stores.base import Store

__all__ = ["Store", "open_store", "schemes"]

_OURS: Final = {
    "memory": "hitherto.stores.memory:MemoryStore",
    "sqlite": "hitherto.stores.sqlite:SQLiteStore",
    **dict.fromkeys(
        ("redis", "rediss", "redis+unix", "valkey", "valkeys", "redis+sentinel", "redis+cluster"),
        "hitherto.stores.redis:RedisStore",
    ),
    **dict.fromkeys(("postgresql", "postgres"), "hitherto.stores.postgres:PostgresStore"),
}


def schemes() -> dict[str, str]:
    """Every URL scheme that a store is installed for, and where its class is."""
    from importlib.metadata import entry_points  # it costs more to import than all of hitherto

    return {**{point.name: point.value for point in entry_points(group="hitherto.stores")}, **_OURS}


def _scheme_of(url: str) -> str:
    try:
        return urlsplit(url).scheme
    except ValueError:  # its message would show a password; the store's own does not
        return url.partition("://")[0].lower()


def open_store(url: str) -> Store:
    """The store that *url* names, to be opened by ``await store.open()``, by ``async with`` or by its first
    use.

    An unknown scheme or option is an error that lists what exists.
    """
    if not isinstance(url, str):
        raise TypeError(f"open_store({type(url).__name__}): a URL as text, for example sqlite:///bot.db")
    scheme = _scheme_of(url)
    found = _OURS.get(scheme) or schemes().get(scheme)
    if found is None:
        raise BadStoreURL(
            f"{redact(url)}: no store for {scheme or 'a URL without a scheme'!r}; "
            f"there are {', '.join(sorted(schemes()))} (for example sqlite:///bot.db)",
            url=url,
        )
    module, _, name = found.partition(":")
    store: Store = getattr(import_module(module), name).from_url(url)
    return store
