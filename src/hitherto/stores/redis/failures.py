"""What a server's error replies mean: what passes by itself, and what is raised in our own words."""

from __future__ import annotations

from typing import Final

from hitherto import codec
from hitherto.errors import DataError, HithertoError, StoreError, StoreUnavailable
from hitherto.stores.redis.wire import ServerError

__all__ = ["PASSING", "translated"]

PASSING: Final = frozenset(
    {"NOSCRIPT", "MOVED", "ASK", "TRYAGAIN", "CLUSTERDOWN", "LOADING", "MASTERDOWN", "READONLY", "BUSY"}
)
"""Nothing was done, and in a moment, or at another place, it can be."""

_SAID: Final = {
    "LOADING": "the server has been started and still loads its data",
    "BUSY": "somebody's script keeps the server busy",
    "OOM": "the server is out of memory (maxmemory)",
    "MISCONF": "the server cannot save to its disk and takes no writes",
    "READONLY": "this server is a replica and takes no writes; connect to its master, or through sentinels",
    "NOREPLICAS": "too few replicas follow the server, so it takes no writes (min-replicas-to-write)",
    "CLUSTERDOWN": "the cluster is down: some slots are served by nobody",
    "TRYAGAIN": "the conversation's slot is being moved to another server",
    "MASTERDOWN": "the server has lost its master",
}
_REFUSED: Final = {
    "NOAUTH": "the server wants a password",
    "WRONGPASS": "the server refuses this user or password",
    "NOPERM": "this user may not run what the store needs: scripts, and all commands on keys of its prefix",
    "CROSSSLOT": "the server belongs to a cluster: use redis+cluster://",
    "WRONGTYPE": "a key of the store's prefix holds something else",
}


def translated(error: ServerError | StoreError, url: str) -> HithertoError:
    """The error as the library raises it."""
    if not isinstance(error, ServerError):
        return error
    if error.code == "HITHERTO-TOO-LARGE":
        size = int(error.text.split()[1])
        return DataError(
            f"data: {size} bytes together; at most {codec.MAX_BYTES}, keep large things elsewhere",
            path="data",
        )
    if error.code in _REFUSED:
        return StoreError(_REFUSED[error.code], url=url)
    if error.code in _SAID:
        return StoreUnavailable(_SAID[error.code], url=url)
    if error.code in PASSING:
        return StoreUnavailable(f"the server goes on answering {error.code}", url=url)
    return StoreError(f"the server answered an error: {error.code}", url=url)
