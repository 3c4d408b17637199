"""PgBouncer before a PostgreSQL of the tests' own, where the machine has the program `pgbouncer`.

Where it has none, `TransactionPooler` (in `pooler`) shows a client what PgBouncer in transaction mode would.
"""

from __future__ import annotations

import shutil
from urllib.parse import unquote, urlsplit, urlunsplit

from .pgwire import Pg, PgError
from .postgres import PostgresServer
from .process import LOOPBACK, ServerMissing, ServerProcess

PLACES = "/usr/sbin:/usr/local/sbin:/usr/local/bin:/opt/homebrew/bin"


def pgbouncer_program() -> str | None:
    """Where the program is, None when the machine has none."""
    return shutil.which("pgbouncer") or shutil.which("pgbouncer", path=PLACES)


class PgBouncer(ServerProcess):
    """A PgBouncer before `server`; clients use `url` or `url_of` another database, without a password."""

    kind = "pgbouncer"
    drops_root = True

    def __init__(
        self, server: PostgresServer, *, pool_mode: str = "transaction", pool_size: int = 10
    ) -> None:
        super().__init__()
        self.server = server
        parts = urlsplit(server.url)
        self.url = urlunsplit(parts._replace(netloc=f"postgres@{LOOPBACK}:{self.port}"))
        secret = unquote(parts.password or "").replace("'", "''")
        password = f" password='{secret}'" if secret else ""
        self._settings = self.directory / "pgbouncer.ini"
        lines = [
            "[databases]",
            f"* = host={LOOPBACK} port={server.port} user=postgres{password}",
            "[pgbouncer]",
            f"listen_addr = {LOOPBACK}",
            f"listen_port = {self.port}",
            "unix_socket_dir =",
            "auth_type = any",
            f"pool_mode = {pool_mode}",
            f"default_pool_size = {pool_size}",
            "max_client_conn = 1000",
            "server_round_robin = 1",
            "ignore_startup_parameters = extra_float_digits,search_path",
        ]
        self._settings.write_text("\n".join(lines) + "\n")

    def arguments(self) -> list[str]:
        """The command line."""
        program = pgbouncer_program()
        if program is None:
            raise ServerMissing("no pgbouncer on this machine: apt-get install pgbouncer")
        return [program, str(self._settings)]

    def answers(self) -> bool:
        """Whether a query goes through to the server."""
        try:
            with Pg(self.url) as pg:
                return pg.query("SELECT 1") == [("1",)]
        except PgError:
            return False

    def url_of(self, database: str) -> str:
        """The URL of one database."""
        return urlunsplit(urlsplit(self.url)._replace(path=f"/{database}"))
