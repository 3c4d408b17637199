"""PostgreSQL 13 and newer: many workers, one schema, two round trips a turn.

The store is in :mod:`hitherto.stores.postgres.store`; the schema and its migrations, which need no driver, in
:mod:`hitherto.stores.postgres.schema`.
"""

from __future__ import annotations

from hitherto.errors import MissingExtra

try:
    import asyncpg as _asyncpg  # noqa: F401
except ImportError:
    raise MissingExtra("PostgresStore", "postgres") from None

from hitherto.stores.postgres.schema import migration_sql
from hitherto.stores.postgres.store import PostgresStore

__all__ = ["PostgresStore", "migration_sql"]
