"""A Redis or Valkey cluster of the tests' own: real nodes, joined by CLUSTER commands, ready in 2.1 s."""

from __future__ import annotations

import binascii
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from .process import ServerError, wait_until
from .redis import RedisFlavour, RedisServer, redis_flavours
from .resp import RespError

SLOTS = 16384


def key_slot(key: str) -> int:
    """The hash slot of a key, its hash tag respected."""
    start = key.find("{")
    end = key.find("}", start + 1)
    tag = key[start + 1 : end] if start >= 0 and end > start + 1 else key
    return binascii.crc_hqx(tag.encode(), 0) % SLOTS


@dataclass(frozen=True)
class NodeView:
    """One line of CLUSTER NODES."""

    id: str
    port: int
    flags: frozenset[str]
    master_id: str
    linked: bool
    slots: tuple[range, ...]

    @classmethod
    def parse(cls, line: str) -> NodeView:
        """From the text of the line; slots on the move are left out."""
        id_, address, flags, master, _ping, _pong, _epoch, link, *slots = line.split(" ")
        port = int(address.split("@")[0].split(",")[0].rpartition(":")[2] or 0)
        ranges = [tuple(map(int, slot.split("-"))) for slot in slots if not slot.startswith("[")]
        spans = tuple(range(one[0], one[-1] + 1) for one in ranges)
        return cls(id_, port, frozenset(flags.split(",")), master, link == "connected", spans)


