"""The tables, and how they came to be: numbered steps, forward only.

``conversation`` has a row for each conversation (see :mod:`hitherto.stores.sqlite.rows`), ``payload`` what is
too large for it, ``seen`` the ids that are too old for it.
"""

from __future__ import annotations

import sqlite3
from typing import Final

from hitherto.errors import SchemaError, StoreCorrupt

APPLICATION_ID: Final = 0x68697468

STEPS: Final[tuple[tuple[str, ...], ...]] = (
    (
        """
        CREATE TABLE conversation (
            id INTEGER PRIMARY KEY,
            bot TEXT NOT NULL,
            realm TEXT NOT NULL,
            address TEXT NOT NULL UNIQUE,
            version INTEGER NOT NULL,
            flow TEXT,
            state TEXT,
            data TEXT,
            recorded INTEGER NOT NULL,
            pending INTEGER NOT NULL,
            dead INTEGER NOT NULL,
            lease_until REAL,
            wake_at REAL,
            touched REAL NOT NULL,
            body BLOB NOT NULL
        )
        """,
        "CREATE INDEX conversation_due ON conversation (bot, wake_at) WHERE wake_at IS NOT NULL",
        "CREATE INDEX conversation_state ON conversation (bot, realm, flow, state, address) "
        "WHERE recorded > 0",
        "CREATE INDEX conversation_dead ON conversation (bot) WHERE dead > 0",
        """
        CREATE TABLE payload (
            conversation INTEGER NOT NULL,
            seq INTEGER NOT NULL,
            payload BLOB NOT NULL,
            error TEXT NOT NULL DEFAULT '',
            PRIMARY KEY (conversation, seq)
        ) WITHOUT ROWID
        """,
        """
        CREATE TABLE seen (
            conversation INTEGER NOT NULL,
            event_id TEXT NOT NULL,
            n INTEGER NOT NULL,
            at REAL NOT NULL,
            PRIMARY KEY (conversation, event_id)
        ) WITHOUT ROWID
        """,
    ),
)


def version() -> int:
    """The version that this code writes."""
    return len(STEPS)


def version_of(connection: sqlite3.Connection, url: str) -> int:
    """The version of a database, 0 when it is empty; refuses another program's and a newer one."""
    application = _pragma(connection, "application_id")
    found = _pragma(connection, "user_version")
    tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    if application != APPLICATION_ID and (application or tables or found):
        raise StoreCorrupt(
            "the file is an SQLite database of another program; it was left as it is, name another file",
            url=url,
        )
    if found > version():
        raise SchemaError(
            f"the file has schema {found} and this version of hitherto knows {version()}; upgrade hitherto, "
            "or name another file",
            url=url,
        )
    return found


def migrate(connection: sqlite3.Connection, url: str) -> None:
    """Take the steps that are missing, all of them in one transaction."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        for step in STEPS[version_of(connection, url) :]:
            for statement in step:
                connection.execute(statement)
        connection.execute(f"PRAGMA application_id={APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version={version()}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    return int(connection.execute(f"PRAGMA {name}").fetchone()[0])
