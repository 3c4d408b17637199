"""What a URL, or a client of the user's own, says about the servers: how connections to them are made."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any, Final, NamedTuple
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from hitherto.errors import BadStoreURL, MissingExtra, redact
from hitherto.stores.redis.layout import SLOTS
from hitherto.stores.redis.sentinels import Sentinels

__all__ = ["Servers", "checked", "servers_of_client", "servers_of_url"]

SCHEMES: Final = ("redis", "rediss", "redis+unix", "redis+sentinel", "redis+cluster", "valkey", "valkeys")
OPTIONS: Final = (
    "client_name", "db", "password", "prefix", "sentinel_password", "sentinel_username", "shards",
    "ssl", "ssl_ca_certs", "ssl_cert_reqs", "ssl_certfile", "ssl_check_hostname", "ssl_keyfile",
    "timeout", "username",
)  # fmt: skip
_OURS: Final = frozenset(
    {"db", "prefix", "shards", "timeout", "ssl", "sentinel_username", "sentinel_password"}
)
_TRUE: Final = {
    "1": True,
    "true": True,
    "yes": True,
    "on": True,
    "0": False,
    "false": False,
    "no": False,
    "off": False,
}

Maker = Callable[..., Any]


class Servers(NamedTuple):
    """How connections are made: ``make()`` to the one server; ``make(host, port)`` to the master that
    ``sentinels`` name, or to the masters of the cluster that ``seeds`` belong to.
    """

    url: str
    make: Maker
    seeds: tuple[tuple[str, int], ...] = ()
    sentinels: Sentinels | None = None


def checked(prefix: str, shards: int, timeout: float) -> None:
    """Refuse what no store can work with."""
    if not prefix or set(prefix) & set("{}"):
        raise BadStoreURL(
            f"prefix={prefix!r}: at least one character, and no braces, which mark the hash slot"
        )
    if not 1 <= shards <= SLOTS:
        raise BadStoreURL(f"shards={shards}: a number from 1 to {SLOTS}")
    if not 0 < timeout < math.inf:
        raise BadStoreURL(f"timeout={timeout}: seconds, more than 0")


def servers_of_url(url: str) -> tuple[Servers, dict[str, Any]]:
    """The servers a URL names, and the store's own options in it (``prefix``, ``shards``, ``timeout``)."""
    try:
        parts = urlsplit(url)
    except ValueError:
        raise BadStoreURL("write redis://user:password@host:6379/0", url=url) from None
    if parts.scheme not in SCHEMES:
        raise BadStoreURL(f"unknown scheme {parts.scheme!r}; there are {', '.join(SCHEMES)}", url=url)
    given = dict(parse_qsl(parts.query, keep_blank_values=True))
    if unknown := sorted(set(given) - set(OPTIONS)):
        raise BadStoreURL(f"unknown option {', '.join(unknown)}; there are {', '.join(OPTIONS)}", url=url)
    try:
        own = _own_options(given)
        return _servers(parts, given, own.get("timeout", 5.0), redact(url)), own
    except ValueError as error:
        raise BadStoreURL(str(error), url=url) from None


def _own_options(given: dict[str, str]) -> dict[str, Any]:
    kinds: dict[str, Callable[[str], Any]] = {"prefix": str, "shards": int, "timeout": float}
    own: dict[str, Any] = {}
    for name, kind in kinds.items():
        if name in given:
            try:
                own[name] = kind(given[name])
            except ValueError:
                raise ValueError(f"{name}={given[name]!r}: a number") from None
    return own


def _servers(parts: SplitResult, given: dict[str, str], timeout: float, url: str) -> Servers:
    connection = client_module("connection")
    secure = parts.scheme in ("rediss", "valkeys") or _flag(given, "ssl")
    if not secure and (stray := [name for name in given if name.startswith("ssl_")]):
        raise ValueError(f"{', '.join(stray)}: only with rediss://, or with ssl=yes")
    settings = _settings(parts, given, timeout)
    kind = connection.SSLConnection if secure else connection.Connection
    if parts.scheme == "redis+unix":
        if not parts.path:
            raise ValueError("write redis+unix:///path/to/socket?db=0")
        unix, db = connection.UnixDomainSocketConnection, _db(given.get("db", "0"))
        return Servers(url, lambda: unix(path=unquote(parts.path), db=db, **settings))
    hosts = _hosts(parts)
    pieces = [unquote(piece) for piece in parts.path.split("/") if piece]
    if parts.scheme == "redis+cluster":
        if pieces not in ([], ["0"]) or given.get("db", "0") != "0":
            raise ValueError("a cluster has database 0 only")
        return Servers(url, lambda host, port: kind(host=host, port=port, **settings), seeds=hosts)
    if parts.scheme == "redis+sentinel":
        if not 1 <= len(pieces) <= 2:
            raise ValueError("write redis+sentinel://host:port,host:port/service/0")
        db = _db(given.get("db", pieces[1] if len(pieces) > 1 else "0"))
        own = _sentinel_settings(settings, given)
        makers = [partial(kind, host=host, port=port, **own) for host, port in hosts]
        return Servers(
            url,
            lambda host, port: kind(host=host, port=port, db=db, **settings),
            sentinels=Sentinels(makers, pieces[0]),
        )
    if len(hosts) != 1 or len(pieces) > 1:
        raise ValueError(f"write {parts.scheme}://user:password@host:6379/0")
    db = _db(given.get("db", pieces[0] if pieces else "0"))
    host, port = hosts[0]
    return Servers(url, lambda: kind(host=host, port=port, db=db, **settings))


