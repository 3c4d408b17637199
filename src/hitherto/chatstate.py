"""Chat state: what a chat integration remembers beside its conversations, and snapshots of all of it.

Subscriptions, a map per thread and per channel, the window of messages already seen, and locks with what
waits behind them. Everything lives in realms of the library's own, one document per subscription, thread,
channel and lock and one for a bot's whole window, so every operation is one atomic step on any store::

    Address(bot, "subscription" | "thread" | "channel" | "lock", (id,))        Address(bot, "dedupe", ())

Ids, keys and owners compare as text: ``7`` and ``"7"`` are one message, one thread, one owner.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping
from enum import Enum
from itertools import islice
from math import isfinite
from typing import Any, Final, Literal, TypeAlias, TypeVar, cast

import msgspec
from msgspec.structs import replace

from hitherto import codec, protocol
from hitherto.addresses import Address
from hitherto.codec import Fields
from hitherto.errors import BadKey, DataError
from hitherto.protocol import Document
from hitherto.records import Stored, merged
from hitherto.stores.base import DEFAULT_TERMS, Store

Id: TypeAlias = str | int | float
DedupeKey: TypeAlias = tuple[Id, Id]
Strategy: TypeAlias = Literal["reject", "queue", "debounce", "concurrent"]
LockAnswer: TypeAlias = Literal["acquired", "queued", "debounced", "busy"]

DEDUPE_LIMIT: Final = 1000
PENDING_LIMIT: Final = 10_000
STRATEGIES: Final = ("reject", "queue", "debounce", "concurrent")
REALMS: Final = ("subscription", "thread", "channel", "lock", "dedupe")

_HOLDER: Final = "holder"
_ORDER: Final = "order"
_BATCH: Final = 64
_END_OF_TIME: Final = 1e15
_T = TypeVar("_T")


class NotOwner(Enum):
    """The type of :data:`NOT_OWNER`."""

    NOT_OWNER = "NOT_OWNER"

    def __repr__(self) -> str:
        return "NOT_OWNER"

    __str__ = __repr__


NOT_OWNER: Final = NotOwner.NOT_OWNER
"""What ``release_lock`` answers to whoever does not hold the lock; compare with ``is``."""

Released: TypeAlias = "list[Pending] | Literal[NotOwner.NOT_OWNER]"


class Pending(msgspec.Struct, frozen=True):
    """One who waits behind a lock, as the caller described it."""

    owner: str
    strategy: Strategy = "queue"
    metadata: Any = None

    def __repr__(self) -> str:
        return f"Pending(owner={self.owner!r}, strategy={self.strategy!r})"


class Held(msgspec.Struct, frozen=True):
    """Who holds a lock, and the moment at which it dies by itself (by the store's clock), if it does."""

    owner: str
    metadata: Any = None
    until: float | None = None

    def __repr__(self) -> str:
        return f"Held(owner={self.owner!r}, until={self.until!r})"


class Snapshot(msgspec.Struct):
    """The whole chat state of a bot at one moment, as plain values; of any store, for any store.

    ``dedupe_order`` holds the members of ``dedupe``, the oldest first.
    """

    subscriptions: set[str] = set()
    dedupe: set[tuple[str, str]] = set()
    dedupe_order: list[tuple[str, str]] = []
    thread_state: dict[str, dict[str, Any]] = {}
    channel_state: dict[str, dict[str, Any]] = {}
    locks: dict[str, Held] = {}
    pending_locks: dict[str, list[Pending]] = {}

    def __repr__(self) -> str:
        sizes = ", ".join(f"{name}=<{len(getattr(self, name))}>" for name in self.__struct_fields__)
        return f"Snapshot({sizes})"

    def to_json(self) -> str:
        """The snapshot as JSON text; what would not come back exactly is refused with its path."""
        return msgspec.json.encode(
            {
                "subscriptions": sorted(self.subscriptions),
                "dedupe": sorted(self.dedupe),
                "dedupe_order": self.dedupe_order,
                "thread_state": _raw_maps(self.thread_state),
                "channel_state": _raw_maps(self.channel_state),
                "locks": {key: _raw(held) for key, held in self.locks.items()},
                "pending_locks": {
                    key: [_raw(one) for one in line] for key, line in self.pending_locks.items()
                },
            }
        ).decode()

    def to_dict(self) -> dict[str, Any]:
        """The same as plain dicts and lists, ready for any JSON encoder."""
        return cast("dict[str, Any]", codec.decode_value(self.to_json().encode()))

    @classmethod
    def from_json(cls, text: str | bytes) -> Snapshot:
        """The snapshot that :meth:`to_json` wrote; text that is no JSON object is a DataError."""
        try:
            plain = codec.decode_value(text.encode() if isinstance(text, str) else text)
        except (ValueError, RecursionError) as error:
            raise DataError(f"snapshot: not JSON ({type(error).__name__})", path="snapshot") from None
        if not isinstance(plain, dict):
            raise DataError("snapshot: not a JSON object", path="snapshot")
        return normalize_snapshot(plain)


def _raw_maps(maps: dict[str, dict[str, Any]]) -> dict[str, msgspec.Raw]:
    return {key: msgspec.Raw(codec.join(codec.encode(one))) for key, one in maps.items()}


def _raw(one: Held | Pending) -> dict[str, Any]:
    plain = {name: getattr(one, name) for name in one.__struct_fields__}
    return {**plain, "metadata": msgspec.Raw(codec.encode_value(one.metadata, "metadata"))}


class ChatState:
    """The chat state of *bot* in *store*; the contract is :class:`hitherto.contracts.ChatStateAdapter`.

    At most *pending_limit* entries wait behind one lock (the contract names no number; the default is
    10 000), and together they are no larger than a record may be; one more is a DataError.
    """

    def __init__(self, store: Store, bot: str, *, pending_limit: int = PENDING_LIMIT) -> None:
        if type(bot) is not str or not bot:
            raise ValueError(f"bot={bot!r}: the bot's name is a text that is not empty")
        self.store = store
        self.bot = bot
        self._pending_limit = _at_least_one("pending_limit", pending_limit)

    def __repr__(self) -> str:
        return f"ChatState({self.store!r}, {self.bot!r})"

    # ---------------------------------------------------------------------------------- subscriptions

    async def is_subscribed(self, id: Id) -> bool:
        """Whether the thread is subscribed to."""
        return await self.store.read(self._at("subscription", id)) is not None

    async def subscribe(self, id: Id) -> None:
        """Subscribe to a thread; again does nothing."""
        await self._write(self._at("subscription", id), lambda _: _SUBSCRIBED)

    async def unsubscribe(self, id: Id) -> None:
        """End a subscription; no error if there is none."""
        await self._write(self._at("subscription", id), lambda _: None)

    # -------------------------------------------------------------------------- thread and channel maps

    async def thread_state(self, id: Id) -> dict[str, Any]:
        """The thread's map, a fresh one; ``{}`` when unset."""
        return await self._map("thread", id)

    async def put_thread_state(self, id: Id, map: dict[str, Any]) -> None:
        """Replace the thread's map; an empty one leaves nothing behind."""
        await self._put_map("thread", id, map)

    async def update_thread_state(self, id: Id, new: dict[str, Any]) -> dict[str, Any]:
        """Merge *new* into the thread's map, atomically (new keys win), and give the whole."""
        return await self._update_map("thread", id, new)

    async def channel_state(self, id: Id) -> dict[str, Any]:
        """The channel's map, a fresh one; ``{}`` when unset."""
        return await self._map("channel", id)

    async def put_channel_state(self, id: Id, map: dict[str, Any]) -> None:
        """Replace the channel's map; an empty one leaves nothing behind."""
        await self._put_map("channel", id, map)

    async def update_channel_state(self, id: Id, new: dict[str, Any]) -> dict[str, Any]:
        """Merge *new* into the channel's map, atomically (new keys win), and give the whole."""
        return await self._update_map("channel", id, new)

    async def _map(self, realm: str, id: Id) -> dict[str, Any]:
        stored = await self.store.read(self._at(realm, id))
        return {} if stored is None else codec.decode(stored.fields)

    async def _put_map(self, realm: str, id: Id, map: dict[str, Any]) -> None:
        stored = _from_fields(codec.encode(map))
        await self._write(self._at(realm, id), lambda _: stored)

    async def _update_map(self, realm: str, id: Id, new: dict[str, Any]) -> dict[str, Any]:
        fields = codec.encode(new)

        def change(stored: Stored | None, now: float) -> tuple[Stored | None, Fields]:
            together = merged(stored, fields).fields
            return _from_fields(together), together

        return codec.decode(await self._step(self._at(realm, id), change))

    # --------------------------------------------------------------------------------- seen messages

    async def is_duplicate(self, key: DedupeKey) -> bool:
        """Whether ``(adapter, message id)`` is in the window."""
        pair = _pair(key)
        return pair in _order(await self.store.read(self._at("dedupe")))

    async def mark_seen(self, key: DedupeKey, limit: int = DEDUPE_LIMIT) -> None:
        """Make *key* the newest of the window; it holds the newest *limit* and forgets the oldest first."""
        await self.claim(key, limit)

    async def claim(self, key: DedupeKey, limit: int = DEDUPE_LIMIT) -> bool:
        """Mark *key* as seen and say whether this was the first time, in one atomic step.

        Of any number of callers at once, exactly one is told ``True``.
        """
        pair, limit = _pair(key), _at_least_one("limit", limit)

        def change(stored: Stored | None, now: float) -> tuple[Stored | None, bool]:
            order = _order(stored)
            fresh = pair not in order
            if not fresh:
                order.remove(pair)
            order.append(pair)
            return _window(order[-limit:]), fresh

        return await self._step(self._at("dedupe"), change)

    # ----------------------------------------------------------------------------------------- locks

    async def lock(
        self,
        key: Id,
        owner: Id,
        strategy: Strategy = "reject",
        metadata: Any = None,
        ttl: float | None = None,
    ) -> LockAnswer:
        """Take the lock if it is free; if it is held, also by *owner*, the caller's own *strategy* decides.

        ``reject`` answers ``busy``; ``queue`` waits behind the others; ``debounce`` takes the place of all
        who wait; ``concurrent`` is always ``acquired`` and stores nothing. With *ttl* the lock dies by itself
        after so many seconds of the store's clock, and what waits behind it goes to the next release.
        """
        _check_lock(strategy, ttl)
        holder = _text(owner, "owner")
        text = codec.encode_value(metadata, "metadata")
        address = self._at("lock", key)
        if strategy == "concurrent":
            return "acquired"

        def change(stored: Stored | None, now: float) -> tuple[Stored | None, LockAnswer]:
            held, pending = _opened(stored, now)
            if stored is None or held is None:
                until = None if ttl is None else now + ttl
                return _closed(_held_text(holder, text, until), until, pending), "acquired"
            if strategy == "reject":
                return stored, "busy"
            entry = _pending_text(holder, strategy, text)
            if strategy == "debounce":
                return _closed(stored.fields[_HOLDER], held.until, {_FIRST: entry}), "debounced"
            line = {**pending, self._place(pending): entry}
            return _closed(stored.fields[_HOLDER], held.until, line), "queued"

        return await self._step(address, change)

    def _place(self, pending: Fields) -> str:
        """Where the next one waits: behind the last."""
        if len(pending) >= self._pending_limit:
            raise DataError(
                f"lock: {len(pending)} entries wait for it already, the most there may be, and nothing was "
                "changed; release it, use the strategy 'debounce', or raise pending_limit",
                path="pending",
            )
        return _place(int(max(pending)) + 1) if pending else _FIRST

    async def release_lock(self, key: Id, owner: Id) -> Released:
        """Free the lock and give what waits behind it, in order; nobody is handed the lock.

        ``NOT_OWNER``, and nothing changes, when *owner* does not hold it or nobody does.
        """
        holder = _text(owner, "owner")

        def change(stored: Stored | None, now: float) -> tuple[Stored | None, Released]:
            held, pending = _opened(stored, now)
            if held is None or held.owner != holder:
                return stored, NOT_OWNER
            return None, _line(pending)

        return await self._step(self._at("lock", key), change)

    async def force_release_lock(self, key: Id) -> list[Pending]:
        """Free the lock whoever holds it, and give what waits behind it, in order."""

        def change(stored: Stored | None, now: float) -> tuple[Stored | None, list[Pending]]:
            return None, _line(_opened(stored, now)[1])

        return await self._step(self._at("lock", key), change)

    # ------------------------------------------------------------------------------------- snapshots

    async def snapshot(self) -> Snapshot:
        """Everything, as plain values; each entry as it was at one moment, one entry after the other."""
        now = await self.store.now()
        found = {realm: await self._read_all(realm) for realm in REALMS[:-1]}
        order = [(adapter, id) for adapter, id in _order(await self.store.read(self._at("dedupe")))]
        locks = {key: _opened(stored, now) for key, stored in found["lock"].items()}
        return Snapshot(
            subscriptions=set(found["subscription"]),
            dedupe=set(order),
            dedupe_order=order,
            thread_state={key: codec.decode(stored.fields) for key, stored in found["thread"].items()},
            channel_state={key: codec.decode(stored.fields) for key, stored in found["channel"].items()},
            locks={key: held for key, (held, _) in locks.items() if held is not None},
            pending_locks={key: _line(pending) for key, (_, pending) in locks.items() if pending},
        )

    async def restore(self, snapshot: Snapshot | Mapping[str, Any]) -> None:
        """Replace everything of this bot's chat state by *snapshot* (normalised first).

        One atomic step per entry: give it a bot at rest, and repeat it if it fails on the way.
        """
        if not isinstance(snapshot, Snapshot | Mapping):
            raise DataError(
                f"snapshot: {type(snapshot).__name__}; pass a Snapshot, a dict or Snapshot.from_json(text)",
                path="snapshot",
            )
        wanted = _documents(normalize_snapshot(snapshot))
        for realm in REALMS[:-1]:
            there = [_name(address) async for address in self.store.scan(self.bot, realm)]
            goals = {**dict.fromkeys(there), **wanted[realm]}
            await _in_batches(self._become(self._at(realm, key), stored) for key, stored in goals.items())
        await self._become(self._at("dedupe"), wanted["dedupe"].get(""))

    async def _read_all(self, realm: str) -> dict[str, Stored]:
        there = [address async for address in self.store.scan(self.bot, realm)]
        stored = await _in_batches(self.store.read(address) for address in there)
        pairs = sorted(zip(map(_name, there), stored, strict=True), key=lambda pair: pair[0])
        return {name: one for name, one in pairs if one is not None}

    # ------------------------------------------------------------------------------------ the one step

    def _at(self, realm: str, id: Id | None = None) -> Address:
        return Address(self.bot, realm, () if id is None and realm == "dedupe" else (_text(id, "id"),))

    async def _become(self, address: Address, stored: Stored | None) -> None:
        await self._write(address, lambda _: stored)

    async def _write(self, address: Address, change: Callable[[Stored | None], Stored | None]) -> None:
        await self._step(address, lambda stored, now: (change(stored), None))

    async def _step(
        self, address: Address, change: Callable[[Stored | None, float], tuple[Stored | None, _T]]
    ) -> _T:
        """Apply a pure change to one record, atomically, and give its answer.

        When the store repeats the step because a reply was lost, the operation ids noted in the document say
        which attempt was applied, and its answer is given again.
        """
        tried: dict[str, _T] = {}

        def step(document: Document, now: float) -> tuple[Document, _T]:
            for done in document.ops:
                if done.id in tried:
                    return document, tried[done.id]
            before = protocol.live_record(document, now)
            after, answer = change(before, now)
            if after == before == document.record:
                return document, answer
            op = self.store.op() if after is not None or answer else None
            if op is not None:
                tried[op] = answer
            return _replaced(document, now, op, after), answer

        return await self.store.transact(address, step)


def _replaced(document: Document, now: float, op: str | None, stored: Stored | None) -> Document:
    """The document with another record; one that holds nothing is left blank, for the store to drop."""
    after = protocol.remembered(document, now, op, stored, DEFAULT_TERMS)
    return replace(after, ops=()) if stored is None and op is None else after


# ------------------------------------------------------------------------------------------ what is stored

_SUBSCRIBED: Final = Stored(state="subscribed")


def _from_fields(fields: Fields) -> Stored | None:
    return Stored(fields=fields) if fields else None


def _order(stored: Stored | None) -> list[list[str]]:
    """The window, oldest first."""
    return [] if stored is None else cast("list[list[str]]", codec.decode_value(stored.fields[_ORDER]))


def _window(order: Iterable[Iterable[str]]) -> Stored | None:
    pairs = [list(pair) for pair in order]
    return Stored(fields=codec.encode({_ORDER: pairs})) if pairs else None


def _held_text(owner: str, metadata: bytes, until: float | None) -> bytes:
    return msgspec.json.encode((owner, msgspec.Raw(metadata), until))


def _pending_text(owner: str, strategy: Strategy, metadata: bytes) -> bytes:
    return msgspec.json.encode((owner, strategy, msgspec.Raw(metadata)))


def _opened(stored: Stored | None, now: float) -> tuple[Held | None, Fields]:
    """Who holds a lock now, and what waits behind it, by place."""
    if stored is None:
        return None, {}
    pending = dict(stored.fields)
    text = pending.pop(_HOLDER, None)
    held = None if text is None else Held(*codec.decode_value(text))
    if held is not None and held.until is not None and held.until <= now:
        held = None
    return held, pending


def _closed(holder: bytes | None, until: float | None, pending: Fields) -> Stored | None:
    """A lock as it is stored; only one that nobody waits for may expire as a whole."""
    if holder is None and not pending:
        return None
    fields = pending if holder is None else {_HOLDER: holder, **pending}
    codec.check_size(fields)
    return Stored(state="lock", fields=fields, expires_at=None if pending else until)


def _place(number: int) -> str:
    return f"{number:012d}"


_FIRST: Final = _place(1)


def _line(pending: Fields) -> list[Pending]:
    return [Pending(*codec.decode_value(pending[place])) for place in sorted(pending)]


def _documents(snapshot: Snapshot) -> dict[str, dict[str, Stored | None]]:
    """What a normalised snapshot looks like in the store, by realm and id."""
    locks: dict[str, Stored | None] = {}
    for key in [*snapshot.locks, *(key for key in snapshot.pending_locks if key not in snapshot.locks)]:
        held, line = snapshot.locks.get(key), snapshot.pending_locks.get(key, [])
        waiting = {_place(number): _pending_of(one) for number, one in enumerate(line, 1)}
        until = None if held is None else held.until
        locks[key] = _closed(None if held is None else _held_of(held), until, waiting)
    window = _window(snapshot.dedupe_order)
    return {
        "subscription": dict.fromkeys(snapshot.subscriptions, _SUBSCRIBED),
        "thread": {key: _from_fields(codec.encode(one)) for key, one in snapshot.thread_state.items()},
        "channel": {key: _from_fields(codec.encode(one)) for key, one in snapshot.channel_state.items()},
        "lock": locks,
        "dedupe": {} if window is None else {"": window},
    }


def _held_of(held: Held) -> bytes:
    return _held_text(held.owner, codec.encode_value(held.metadata, "metadata"), held.until)


def _pending_of(one: Pending) -> bytes:
    return _pending_text(one.owner, one.strategy, codec.encode_value(one.metadata, "metadata"))


def _name(address: Address) -> str:
    return str(address.key[0]) if isinstance(address.key, tuple) else str(address.key)


async def _in_batches(work: Iterable[Coroutine[Any, Any, _T]]) -> list[_T]:
    """The answers of many calls, in order, with no more than a batch of them under way at once."""
    answers: list[_T] = []
    waiting = iter(work)
    while batch := list(islice(waiting, _BATCH)):
        for answer in await asyncio.gather(*batch, return_exceptions=True):
            if isinstance(answer, BaseException):
                raise answer
            answers.append(answer)
    return answers


# ------------------------------------------------------------------------------------ arguments, checked


def _text(value: object, what: str) -> str:
    text = _as_text(value)
    if text is None:
        raise BadKey(f"{what}: {type(value).__name__} cannot be an id; use text or a number")
    return text


def _as_text(value: object) -> str | None:
    """An id as text; ``None`` for what cannot be one."""
    if isinstance(value, Enum):
        return None
    if isinstance(value, str):
        text = str.__str__(value)
        try:
            text.encode()
        except UnicodeEncodeError:
            return None
        return text
    if isinstance(value, int) and not isinstance(value, bool):
        return int.__repr__(value)
    if isinstance(value, float) and isfinite(value):
        return float.__repr__(value)
    return None


def _pair(key: object) -> list[str]:
    if not isinstance(key, tuple | list) or len(key) != 2:
        raise BadKey(f"dedupe key: {type(key).__name__}; it is (adapter, message id)")
    return [_text(key[0], "adapter"), _text(key[1], "message id")]


def _at_least_one(name: str, limit: Any) -> int:
    if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
        raise ValueError(f"{name}={limit!r}: a whole number, at least 1")
    return limit


def _check_lock(strategy: str, ttl: float | None) -> None:
    if strategy not in STRATEGIES:
        raise ValueError(f"strategy={strategy!r}: use {', '.join(map(repr, STRATEGIES))}")
    if ttl is not None and (isinstance(ttl, bool) or not ttl > 0 or not isfinite(ttl)):
        raise ValueError(f"ttl={ttl!r}: seconds above zero, or None")


# ------------------------------------------------------------------------------------------ normalisation


def normalize_snapshot(anything: object) -> Snapshot:
    """A proper Snapshot out of whatever was kept as one; never an error.

    Missing or wrong-typed parts become empty, lists become sets, ids become text, ``[adapter, id]`` and
    ``(adapter, id)`` are pairs and anything else is dropped. ``dedupe`` says what is in the window:
    ``dedupe_order`` is restricted to it, what it does not mention comes first (a list in its own order, a set
    sorted), and so it is rebuilt when absent. A lock may be given as its owner alone.
    """
    if isinstance(anything, Snapshot):
        parts: dict[Any, Any] = {name: getattr(anything, name, None) for name in anything.__struct_fields__}
    else:
        parts = _mapping(anything)
    dedupe = _pairs(parts.get("dedupe"))
    order = _in_order(dedupe, _pairs(parts.get("dedupe_order")))
    return Snapshot(
        subscriptions={
            text for one in _items(parts.get("subscriptions")) if (text := _as_text(one)) is not None
        },
        dedupe=set(dedupe),
        dedupe_order=order,
        thread_state=_each(parts.get("thread_state"), _plain_map),
        channel_state=_each(parts.get("channel_state"), _plain_map),
        locks=_each(parts.get("locks"), _as_held),
        pending_locks=_each(parts.get("pending_locks"), _as_line),
    )


def _in_order(dedupe: list[tuple[str, str]], order: list[tuple[str, str]]) -> list[tuple[str, str]]:
    members, placed = set(dedupe), set(order)
    unplaced = [pair for pair in dedupe if pair not in placed]
    return unplaced + [pair for pair in order if pair in members]


def _mapping(value: object) -> dict[Any, Any]:
    if not isinstance(value, Mapping):
        return {}
    try:
        return dict(value)
    except Exception:  # noqa: BLE001 - whatever a foreign mapping raises, it is a part of the wrong type
        return {}


def _items(value: object) -> list[Any]:
    if not isinstance(value, list | tuple | set | frozenset):
        return []
    try:
        return list(value)
    except Exception:  # noqa: BLE001 - as above, for a foreign list
        return []


def _pairs(value: object) -> list[tuple[str, str]]:
    """Every ``(adapter, id)`` in it, each once, in order; those of a set sorted."""
    found: dict[tuple[str, str], None] = {}
    for one in _items(value):
        parts = _items(one) if isinstance(one, list | tuple) else []
        texts = [text for part in parts if (text := _as_text(part)) is not None]
        if len(parts) == len(texts) == 2:
            found[texts[0], texts[1]] = None
    return sorted(found) if isinstance(value, set | frozenset) else list(found)


def _each(value: object, convert: Callable[[Any], _T | None]) -> dict[str, _T]:
    found: dict[str, _T] = {}
    for key, one in _mapping(value).items():
        text, part = _as_text(key), convert(one)
        if text is not None and part is not None:
            found[text] = part
    return found


def _plain_map(value: object) -> dict[str, Any]:
    try:
        return codec.decode(codec.encode(_mapping(value)))
    except (DataError, ValueError, RecursionError):
        return {}


def _plain(value: object) -> Any:
    try:
        return codec.decode_value(codec.encode_value(value, "metadata"))
    except (DataError, ValueError, RecursionError):
        return None


def _as_held(value: object) -> Held | None:
    parts = _fields_of(value, Held)
    owner = _as_text(parts.get("owner", value))
    if owner is None:
        return None
    return Held(owner, _plain(parts.get("metadata")), _as_moment(parts.get("until")))


def _as_moment(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if abs(value) < _END_OF_TIME else None


def _as_line(value: object) -> list[Pending] | None:
    line = [entry for one in _items(value) if (entry := _as_pending(one)) is not None]
    return line or None


def _as_pending(value: object) -> Pending | None:
    parts = _fields_of(value, Pending)
    owner, strategy = _as_text(parts.get("owner")), _as_text(parts.get("strategy"))
    if owner is None:
        return None
    known: Strategy = cast("Strategy", strategy) if strategy in STRATEGIES else "queue"
    return Pending(owner, known, _plain(parts.get("metadata")))


def _fields_of(value: object, kind: type[Held] | type[Pending]) -> dict[Any, Any]:
    if isinstance(value, kind):
        return {name: getattr(value, name, None) for name in kind.__struct_fields__}
    if kind is Pending and isinstance(value, list | tuple):
        return dict(zip(kind.__struct_fields__, _items(value), strict=False))
    return _mapping(value)
