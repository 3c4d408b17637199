"""Redis 6.2 and newer, Valkey: many workers, two round trips a turn; one server, sentinels or a cluster.

The store is in :mod:`hitherto.stores.redis.store`; how keys are laid out is told in
:mod:`hitherto.stores.redis.layout`.
"""

from __future__ import annotations

from hitherto.stores.redis.store import RedisStore

__all__ = ["RedisStore"]
