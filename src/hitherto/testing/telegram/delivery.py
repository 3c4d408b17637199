"""How updates reach the bot: the queue behind getUpdates, the webhook, and what can be made to go wrong.

`Updates` keeps Telegram's rule: an update is confirmed when a later offset is asked for; one that is not
confirmed is given again. `Webhook` posts updates, one chat's in sequence and different chats' in parallel,
and tries again until the bot answers 2xx. `Mischief` is a seeded description of a bad day.
"""

from __future__ import annotations

import asyncio
import json
import random
from bisect import bisect_left, insort
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from hitherto.testing.http import BadRequest, Response, fetch

from .world import Bell, Clock, Json, Sleep, first_of

DAY = 86_400.0
ON_REQUEST_ONLY = frozenset({"chat_member", "message_reaction", "message_reaction_count"})
SECRET_HEADER = "X-Telegram-Bot-Api-Secret-Token"  # noqa: S105  the name of a header


@dataclass(frozen=True, slots=True)
class Mischief:
    """What goes wrong, and how often (probabilities from 0 to 1); the same seed gives the same bad day.

    An update may be delivered twice (`duplicate`) or after the one behind it (`reorder`; it is held back
    until another arrives, at most `hold` seconds), or so many seconds late (`delay`, a number or a range). A
    call may be done and its reply lost (`lose_replies`), be cut in the middle of the reply (`drop`,
    getUpdates only), or be refused with a 5xx before anything is done (`errors`).
    """

    duplicate: float = 0.0
    reorder: float = 0.0
    delay: float | tuple[float, float] = 0.0
    lose_replies: float = 0.0
    drop: float = 0.0
    errors: float = 0.0
    hold: float = 0.05
    seed: int = 0


@dataclass(slots=True, eq=False)
class Entry:
    """One delivery that is owed. Its place orders the queue; a stray one came there by mischief or by a
    redelivery, and is not confirmed before it was given once."""

    update: Json
    place: float
    born: float
    ready_at: float
    stray: bool = False
    given: int = 0

    @property
    def update_id(self) -> int:
        """The id of its update."""
        return int(self.update["update_id"])


def _place(entry: Entry) -> float:
    return entry.place