class RedisCluster:
    """Some masters that share the slots evenly, each with some replicas. `nodes` lists the masters first.

    A dead master is replaced by its replica about 2.5 s after its death (`node_timeout` 1 s plus an
    election).
    """

    def __init__(
        self,
        flavour: RedisFlavour | None = None,
        *,
        masters: int = 3,
        replicas: int = 0,
        node_timeout: int = 1000,
        options: Mapping[str, str] | None = None,
    ) -> None:
        self.flavour = flavour or redis_flavours()[0]
        self._masters = masters
        settings = {
            "cluster-enabled": "yes",
            "cluster-node-timeout": str(node_timeout),
            "cluster-replica-validity-factor": "0",
            "cluster-allow-replica-migration": "no",
            "repl-diskless-sync": "yes",
            "repl-diskless-sync-delay": "0",
            "repl-ping-replica-period": "1",
        } | dict(options or {})
        if self.flavour.version < (7,):
            del settings["cluster-allow-replica-migration"]
        self.nodes = [RedisServer(self.flavour, options=settings) for _ in range(masters * (1 + replicas))]

    @property
    def url(self) -> str:
        """`redis+cluster://` with the addresses of all nodes."""
        return "redis+cluster://" + ",".join(f"{node.host}:{node.port}" for node in self.nodes)

    def start(self) -> Self:
        """Start the nodes, join them and wait until every one of them says that the cluster is well."""
        for node in self.nodes:
            node.spawn()
        for node in self.nodes:
            node.wait_ready()
        self._share_slots()
        self._meet()
        self._replicate()
        self.wait_ok()
        return self

    def close(self) -> None:
        """End all nodes."""
        for node in self.nodes:
            node.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    def _share_slots(self) -> None:
        for number, node in enumerate(self.nodes):
            node.command("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
        for number, node in enumerate(self.nodes[: self._masters]):
            first, last = SLOTS * number // self._masters, SLOTS * (number + 1) // self._masters
            node.command("CLUSTER", "ADDSLOTS", *range(first, last))

    def _meet(self) -> None:
        for number, node in enumerate(self.nodes):
            for other in self.nodes[:number]:
                node.command("CLUSTER", "MEET", other.host, other.port)

        def met(node: RedisServer) -> bool:
            views = self.view(node)
            return len(views) == len(self.nodes) and not any("handshake" in view.flags for view in views)

        wait_until(lambda: all(map(met, self.nodes)), "all nodes of the cluster know each other")

    def _replicate(self) -> None:
        for number, node in enumerate(self.nodes[self._masters :]):
            node.command("CLUSTER", "REPLICATE", self.id_of(self.nodes[number % self._masters]))

    def id_of(self, node: RedisServer) -> str:
        """The name by which the cluster knows the node."""
        return str(node.command("CLUSTER", "MYID"))

    def view(self, node: RedisServer) -> list[NodeView]:
        """The cluster as this node sees it."""
        return [NodeView.parse(line) for line in node.command("CLUSTER", "NODES").splitlines()]

    def alive(self) -> list[RedisServer]:
        """The nodes whose process runs and is not paused."""
        return [node for node in self.nodes if node.alive and not node.paused]

    def _node(self, port: int) -> RedisServer:
        return next(node for node in self.nodes if node.port == port)

    def masters(self) -> list[RedisServer]:
        """Those which serve slots now, by their lowest slot, as the first living node sees it."""
        views = [view for view in self.view(self.alive()[0]) if view.slots]
        return [self._node(view.port) for view in sorted(views, key=lambda view: view.slots[0].start)]

    def replicas_of(self, master: RedisServer) -> list[RedisServer]:
        """The living replicas of a node."""
        own = self.id_of(master)
        return [
            self._node(view.port)
            for view in self.view(master)
            if view.master_id == own and "fail" not in view.flags
        ]

    def node_for(self, key: str) -> RedisServer:
        """The master that serves this key."""
        return self.node_for_slot(key_slot(key))

    def node_for_slot(self, slot: int) -> RedisServer:
        """The master that serves this slot."""
        for view in self.view(self.alive()[0]):
            if any(slot in span for span in view.slots):
                return self._node(view.port)
        raise ServerError(f"nobody serves slot {slot}")

    def command(self, key: str, *words: str | bytes | float) -> Any:
        """The reply to one command, from the master that serves `key`."""
        return self.node_for(key).command(*words)

    def kill_master(self, number: int = 0) -> RedisServer:
        """SIGKILL the master with the number-th share of the slots; it is returned. `wait_ok` waits for its
        replacement.
        """
        victim = self.masters()[number]
        victim.kill()
        return victim

    def wait_ok(self, timeout: float = 30.0) -> None:
        """Wait until every living node says "ok", every slot is served by a living master, and replicas
        follow.
        """
        wait_until(lambda: all(map(self._well, self.alive())), "the cluster is well", timeout, every=0.02)

    def _well(self, node: RedisServer) -> bool:
        living = {other.port for other in self.alive()}
        views = self.view(node)
        served = sum(len(span) for view in views for span in view.slots if view.port in living)
        if served < SLOTS or any(
            "fail" in flag for view in views if view.port in living for flag in view.flags
        ):
            return False
        if "cluster_state:ok" not in node.command("CLUSTER", "INFO"):
            return False
        own = next(view for view in views if "myself" in view.flags)
        return "slave" not in own.flags or node.info("replication").get("master_link_status") == "up"

    def heal(self, timeout: float = 30.0) -> None:
        """Start what is dead, resume what is paused, and wait until all nodes are well again."""
        for node in self.nodes:
            if node.paused:
                node.resume()
            elif not node.alive:
                node.start()
        self.wait_ok(timeout)

    def clean(self) -> None:
        """Remove all keys and scripts."""
        for master in self.masters():
            master.clean()

    def calls(self) -> dict[str, int]:
        """How often each command was called, on all living nodes together."""
        total: dict[str, int] = {}
        for node in self.alive():
            for name, count in node.calls().items():
                total[name] = total.get(name, 0) + count
        return total

    def reset_calls(self) -> None:
        """Let `calls` begin at nothing."""
        for node in self.alive():
            node.reset_calls()

    def begin_move(self, slot: int, target: RedisServer) -> RedisServer:
        """Open the slot for a move and return its owner: keys the owner lacks are answered with ASK from now
        on.
        """
        owner = next(node for node in self.masters() if any(slot in span for span in self._own_slots(node)))
        target.command("CLUSTER", "SETSLOT", slot, "IMPORTING", self.id_of(owner))
        owner.command("CLUSTER", "SETSLOT", slot, "MIGRATING", self.id_of(target))
        return owner

    def move_keys(self, slot: int, target: RedisServer) -> int:
        """Carry all keys of a slot under way to the target; their number."""
        owner = next(node for node in self.masters() if any(slot in span for span in self._own_slots(node)))
        keys = owner.command("CLUSTER", "GETKEYSINSLOT", slot, 100_000)
        if keys:
            owner.command("MIGRATE", target.host, target.port, "", 0, 5000, "KEYS", *keys)
        return len(keys)

    def end_move(self, slot: int, target: RedisServer) -> None:
        """The target serves the slot: everybody else answers with MOVED."""
        for node in [target, *(node for node in self.masters() if node is not target)]:
            node.command("CLUSTER", "SETSLOT", slot, "NODE", self.id_of(target))
        wait_until(
            lambda: all(self._agrees(node, slot, target) for node in self.alive()), f"slot {slot} has moved"
        )

    def move_slot(self, slot: int, target: RedisServer) -> None:
        """Move a slot with its keys, from the beginning to the end."""
        try:
            self.begin_move(slot, target)
            self.move_keys(slot, target)
        except RespError as error:
            raise ServerError(f"slot {slot} cannot be moved: {error}") from error
        self.end_move(slot, target)

    def _own_slots(self, node: RedisServer) -> tuple[range, ...]:
        return next(view.slots for view in self.view(node) if "myself" in view.flags)

    def _agrees(self, node: RedisServer, slot: int, target: RedisServer) -> bool:
        return any(
            slot in span for view in self.view(node) if view.port == target.port for span in view.slots
        )
