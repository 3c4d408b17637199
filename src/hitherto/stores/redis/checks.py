"""What is looked at when a store opens: whether the server will do, and what it may forget."""

from __future__ import annotations

import warnings
from typing import Final

from hitherto.errors import StoreError, StoreUnavailable, StoreWarning
from hitherto.stores.redis.failures import translated
from hitherto.stores.redis.nodes import Node
from hitherto.stores.redis.wire import ServerError

OLDEST: Final = (6, 2)


async def examine(node: Node, url: str, *, cluster: bool) -> None:
    """Refuse a server that cannot do it, and warn about one that can lose what it is given."""
    try:
        info = _fields(await node.ask("INFO"))
    except ServerError as error:
        if error.code == "NOPERM":  # a managed service that keeps this to itself
            return
        raise translated(error, url) from None
    version = tuple(int(part) for part in info.get("redis_version", "7.0").split(".")[:2])
    if version < OLDEST:
        raise StoreError(f"Redis {'.'.join(map(str, version))} is too old; 6.2 or newer is needed", url=url)
    if not cluster and info.get("redis_mode") == "cluster":
        raise StoreError("the server belongs to a cluster: use redis+cluster://", url=url)
    if info.get("role") == "slave" and info.get("replica_read_only", "1") == "1" and not cluster:
        raise StoreUnavailable(
            "this server is a replica and takes no writes; connect to its master, or through its sentinels",
            url=url,
        )
    for risk in risks(info):
        warnings.warn(risk, StoreWarning, stacklevel=4)


def risks(info: dict[str, str]) -> list[str]:
    """What the server may lose, as sentences."""
    found = []
    policy = info.get("maxmemory_policy", "noeviction")
    if policy.startswith("allkeys") or (policy != "noeviction" and int(info.get("maxmemory", "0")) > 0):
        found.append(
            f"maxmemory-policy is {policy}: when memory runs out the server throws conversations away; set "
            "noeviction"
        )
    if info.get("aof_enabled") == "0":
        found.append(
            "appendonly is no: a restart of the server forgets what was acknowledged since its last "
            "snapshot, or everything; set appendonly yes (appendfsync always loses not even the last second)"
        )
    return found


def _fields(info: bytes) -> dict[str, str]:
    lines = info.decode("utf-8", "replace").splitlines()
    return dict(line.split(":", 1) for line in lines if ":" in line)