class Updates:
    """The updates not yet confirmed, in the order they are to be given."""

    def __init__(self, clock: Clock, first_id: int) -> None:
        self.clock = clock
        self.bell = Bell()
        self.next_id = first_id
        self.allowed: list[str] | None = None
        self.entries: list[Entry] = []
        self.history: dict[int, Json] = {}
        self.confirmed: dict[int, Json] = {}
        self.expired: list[Json] = []
        self.on_add: Callable[[Entry], None] | None = None
        self._strays: list[Entry] = []
        self._held: list[Entry] = []
        self._given: list[Entry] = []
        self.mischief(Mischief())

    def mischief(self, bad_day: Mischief) -> None:
        """From now on, this is how updates go astray."""
        self._bad_day = bad_day
        self._random = random.Random(bad_day.seed)

    def wants(self, kind: str) -> bool:
        """Whether the bot gets updates of this kind, by its allowed_updates."""
        return kind in self.allowed if self.allowed else kind not in ON_REQUEST_ONLY

    def add(self, update: Json) -> Json:
        """Owe the bot this update; it gets the next id unless it has one."""
        update = json.loads(json.dumps(update))
        if "update_id" not in update:
            update = {"update_id": self.next_id, **update}
        update_id = int(update["update_id"])
        self.next_id = max(self.next_id, update_id + 1)
        self.history[update_id] = update
        self._let_go()
        self._owe_in_some_way(update)
        return update

    def _owe_in_some_way(self, update: Json) -> None:
        day, update_id, now = self._bad_day, float(update["update_id"]), self.clock()
        late = self._random.uniform(*day.delay) if isinstance(day.delay, tuple) else day.delay
        held, twice = self._random.random() < day.reorder, self._random.random() < day.duplicate
        gap = self._random.choice((0.25, 1.75, 3.75))
        place = update_id + (1.5 if held else 0.0)
        entry = self._owe(update, place, now + max(late, day.hold if held else 0.0), stray=held or late > 0)
        if held and not late:
            self._held.append(entry)
        if twice:
            self._owe(update, place + gap, entry.ready_at, stray=True)

    def _owe(self, update: Json, place: float, ready_at: float, *, stray: bool) -> Entry:
        entry = Entry(update, place, self.clock(), ready_at, stray)
        insort(self.entries, entry, key=_place)
        if stray:
            self._strays.append(entry)
        if self.on_add is not None:
            self.on_add(entry)
        self.bell.ring()
        return entry

    def _let_go(self) -> None:
        for entry in self._held:
            entry.ready_at = self.clock()
        self._held.clear()

    def redeliver(self, update_id: int) -> None:
        """Give this update once more, whether it was confirmed or not."""
        if update_id not in self.history:
            raise LookupError(f"there never was an update {update_id}")
        self._owe(self.history[update_id], self.next_id - 0.5, self.clock(), stray=True)

    def confirm(self, offset: int) -> None:
        """Forget every update with an id before the offset (a negative one counts from the end)."""
        if offset < 0:
            if len(self.entries) <= -offset:
                return
            offset = self.entries[offset].update_id
        cut = bisect_left(self.entries, float(offset), key=_place)
        for entry in [e for e in self.entries[:cut] if not e.stray]:
            self._mark(entry)
        self.entries[:cut] = [e for e in self.entries[:cut] if e.stray]
        for entry in [e for e in self._strays if e.given and e.update_id < offset]:
            self.done(entry)

    def done(self, entry: Entry) -> None:
        """The bot has taken this one."""
        self._mark(entry)
        self._remove(entry)

    def _mark(self, entry: Entry) -> None:
        self.confirmed[entry.update_id] = entry.update
        self.bell.ring()

    def _remove(self, entry: Entry) -> None:
        if entry.stray:
            self._strays.remove(entry)
        at = bisect_left(self.entries, entry.place, key=_place)
        while at < len(self.entries) and self.entries[at] is not entry:
            at += 1
        del self.entries[at : at + 1]

    def drop_all(self) -> None:
        """Forget everything that is owed; none of it counts as confirmed."""
        for pile in (self.entries, self._strays, self._held):
            pile.clear()
        self.bell.ring()

    def expire(self) -> None:
        """Forget what is older than a day, as Telegram does."""
        while self.entries and self.entries[0].born < self.clock() - DAY:
            self.expired.append(self.entries[0].update)
            self._remove(self.entries[0])

    def ready(self, limit: int) -> list[Entry]:
        """The next ones that can be given now."""
        self.expire()
        now, found = self.clock(), []
        for entry in self.entries:
            if entry.ready_at <= now:
                found.append(entry)
                if len(found) == limit:
                    break
        return found

    def give(self, limit: int) -> list[Json]:
        """The next updates for a reply; `arrived` says that the reply was not cut."""
        self._given = self.ready(limit)
        return [entry.update for entry in self._given]

    def arrived(self) -> None:
        """What was given last has reached the bot."""
        for entry in self._given:
            entry.given += 1
        self._given = []

    def nothing_arrived(self) -> None:
        """Nobody knows what the bot has read before its connection broke: strays count as not given."""
        for entry in self._strays:
            entry.given = 0

    def next_ready_in(self) -> float | None:
        """Seconds until the first of those held back can be given; nothing if nothing is owed."""
        if not self.entries:
            return None
        return max(0.0, min(entry.ready_at for entry in self.entries) - self.clock())


def chat_of(update: Mapping[str, object]) -> object:
    """What decides whether two updates of a webhook are sent one after the other: the chat (of a business
    connection), else the user, else the kind of update."""
    kind, payload = next(((k, v) for k, v in update.items() if k != "update_id"), ("", None))
    if not isinstance(payload, dict):
        return kind
    holder = payload if "chat" in payload else payload.get("message")
    if isinstance(holder, dict) and isinstance(holder.get("chat"), dict):
        return holder.get("business_connection_id"), holder["chat"].get("id")
    person = payload.get("from", payload.get("user"))
    return ("user", person.get("id")) if isinstance(person, dict) else kind


