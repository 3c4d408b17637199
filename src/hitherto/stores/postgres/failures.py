"""What PostgreSQL and the network say, as errors of the library: which can be tried again, and no secrets."""

from __future__ import annotations

from typing import Final

import asyncpg

from hitherto.errors import SchemaError, StoreError, StoreUnavailable

AT_ONCE: Final = ("40001", "40P01")
"""SQLSTATEs after which the same call can be made again at once: nothing of it was done."""

_PASSING: Final = ("08", "40", "53", "57", "58")
_PASSING_STATES: Final = ("25006", "25P03", "25P04", "55P03", "55006")
POOLED: Final = ("26000", "42P05")
"""SQLSTATEs that say that what was prepared is not there, or was by somebody else: a pooler is in between."""

FAILURES: Final = (
    OSError,
    TimeoutError,
    ValueError,
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
)
"""What the driver raises for reasons that are not ours."""

_NOT_THERE: Final = ("3F000", "42P01", "42883", "42703", "42804")


def is_link_lost(error: BaseException) -> bool:
    """Whether the connection must not be used again."""
    if not isinstance(error, asyncpg.PostgresError):
        return True
    state = error.sqlstate or ""
    return state.startswith(("08", "57P", "25")) or isinstance(error, asyncpg.PostgresConnectionError)


def translated(error: BaseException, url: str) -> StoreError:
    """The library's error for one of the driver's; raise it from that one."""
    if isinstance(error, StoreError):
        return error
    state = getattr(error, "sqlstate", None) or ""
    what = f"{type(error).__name__}{f' ({state})' if state else ''}"
    if isinstance(error, TimeoutError):
        return StoreUnavailable("PostgreSQL did not answer in time", url=url)
    if isinstance(error, OSError | asyncpg.PostgresConnectionError):
        return StoreUnavailable(f"the connection to PostgreSQL failed: {what}", url=url)
    if state.startswith(_PASSING) or state in _PASSING_STATES:
        return StoreUnavailable(f"PostgreSQL cannot do this at the moment: {what}", url=url)
    if state in _NOT_THERE:
        return SchemaError(
            f"the schema is missing or not ours: {what}; run `hitherto migrate URL`, or apply the text of "
            "`hitherto migrate URL --sql`",
            url=url,
        )
    if isinstance(error, ValueError) and not state:
        return StoreError(f"the driver does not take this URL or value: {what}; check the URL", url=url)
    if isinstance(error, asyncpg.InterfaceError | asyncpg.InternalClientError):
        return StoreUnavailable(f"the connection to PostgreSQL failed: {what}", url=url)
    if state.startswith("28") or state == "3D000":
        return StoreError(f"PostgreSQL refuses this user or database: {what}; check the URL", url=url)
    if state == "42501":
        return StoreError(
            f"the database role may not do this: {what}; grant it USAGE on the schema and SELECT, INSERT, "
            "UPDATE and DELETE on its tables",
            url=url,
        )
    return StoreError(f"PostgreSQL refused: {what}", url=url)
