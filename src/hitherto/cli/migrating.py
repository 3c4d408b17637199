"""The command that brings a schema up to date: migrate."""

from __future__ import annotations

import argparse
import asyncio
import warnings
from typing import Any

from hitherto.cli import output
from hitherto.cli.codes import OK
from hitherto.errors import HithertoError, StoreWarning
from hitherto.stores import Store, open_store
from hitherto.stores.base import Facts


def add(commands: Any) -> None:
    """Add the commands of this module."""
    migrate = commands.add_parser("migrate", help="bring a schema up to date, or print the SQL")
    migrate.add_argument("url", metavar="URL")
    migrate.add_argument(
        "--sql",
        action="store_true",
        help="print SQL for somebody else to apply, without connecting",
    )
    output.add_json(migrate)
    migrate.set_defaults(run=_migrate)


def _migrate(arguments: argparse.Namespace) -> int:
    store = open_store(arguments.url)
    if arguments.sql:
        print(_sql(store), end="")
        return OK
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", StoreWarning)
        applied, facts = asyncio.run(_migrated(store))
    if arguments.json:
        output.show({"applied": applied, "software": facts.software, "schema": facts.schema})
        return OK
    for name in applied:
        print(f"applied {name}")
    if not applied:
        print("nothing to do: ", end="")
    print(f"{facts.software}, schema {facts.schema}")
    return OK


def _sql(store: Store) -> str:
    text = getattr(store, "migration_sql", None)
    if text is None:
        raise HithertoError("this store needs no SQL by hand: opening it brings its schema up to date")
    return str(text())


async def _migrated(store: Store) -> tuple[list[str], Facts]:
    try:
        applied = await store.migrate()
        return applied, await store.facts()
    finally:
        await store.close()
