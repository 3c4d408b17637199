"""The URL of a PostgreSQL store: our options out of it, everything else for the driver."""

from __future__ import annotations

from typing import Any, Final, NamedTuple
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from hitherto.errors import BadStoreURL
from hitherto.stores.postgres.schema import DEFAULT, quoted

OURS: Final = ("schema", "auto_migrate", "timeout", "connections")
DRIVERS: Final = (
    "host", "port", "user", "password", "passfile", "dbname", "database", "service", "servicefile",
    "application_name", "target_session_attrs", "krbsrvname", "gsslib", "options", "sslmode",
    "sslnegotiation", "sslcert", "sslkey", "sslrootcert", "sslcrl", "sslpassword", "ssl_min_protocol_version",
    "ssl_max_protocol_version",
)  # fmt: skip
_BOOLEANS: Final = {
    "true": True,
    "1": True,
    "yes": True,
    "on": True,
    "false": False,
    "0": False,
    "no": False,
    "off": False,
}


class Options(NamedTuple):
    """What a URL says."""

    dsn: str
    schema: str = DEFAULT
    auto_migrate: bool = True
    timeout: float = 10.0
    connections: int = 3


def check(schema: str, timeout: float, connections: int) -> None:
    """Refuse values that cannot be meant."""
    quoted(schema)
    if not 0 < timeout < float("inf"):
        raise ValueError(f"timeout={timeout!r}: seconds, more than zero")
    if type(connections) is not int or not 1 <= connections <= 3:
        raise ValueError(f"connections={connections!r}: 1, 2 or 3; operations that wait together share them")


def _unreadable(url: str) -> BadStoreURL:
    """Python's own message would show what it stumbled over, which may be a password."""
    return BadStoreURL(
        "this cannot be read as a URL; in a user name or password write characters like # / ? @ [ ] as %23 "
        "%2F %3F %40 %5B %5D",
        url=url,
    )


def parse(url: str) -> Options:
    """The options of a URL; ``BadStoreURL`` lists what exists."""
    try:
        parts = urlsplit(url)
    except ValueError:
        raise _unreadable(url) from None
    if parts.fragment or "@" in parts.path + parts.query.partition("=")[0]:
        raise _unreadable(url)
    given = parse_qsl(parts.query, keep_blank_values=True)
    unknown = sorted({name for name, _ in given} - {*OURS, *DRIVERS})
    if unknown:
        raise BadStoreURL(
            f"unknown option {', '.join(unknown)}; there are {', '.join(OURS)}, and those of libpq: "
            f"{', '.join(DRIVERS)}",
            url=url,
        )
    theirs = [(name, value) for name, value in given if name in DRIVERS]
    dsn = urlunsplit(parts._replace(scheme="postgresql", query=urlencode(theirs)))
    ours: dict[str, Any] = {name: value for name, value in given if name in OURS}
    try:
        if "auto_migrate" in ours:
            ours["auto_migrate"] = _BOOLEANS[str(ours["auto_migrate"]).lower()]
        if "timeout" in ours:
            ours["timeout"] = float(ours["timeout"])
        if "connections" in ours:
            ours["connections"] = int(ours["connections"])
        options = Options(dsn, **ours)
        check(options.schema, options.timeout, options.connections)
    except KeyError:
        raise BadStoreURL(f"auto_migrate={ours['auto_migrate']}: true or false", url=url) from None
    except ValueError as error:
        raise BadStoreURL(str(error), url=url) from None
    return options
