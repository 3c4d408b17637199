"""The schema: SQL files in order, the table that says which were applied, the one way to write an identifier.

A file is named ``NUMBER_PHASE_WHAT.sql``. ``pre`` files only add: workers of the version before go on with
them. ``post`` files take away what only older versions used; they are applied by ``migrate`` and never by
opening a store, so that a rolling deployment is: migrate (pre), deploy, migrate (post). A database with a
*post* migration that this version does not know is refused; one with newer *pre* migrations is not.
"""

from __future__ import annotations

import re
from importlib.resources import files
from typing import Any, Final, Literal, NamedTuple

from hitherto.errors import SchemaError, shown

DEFAULT: Final = "hitherto"
_LOCK: Final = 0x6869746865
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")
_MADE: Final = (  # not to_regclass: that may go by what a cache says of the time before a lock was waited for
    "SELECT EXISTS (SELECT FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace "
    "WHERE n.nspname = '{}' AND c.relname = 'migration')"
)
_WRITTEN: Final = '"hitherto".'


class Migration(NamedTuple):
    """One file of the package."""

    number: int
    phase: Literal["pre", "post"]
    name: str
    sql: str


def quoted(schema: str) -> str:
    """The schema's name as an SQL identifier: the only way any name gets into a statement."""
    if not _NAME.fullmatch(schema) or schema.lower().startswith("pg_"):
        raise ValueError(
            f"schema={shown(schema)}: letters, digits and underscores, at most 63, "
            "not starting with a digit or pg_"
        )
    return f'"{schema}"'


def in_schema(sql: str, schema: str) -> str:
    """SQL that is written for the default schema, for another one."""
    return sql.replace(_WRITTEN, quoted(schema) + ".")


def migrations() -> list[Migration]:
    """The files of this package, in their order."""
    found = []
    for file in files("hitherto.stores.postgres").joinpath("sql").iterdir():
        number, phase, name = file.name.removesuffix(".sql").split("_", 2)
        if phase not in ("pre", "post"):
            raise ValueError(f"{file.name}: a migration is pre or post")
        found.append(Migration(int(number), phase, name, file.read_text("utf-8")))  # type: ignore[arg-type]
    return sorted(found)


def migration_sql(schema: str = DEFAULT) -> str:
    """The whole schema as SQL in one transaction, to be applied by hand to a database that has none of it, an
    older one or all of it: only what is missing is done.
    """
    own = quoted(schema)
    parts = [
        f"BEGIN;\nSELECT pg_advisory_xact_lock({_LOCK});\n{_preparation(schema)}",
        *[_guarded(migration, schema) for migration in migrations()],
        f"-- The role that the workers use needs no more than this:\n"
        f"-- GRANT USAGE ON SCHEMA {own} TO worker;\n"
        f"-- GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {own} TO worker;\n"
        "COMMIT;\n",
    ]
    return "\n".join(parts)


def _preparation(schema: str) -> str:
    """The schema and its table of migrations; a role that owns the schema need not be able to make others."""
    own = quoted(schema)
    return (
        f"DO $hitherto$ BEGIN IF NOT EXISTS (SELECT FROM pg_namespace WHERE nspname = '{schema}') THEN\n"
        f"    CREATE SCHEMA {own};\nEND IF; END $hitherto$;\n"
        f"CREATE TABLE IF NOT EXISTS {own}.migration (\n"
        "    number integer PRIMARY KEY, phase text NOT NULL, name text NOT NULL,\n"
        "    applied_at timestamptz NOT NULL DEFAULT now()\n);\n"
    )


def _applied(migration: Migration, schema: str) -> str:
    number, phase, name, sql = migration
    return (
        f"{in_schema(sql, schema)}\nINSERT INTO {quoted(schema)}.migration (number, phase, name) "
        f"VALUES ({number}, '{phase}', '{name}');\n"
    )


def _guarded(migration: Migration, schema: str) -> str:
    number, phase, name, _ = migration
    return (
        f"-- {number:04} {phase} {name}\nDO $hitherto$ BEGIN "
        f"IF NOT EXISTS (SELECT FROM {quoted(schema)}.migration WHERE number = {number}) THEN\n"
        f"{_applied(migration, schema)}END IF; END $hitherto$;\n"
    )


async def missing(connection: Any, schema: str, url: str) -> list[Migration]:
    """What is not applied yet; ``SchemaError`` when the schema was made by a newer version."""
    applied: dict[int, str] = {}
    quoted(schema)
    if await _value(connection, _MADE.format(schema)):
        rows = await connection.fetch(f"SELECT number, phase FROM {quoted(schema)}.migration")  # noqa: S608
        applied = dict(rows)
    known = migrations()
    numbers = {migration.number for migration in known}
    if newer := [number for number, phase in applied.items() if phase == "post" and number not in numbers]:
        raise SchemaError(
            f"schema {schema} was made by a newer version (migration {max(newer)}, this version knows "
            f"{max(numbers)}); upgrade hitherto",
            url=url,
        )
    return [migration for migration in known if migration.number not in applied]


async def version_of(connection: Any, schema: str) -> int:
    """The number of the newest migration that was applied."""
    return int(await _value(connection, f"SELECT max(number) FROM {quoted(schema)}.migration") or 0)  # noqa: S608


async def migrate(connection: Any, schema: str, url: str, *, post: bool) -> list[str]:
    """Apply what is missing, in one transaction, one process at a time; the names of what was applied."""
    async with connection.transaction():
        await connection.execute(f"SELECT pg_advisory_xact_lock({_LOCK})")
        todo = [one for one in await missing(connection, schema, url) if post or one.phase == "pre"]
        if todo:
            await connection.execute(_preparation(schema))
        for migration in todo:
            await connection.execute(_applied(migration, schema))
    return [f"{one.number:04}_{one.phase}_{one.name}" for one in todo]


async def _value(connection: Any, sql: str) -> Any:
    return await connection.fetchval(sql)
