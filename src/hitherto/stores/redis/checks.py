"""What is looked at when a store opens: whether the servers will do, and what they may forget."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Sequence
from typing import Final

from hitherto.errors import StoreError, StoreUnavailable, StoreWarning
from hitherto.stores.redis.failures import translated
from hitherto.stores.redis.nodes import Node
from hitherto.stores.redis.wire import ServerError

__all__ = ["examine", "lost_in_a_crash", "risks", "software"]

OLDEST: Final = (6, 2)
_UNKNOWN: Final = (
    "this user may not run INFO, so nobody looked whether the server forgets what it acknowledged: see to it "
    "that appendonly is yes and maxmemory-policy noeviction, or let the user run INFO (ACL: +info)"
)
_FORGETS: Final = (
    "appendonly is no: a restart of the server forgets what was acknowledged since its last snapshot, or "
    "everything; set appendonly yes (appendfsync always loses not even the last second)"
)

Info = dict[str, str]


async def examine(nodes: Sequence[Node], url: str, *, cluster: bool) -> list[Info]:
    """Refuse servers that cannot do it, and warn once of each way to lose what they were given.

    The answer is what the servers say of themselves; nothing, where they keep it to themselves.
    """
    try:
        infos = [_fields(text) for text in await asyncio.gather(*[node.ask("INFO") for node in nodes])]
    except ServerError as error:
        if error.code not in ("NOPERM", "ERR"):  # managed services say either
            raise translated(error, url) from None
        infos = []
    for info in infos:
        _refuse(info, url, cluster)
    found = [risk for info in infos for risk in risks(info)] if infos else [_UNKNOWN]
    for risk in dict.fromkeys(found):
        warnings.warn(risk, StoreWarning, stacklevel=4)
    return infos


def _refuse(info: Info, url: str, cluster: bool) -> None:
    version = tuple(int(part) for part in info.get("redis_version", "7.0").split(".")[:2])
    if version < OLDEST:
        raise StoreError(f"Redis {'.'.join(map(str, version))} is too old; 6.2 or newer is needed", url=url)
    if not cluster and "cluster" in (info.get("redis_mode"), info.get("server_mode")):  # Valkey's word
        raise StoreError("the server belongs to a cluster: use redis+cluster://", url=url)
    if info.get("role") == "slave" and info.get("slave_read_only", "1") == "1" and not cluster:
        raise StoreUnavailable(
            "this server is a replica and takes no writes; connect to its master, or through its sentinels",
            url=url,
        )


def risks(info: Info) -> list[str]:
    """What the server may lose, as sentences."""
    found = []
    policy = info.get("maxmemory_policy", "noeviction")
    if policy.startswith("allkeys") or (policy != "noeviction" and int(info.get("maxmemory", "0")) > 0):
        found.append(
            f"maxmemory-policy is {policy}: when memory runs out the server throws conversations away; set "
            "noeviction"
        )
    if info.get("aof_enabled") == "0":
        found.append(_FORGETS)
    return found


def software(infos: Sequence[Info]) -> str:
    """What runs there, for people."""
    if not infos:
        return "Redis, or one like it, that does not say more"
    first = infos[0]
    name = {"valkey": "Valkey"}.get(first.get("server_name", ""), "Redis")
    version = first.get("valkey_version", first.get("redis_version", "?"))
    return f"{name} {version}" + (f", a cluster of {len(infos)} masters" if len(infos) > 1 else "")


def lost_in_a_crash(infos: Sequence[Info]) -> str:
    """What a crash of the server takes, for people."""
    if not infos:
        return "the server does not say"
    if any(info.get("aof_enabled") == "0" for info in infos):
        return "what was acknowledged since the last snapshot, or everything: appendonly is no"
    return (
        "with appendfsync everysec (the default) the last second, with always nothing; a failover may lose "
        "what the replica had not received"
    )


def _fields(info: bytes) -> Info:
    lines = info.decode("utf-8", "replace").splitlines()
    return dict(line.split(":", 1) for line in lines if ":" in line)