@dataclass(frozen=True, slots=True)
class Attempt:
    """One try to hand an update to the webhook; the status is 0 when no answer came."""

    update_id: int
    status: int
    error: str = ""


@dataclass(slots=True)
class WebhookSettings:
    """What setWebhook said."""

    url: str = ""
    secret: str | None = field(default=None, repr=False)
    max_connections: int = 40


class Webhook:
    """Posts updates to the bot's address. `on_answer` gets the body of every accepted reply, which may hold a
    Bot API call; `lose` is asked after each reply whether to pretend that it never came."""

    def __init__(self, updates: Updates, clock: Clock, sleep: Sleep) -> None:
        self.updates = updates
        self.clock = clock
        self.sleep = sleep
        self.settings = WebhookSettings()
        self.backoff: Callable[[int], float] = lambda attempt: min(0.05 * 2 ** (attempt - 1), 5.0)
        self.timeout = 60.0
        self.attempts: list[Attempt] = []
        self.last_error: tuple[int, str] | None = None
        self.on_answer: Callable[[Response], None] = lambda response: None
        self.lose: Callable[[], bool] = lambda: False
        self._lines: dict[object, list[Entry]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._slots = asyncio.Semaphore(40)

    async def start(self, settings: WebhookSettings) -> None:
        """Deliver to this address from now on, beginning with what is owed already."""
        if settings == self.settings:
            return
        await self.stop()
        self.settings = settings
        self._slots = asyncio.Semaphore(settings.max_connections)
        self.last_error = None
        self.updates.expire()
        for entry in self.updates.entries:
            self._take(entry)
        self.updates.on_add = self._take

    async def stop(self) -> None:
        """Deliver nothing more. What was not accepted is still owed."""
        self.updates.on_add = None
        self.settings = WebhookSettings()
        tasks = [task for task in self._tasks if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._lines.clear()

    def _take(self, entry: Entry) -> None:
        lane = chat_of(entry.update)
        if lane in self._lines:
            insort(self._lines[lane], entry, key=_place)
            return
        self._lines[lane] = [entry]
        task = asyncio.get_running_loop().create_task(self._run(lane))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self, lane: object) -> None:
        line = self._lines[lane]
        while line:
            now = self.clock()
            entry = next((e for e in line if e.ready_at <= now), None)
            if entry is None:
                wait = min(e.ready_at for e in line) - now
                await first_of(self.updates.bell.wait(), self.sleep(wait))
                continue
            await self._deliver(entry)
            line.remove(entry)
            self.updates.done(entry)
        del self._lines[lane]

    async def _deliver(self, entry: Entry) -> None:
        attempt = 0
        while not await self._try(entry):
            attempt += 1
            await self.sleep(self.backoff(attempt))

    async def _try(self, entry: Entry) -> bool:
        error, response = "", Response(status=0)
        async with self._slots:
            entry.given += 1
            try:
                response = await self._post(entry)
            except (OSError, TimeoutError, BadRequest) as failure:
                error = str(failure) or type(failure).__name__
        lost = bool(response.status) and self.lose()
        accepted = 200 <= response.status < 300 and not lost
        if not accepted:
            error = error or (
                "the reply was lost" if lost else f"Wrong response from the webhook: {response.status}"
            )
            self.last_error = (int(self.clock()), error)
        self.attempts.append(Attempt(entry.update_id, response.status, error))
        if accepted:
            self.on_answer(response)
        return accepted

    async def _post(self, entry: Entry) -> Response:
        headers = {"Content-Type": "application/json", "Accept-Encoding": "identity"}
        if self.settings.secret is not None:
            headers[SECRET_HEADER] = self.settings.secret
        body = json.dumps(entry.update).encode()
        return await fetch(self.settings.url, method="POST", body=body, headers=headers, timeout=self.timeout)
