"""The keeper: accepts events, runs their turns, renews what it holds and picks up what others left behind.

``handle`` is the whole turn: accept, run the handler, commit. It returns when its own event is settled, or
queued; what waits behind is run by the keeper's own tasks, never on the caller's time.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Literal, Self, TypeAlias

import msgspec

from hitherto import failures
from hitherto.addresses import Address, Key, check_key
from hitherto.errors import EventTooLarge, KeeperClosed, NotStarted
from hitherto.failures import OnError
from hitherto.flows import Flow, FlowRegistry, spec
from hitherto.keys import ChatUser, Strategy, as_strategy
from hitherto.leases import Leases, OnLost
from hitherto.outcomes import Listeners, Outcome, OutcomeStatus, Step
from hitherto.overlap import Burst, ByFlow, Concurrent, Debounce, Overlap, Policy, Queue, Reject
from hitherto.patience import Clock, Patience, SystemClock
from hitherto.protocol import Answer, Dead, Document, Event, Status, Terms
from hitherto.pump import Health, Pump
from hitherto.remembered import Handler
from hitherto.runner import Conduct, Runner
from hitherto.stores import Store, open_store
from hitherto.stores.base import protocol_address
from hitherto.telegram import event_id as find_event_id
from hitherto.telegram import update_json
from hitherto.turns import OnInvalid, OnUnknown, Rules, Turn

OverlapOf: TypeAlias = Policy | Callable[[Any], Policy | None]

_POLICIES = (Reject, Queue, Debounce, Burst, Concurrent)
_SEVEN = ("init", "get_state", "set_state", "get_data", "set_data", "update_data", "clear")
_NUMBERS = frozenset({int, bool})
_WHOLE = ("max_attempts", "max_turns", "max_event_bytes", "seen_limit")
_SECONDS = ("lease", "sweep", "grace", "deadline", "seen_age", "handler_timeout", "record_ttl")
_LAST_GRACE = 5.0
_log = logging.getLogger("hitherto")
_STATUS: dict[Status, OutcomeStatus] = {
    "duplicate": "duplicate", "queued": "queued", "debounced": "debounced", "busy": "busy", "full": "full",
    "dropped": "dropped", "granted": "queued",
}  # fmt: skip


class Keeper:
    """Keeps the conversations of one bot in one store.

    *store*: a URL, a Store, or an object of your own with the seven methods of FSM storage.  *key*: which
    conversation an event belongs to. *handler*: runs the events that no caller brings a handler for, above
    all those recovered after a crash. *overlap*: a policy, or a function of the event whose ``None`` means
    the default; a flow's own comes before the keeper's. *deadline*: how long the store may be away before
    ``StoreError``.
    """

    def __init__(
        self,
        bot: str,
        store: str | Store | Any = "memory://",
        flows: Iterable[type[Flow]] = (),
        *,
        key: Strategy | Callable[[Any], Any] | None = None,
        overlap: OverlapOf | None = None,
        handler: Handler | None = None,
        decode: Callable[[bytes], Any] | None = None,
        on_invalid_transition: OnInvalid = "raise",
        on_unknown_state: OnUnknown = "raise",
        on_error: OnError = "retry",
        on_lost: OnLost = "continue",
        max_attempts: int = 5,
        backoff: Callable[[int], float] = failures.doubling,
        retry_in_order: bool = False,
        handler_timeout: float | None = None,
        max_turns: int = 1000,
        max_event_bytes: int = 262_144,
        lease: float = 30.0,
        sweep: float = 5.0,
        grace: float = 10.0,
        deadline: float = 10.0,
        seen_limit: int = 1000,
        seen_age: float = 172_800.0,
        record_ttl: float | None = None,
        log_ids: bool = False,
        clock: Clock | None = None,
    ) -> None:
        given = locals()
        usual = Keeper.__init__.__kwdefaults__ or {}
        self._options = {name: given[name] for name in usual if given[name] is not usual[name]}
        _check(given)
        self.bot = protocol_address(bot, ()).bot
        self.flows = FlowRegistry(flows)
        self.strategy = as_strategy(ChatUser() if key is None else key)
        self.store, self._owned = _store_of(store)
        self.terms = _terms(lease, max_attempts, seen_limit, seen_age, record_ttl, retry_in_order)
        self._overlap = overlap if callable(overlap) and not isinstance(overlap, type) else None
        self._default_overlap = _overlap_of(overlap if self._overlap is None else None, self.flows)
        self._max_event_bytes, self._grace = max_event_bytes, grace
        self._clock: Clock = SystemClock() if clock is None else clock
        self._listeners = Listeners(bot, log_ids)
        self._runner = Runner(
            bot, self.store, secrets.token_hex(8), self.terms,
            Rules(self.flows, on_invalid_transition, on_unknown_state),
            Conduct(failures.check_policy(on_error), backoff, handler_timeout),
            Leases(on_lost), Patience(self._clock, deadline), self._listeners, max_turns,
        )  # fmt: skip
        self._runner.handler = handler
        if decode is not None:
            self._runner.remembered.decode = decode
        self._pump = Pump(self._runner, self._clock, sweep)
        self._pumping: asyncio.Task[None] | None = None
        self._stopping: asyncio.Task[None] | None = None
        self._phase: Literal["new", "running", "stopping", "stopped"] = "new"

    def __repr__(self) -> str:
        return f"Keeper({self.bot!r}, store={self.store!r}, {self._phase})"

    # ------------------------------------------------------------------------------------ start and stop

    async def start(self) -> None:
        """Open the store, make it ready for this bot, and begin to renew and to sweep."""
        if self._phase not in ("new", "running"):
            raise KeeperClosed()
        await self.store.init(self.bot, **self._options)
        if self._phase == "new":
            self._phase = "running"
            self._pumping = asyncio.get_running_loop().create_task(self._pump.run())

    async def stop(self, grace: float | None = None) -> None:
        """Let running turns finish for *grace* seconds, hand nothing out, release the rest, close.

        A handler cannot wait for its own end: let it call ``asyncio.create_task(keeper.stop())``. When this
        is cancelled the grace is over at once, and the rest is done all the same.
        """
        if self._phase in ("new", "stopped"):
            return
        if any(running.task is asyncio.current_task() for running in self._runner.leases):
            raise RuntimeError("a handler cannot wait for its own end: asyncio.create_task(keeper.stop())")
        if self._stopping is None:
            self._phase, self._runner.stopping = "stopping", True
            self._runner.slots.close()
            closing = self._close(self._grace if grace is None else grace)
            self._stopping = asyncio.get_running_loop().create_task(closing)
        try:
            await asyncio.shield(self._stopping)
        except asyncio.CancelledError:
            self._runner.interrupt()
            raise

    async def _close(self, grace: float) -> None:
        try:
            if not await self._runner.slots.all_free(grace):
                self._runner.interrupt()
                if not await self._runner.slots.all_free(_LAST_GRACE):
                    _log.warning("keeper.stop turns=%d still run", self._runner.slots.taken)
        finally:
            try:
                if self._pumping is not None:
                    self._pumping.cancel()
                    await asyncio.wait([self._pumping])
            finally:
                self._phase = "stopped"
                if self._owned:
                    await self.store.close()

    @property
    def running(self) -> bool:
        """Whether it was started and not stopped."""
        return self._phase == "running"

    def serve(self, handler: Handler | None, decode: Callable[[bytes], Any]) -> None:
        """Let a framework run what no caller brings a handler for, on events that *decode* makes.

        ``None`` says that the handler is still to come: nothing is taken over until then, without a warning.
        """
        self._runner.handler, self._runner.remembered.decode = handler, decode
        self._runner.expecting = handler is None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    # --------------------------------------------------------------------------------------- events

    async def handle(
        self, event: Any, handler: Handler | None = None, *, id: str | int | None = None, key: Key = None
    ) -> Outcome:
        """The whole turn of one event: accept it, run the handler on its Turn, commit.

        Returns when this event is settled, or kept for later. What the handler raises is raised here, after
        the store knows; the event is then retried, given up or kept as a dead letter, by ``on_error``.
        """
        stored = self._stored(event, handler, id, key)
        slots = self._runner.slots
        if not slots.take():
            await slots.wait()
        if stored is None:
            return await self._without_key(event, handler)
        return await self._accepted(*stored, event, handler)

    async def accept(
        self, event: Any, handler: Handler | None = None, *, id: str | int | None = None, key: Key = None
    ) -> Outcome:
        """``handle`` that returns as soon as the event is kept: its turn is run by the keeper's own tasks.

        For webhooks and for polling: once it is accepted the platform may be told so.
        """
        stored = self._stored(event, handler, id, key)
        await self._runner.slots.wait()
        if stored is None:
            self._runner.spawn(self._without_key(event, handler))
            return Outcome("no-key")
        return await self._accepted(*stored, event, handler, inline=False)

    def _stored(
        self, event: Any, handler: Handler | None, id: str | int | None, key: Key
    ) -> tuple[Address, Event] | None:
        """The event as the store will see it, and where; ``None`` when it belongs to no conversation."""
        if self._phase != "running":
            self._check_running()
        if handler is None:
            if self._runner.handler is None:
                raise TypeError("no handler: give one to handle(event, handler) or to Keeper(handler=...)")
        elif not callable(handler):
            raise TypeError(f"{handler!r} is no handler; write one as 'async def handler(turn)'")
        key = self.strategy.extract(event) if key is None else _plain(key)
        if key is None:
            return None
        payload = update_json(event)
        if len(payload) > self._max_event_bytes:
            raise EventTooLarge(len(payload), self._max_event_bytes)
        return Address(self.bot, "", key), Event(find_event_id(event) if id is None else str(id), payload)

    async def _accepted(
        self, address: Address, stored: Event, event: Any, handler: Handler | None, inline: bool = True
    ) -> Outcome:
        """With a slot, which a cancelled call has passed on."""
        runner = self._runner
        try:
            overlap = self._default_overlap if self._overlap is None else self._overlap_for(event)
            answer = await runner.accept(address, stored, overlap, event, handler)
            grant = answer.grant
            if grant is None or not inline or not grant.entries or grant.entries[-1].seq != answer.seq:
                runner.queued(address, answer, event, handler)
                return self._kept(address, stored, answer)
            attempt = grant.entries[-1].attempts
            answer, error = await runner.turn(address, grant, handler, event)
        except asyncio.CancelledError:
            raise
        except BaseException:
            runner.slots.free()
            raise
        runner.follow(address, answer)
        if error is not None:
            raise error
        status: OutcomeStatus = "fenced" if answer.status == "fenced" else "committed"
        return Outcome(status, stored.id, address.key, answer.depth, attempt)

    def _kept(self, address: Address, stored: Event, answer: Answer) -> Outcome:
        """What became of an event whose turn is not now, or never."""
        status = _STATUS[answer.status]
        self._listeners.counts[status] += 1
        return Outcome(status, stored.id, address.key, answer.depth)

    async def _without_key(self, event: Any, handler: Handler | None) -> Outcome:
        """An event of no conversation, with a slot: the handler gets an empty record, nothing is stored."""
        try:
            await self._runner.without_key(event, handler)
        finally:
            self._runner.slots.free()
        self._listeners.counts["no-key"] += 1
        return Outcome("no-key")

    @asynccontextmanager
    async def open(self, key: Key, *, timeout: float | None = None) -> AsyncIterator[Turn]:
        """The same lock and commit without an event, from a job, an admin command or a test.

        Waits until the conversation is free, for at most *timeout* seconds. Leaving the block commits;
        raising in it commits nothing. ``Fenced`` is raised when the lease was lost meanwhile.
        """
        async with self._runner.held(self._address(key), timeout) as turn:
            yield turn

    # ------------------------------------------------------------------------------------ looking after it

    def listen(self, callback: Callable[[Step], object]) -> Callable[[], None]:
        """Give every step to *callback*, from now on; call the answer to stop listening."""
        callbacks = self._listeners.callbacks
        callbacks.append(callback)
        return lambda: callbacks.remove(callback) if callback in callbacks else None

    @property
    def counts(self) -> Mapping[str, int]:
        """How often each outcome came up since the start."""
        return Counter(self._listeners.counts)

    def health(self) -> Health:
        """Whether the background task does its work, and how many turns run."""
        health = self._pump.health()
        if self.running and self._pumping is not None and self._pumping.done():
            return msgspec.structs.replace(health, ok=False, error="cancelled")
        return health

    async def sweep(self) -> None:
        """Do now what the background task does at intervals: renew, and take over what was left behind."""
        self._check_running()
        await self._pump.renew()
        await self._pump.sweep()

    async def idle(self, seconds: float = 60.0) -> bool:
        """Wait until nothing runs in this process, at most so long; whether that is so."""
        return await self._runner.slots.all_free(seconds)

    async def inspect(self, key: Key) -> Document:
        """Everything that is kept about one conversation."""
        address = self._address(key)
        return await self._patience(lambda: self.store.load(address))

    async def dead_letters(self, key: Key) -> tuple[Dead, ...]:
        """The events of a conversation that were given up after their last attempt."""
        return (await self.inspect(key)).dead

    async def dead_keys(self) -> AsyncIterator[Key]:
        """The conversations that have dead letters."""
        self._check_running()
        async for address in self.store.scan(self.bot, "dead"):
            yield address.key

    async def retry_dead(self, key: Key, seq: int) -> bool:
        """Put a dead letter back in line, with its attempts forgotten; whether it was there."""
        address, op = self._address(key), self.store.op()
        answer = await self._patience(lambda: self.store.retry_dead(address, seq, op, self.terms))
        if answer.status == "queued":
            self._runner.look_at(address)
        return answer.status == "queued"

    async def drop_dead(self, key: Key, seq: int) -> bool:
        """Throw a dead letter away; whether it was there."""
        address, op = self._address(key), self.store.op()
        answer = await self._patience(lambda: self.store.drop_dead(address, seq, op, self.terms))
        return answer.status == "dropped"

    async def force_release(self, key: Key) -> bool:
        """Free a stuck conversation: whoever runs it can commit nothing more, its events wait again."""
        address, op = self._address(key), self.store.op()
        answer = await self._patience(lambda: self.store.force_release(address, op, self.terms))
        if answer.wake_at is not None:
            self._runner.look_at(address)
        return answer.status == "released"

    async def forget(self, key: Key) -> None:
        """Erase everything about a conversation; whoever runs it now cannot bring it back."""
        address = self._address(key)
        await self._patience(lambda: self.store.forget(address))

    # ------------------------------------------------------------------------------------------ pieces

    @property
    def _patience(self) -> Patience:
        return self._runner.patience

    def _address(self, key: Key) -> Address:
        self._check_running()
        return Address(self.bot, "", check_key(key))

    def _check_running(self) -> None:
        if self._phase == "new":
            raise NotStarted()
        if self._phase != "running":
            raise KeeperClosed()

    def _overlap_for(self, event: Any) -> Overlap:
        if self._overlap is None:
            return self._default_overlap
        policy = self._overlap(event)
        if policy is None:
            return self._default_overlap
        if not isinstance(policy, _POLICIES):
            raise TypeError(f"overlap answered {policy!r}; it answers one of {_policy_names()}, or None")
        return policy


def _plain(key: Key) -> Key:
    """The key, checked; one of plain numbers needs no look at each part."""
    if type(key) is tuple and _NUMBERS.issuperset(map(type, key)):
        return key
    return check_key(key)


def _policy_names() -> str:
    return ", ".join(policy.__name__ for policy in _POLICIES)


def _overlap_of(given: Any, flows: FlowRegistry) -> Overlap:
    if given is not None and not isinstance(given, _POLICIES):
        raise TypeError(f"overlap={given!r}: one of {_policy_names()}, or a function of the event")
    default = Queue() if given is None else given
    own = {spec(flow).name: spec(flow).overlap for flow in flows}
    policies = {name: policy for name, policy in own.items() if policy is not None}
    for name, policy in policies.items():
        if not isinstance(policy, _POLICIES):
            raise TypeError(f"flow {name!r}: overlap={policy!r}: one of {_policy_names()}")
    return ByFlow(default, policies) if policies else default


def _store_of(store: Any) -> tuple[Store, bool]:
    """The store, and whether it is ours to close: one that was opened from a URL."""
    if isinstance(store, str):
        return open_store(store), True
    if isinstance(store, Store):
        return store, False
    missing = [name for name in _SEVEN if not callable(getattr(store, name, None))]
    if missing:
        raise TypeError(
            f"store={type(store).__name__}: a URL, a Store, or an object with FSM storage's seven methods; "
            f"it has no {', '.join(missing)}"
        )
    from hitherto.stores.adapted import AdaptedStore

    return AdaptedStore(store), False


def _terms(
    lease: float,
    max_attempts: int,
    seen_limit: int,
    seen_age: float,
    record_ttl: float | None,
    in_order: bool,
) -> Terms:
    return Terms(
        lease=lease, max_attempts=max_attempts, seen_limit=seen_limit, seen_age=seen_age,
        record_ttl=record_ttl, retry_in_order=in_order,
    )  # fmt: skip


def _check(options: dict[str, Any]) -> None:
    """Refuse numbers and functions of a keeper that are none, by their names."""
    for name in (*_WHOLE, *_SECONDS):
        value, kind = options[name], int if name in _WHOLE else int | float
        if value is None and name in ("handler_timeout", "record_ttl"):
            continue
        if not isinstance(value, kind):
            raise TypeError(f"{name}={value!r}: a {'whole ' if name in _WHOLE else ''}number")
        if not (value >= 0 if name == "grace" else value > 0):
            raise ValueError(f"{name}={value!r}: {'zero or more' if name == 'grace' else 'more than zero'}")
    for name in ("handler", "decode", "backoff", "clock"):
        if options[name] is not None and not callable(options[name]):
            raise TypeError(f"{name}={options[name]!r}: a function")