def _settings(parts: SplitResult, given: dict[str, str], timeout: float) -> dict[str, Any]:
    userinfo, _, _ = parts.netloc.rpartition("@")
    username, _, password = userinfo.partition(":")
    settings: dict[str, Any] = {
        "username": unquote(username) or given.get("username"),
        "password": unquote(password) or given.get("password"),
        "socket_connect_timeout": timeout,
        "socket_timeout": timeout,
        "protocol": 2,
    }
    for name in set(given) - _OURS - {"username", "password"}:
        settings[name] = _flag(given, name) if name == "ssl_check_hostname" else given[name]
    if settings.get("ssl_cert_reqs", "required") not in ("none", "optional", "required"):
        raise ValueError(f"ssl_cert_reqs={given['ssl_cert_reqs']!r}: none, optional or required")
    return settings


def _sentinel_settings(settings: dict[str, Any], given: dict[str, str]) -> dict[str, Any]:
    """How to connect to the sentinels themselves: with a user and password of their own, or with none."""
    own = {"username": given.get("sentinel_username"), "password": given.get("sentinel_password")}
    return {**settings, **own}


def _hosts(parts: SplitResult) -> tuple[tuple[str, int], ...]:
    hosts: list[tuple[str, int]] = []
    for text in parts.netloc.rpartition("@")[2].split(","):
        one = urlsplit(f"//{text}")
        default = 26379 if parts.scheme == "redis+sentinel" else 6379
        try:
            hosts.append((one.hostname or "localhost", one.port or default))
        except ValueError:
            raise ValueError("a port is a number from 1 to 65535") from None
    return tuple(hosts)


def _db(text: str) -> int:
    if not text.isdecimal():
        raise ValueError(f"database {text!r}: a number")
    return int(text)


def _flag(given: dict[str, str], name: str) -> bool:
    text = given.get(name, "no").lower()
    if text not in _TRUE:
        raise ValueError(f"{name}={text!r}: yes or no")
    return _TRUE[text]


def servers_of_client(client: Any) -> Servers:
    """The servers of an asyncio client of redis-py or valkey-py: connections are made as it makes them."""
    if hasattr(client, "nodes_manager"):
        return _of_cluster(client)
    pool = getattr(client, "connection_pool", None)
    if pool is None or ".asyncio." not in type(pool).__module__:
        raise TypeError(
            f"client={type(client).__module__}.{type(client).__name__}: give a URL, or a client of "
            "redis.asyncio or valkey.asyncio"
        )
    kind, settings = pool.connection_class, _plain(pool.connection_class, pool.connection_kwargs)
    if hasattr(pool, "sentinel_manager"):
        settings["connection_pool"] = pool
    where = settings.get("path") or f"{settings.get('host', 'localhost')}:{settings.get('port', 6379)}"
    return Servers(f"redis://{where}/{settings.get('db') or 0}", lambda: kind(**settings))


def _of_cluster(client: Any) -> Servers:
    nodes = list(client.nodes_manager.startup_nodes.values())
    kind = nodes[0].connection_class
    settings = _plain(kind, nodes[0].connection_kwargs)
    for name in ("host", "port"):
        settings.pop(name, None)
    seeds = tuple([(str(node.host), int(node.port)) for node in nodes])
    url = "redis+cluster://" + ",".join(f"{host}:{port}" for host, port in seeds)
    return Servers(url, lambda host, port: kind(host=host, port=port, **settings), seeds)


def _plain(kind: type, settings: dict[str, Any]) -> dict[str, Any]:
    """A client's connection settings without what only its own pool can use, and without its repetitions."""
    foreign = (
        "maint_notifications",
        "orig_",
        "event_dispatcher",
        "cache",
        "connection_pool",
        "retry",
        "himport",
    )
    kept = {name: value for name, value in settings.items() if not name.startswith(foreign)}
    base = next(one for one in kind.__mro__ if one.__name__ == "AbstractConnection")
    package = base.__module__.partition(".")[0]
    retry = import_module(f"{package}.asyncio.retry").Retry(
        import_module(f"{package}.backoff").NoBackoff(), 0
    )
    return {**kept, "protocol": 2, "decode_responses": False, "retry": retry}


def client_module(name: str) -> Any:
    """A module of redis-py, or a sentence saying how to install it."""
    try:
        return import_module(f"redis.asyncio.{name}")
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "redis":
            raise
        raise MissingExtra("the Redis store", "redis") from None
