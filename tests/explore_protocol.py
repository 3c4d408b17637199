"""Complete exploration of the pure protocol: every interleaving of a small world, checked state by state.

The world is one conversation, a few events and a few workers. A worker without a turn may deliver an event (a
new one, or one again that was accepted before) or sweep; one with a turn may commit it, renew its lease, give
it back, fail, lose the reply to its commit, or die. A lease may run out under a living worker, and it may be
forced. Handlers append the id of their event to a log that is the record's only field, so that the state is
the history. Running the handler is no step of its own: it sees only its grant, so it commutes with them.

States that differ in nothing that matters are one state: which worker holds a turn, the names of events not
accepted yet, the numbers of epochs and versions (only their order counts), how often an entry was tried.

``python -m tests.explore_protocol`` prints the number of states and transitions of each world.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from hitherto import protocol
from hitherto.overlap import Burst, Policy, Queue, Reject
from hitherto.protocol import Claim, Document, Event, Grant, Lease, Terms
from hitherto.records import Patch

NOW, BASE = 0.0, 10
OVER, LATER = -1.0, 5.0
NAMES = "abcdefgh"
OP = "the one request whose reply is lost"
PROGRESS = frozenset({"commit", "take over", "dead lease ends", "retry comes", "ask again"})
_pack = msgspec.msgpack.Encoder().encode


class Budget(NamedTuple):
    """How often each misfortune may happen."""

    crashes: int = 2
    expiries: int = 2
    releases: int = 0
    forced: int = 0
    failures: int = 0
    lost_replies: int = 0


class Setting(NamedTuple):
    """One world to explore."""

    workers: int = 3
    events: int = 3
    budget: Budget = Budget()
    policy: Policy = Queue()
    terms: Terms = Terms(max_attempts=1_000_000)


class Sent(NamedTuple):
    """A request whose reply was lost: the worker will ask again under the same operation id."""

    kind: str
    event: str
    status: str
    handed: tuple[int, ...] | None


class Hand(NamedTuple):
    """A worker with a turn: what it shows to commit, the log it started from and the events it appends.

    ``rank`` orders the leases by the time they were taken; ``outdone`` says that a later one has committed.
    """

    epoch: int
    seqs: tuple[int, ...]
    lone: bool
    base: str
    events: str
    rank: int
    worker: int = 0
    outdone: bool = False
    sent: Sent | None = None

    @property
    def claim(self) -> Claim:
        return Claim(self.epoch, self.seqs, self.lone, 1 if self.lone else 0)

    @property
    def patch(self) -> Patch:
        return Patch(set={"log": b'"' + (self.base + self.events).encode() + b'"'})


class World(NamedTuple):
    document: Document
    hands: tuple[Hand, ...]
    accepted: int
    budget: Budget


class Violation(AssertionError):
    """The promise was broken; the message has the shortest way there."""


class Report(NamedTuple):
    """What a search saw; ``reduced`` counts states that differ in something that matters."""

    states: int
    reduced: int
    transitions: int
    at_rest: int
    seconds: float

    def __str__(self) -> str:
        reduced = "" if self.reduced == self.states else f" ({self.reduced} really different ones)"
        return (
            f"{self.states} states{reduced}, {self.transitions} transitions, {self.at_rest} states at rest, "
            f"{self.seconds:.1f} s"
        )


def log_of(document: Document) -> str:
    return "" if document.record is None else document.record.fields["log"][1:-1].decode()


class Explorer:
    """Breadth first through every reachable state; the first broken promise ends it with its history."""

    def __init__(self, setting: Setting, canonical: bool = True) -> None:
        self.setting = setting
        self.terms = setting.terms
        self.canonical = canonical
        self.in_order = setting.terms.retry_in_order or not setting.budget.failures
        self._broken = ""

    # --------------------------------------------------------------------------------------------- the search

    def run(self, limit: int = 3_000_000) -> Report:
        began = time.perf_counter()
        start = self._same(World(protocol.EMPTY, (), 0, self.setting.budget))
        numbers = {self._key(start): 0}
        reduced = {self._key(self._same(start, canonical=True))}
        came: list[tuple[int, str]] = [(-1, "start")]
        before: list[list[int]] = [[]]
        rest, transitions = [0], 0
        todo = deque([start])
        here = -1
        while todo:
            world = todo.popleft()
            here += 1
            for name, raw in self._steps(world):
                transitions += 1
                after = self._same(raw)
                key = self._key(after)
                number = numbers.get(key)
                if number is None:
                    number = numbers[key] = len(came)
                    assert number < limit, f"more than {limit} states"
                    came.append((here, name))
                    before.append([])
                    todo.append(after)
                    if not self.canonical:
                        reduced.add(self._key(self._same(after, canonical=True)))
                    if self._is_at_rest(after):
                        rest.append(number)
                if wrong := self._broken or self._wrong(after):
                    raise Violation(f"{wrong}: {_history(came, here)} -> {name}")
                if name.split(":")[0] in PROGRESS:
                    before[number].append(here)
        self._all_come_to_rest(before, rest, came)
        different = len(came) if self.canonical else len(reduced)
        return Report(len(came), different, transitions, len(rest), time.perf_counter() - began)

    def _key(self, world: World) -> tuple[bytes, tuple[Hand, ...], int, Budget]:
        return _pack(world.document), world.hands, world.accepted, world.budget

    def _all_come_to_rest(
        self, before: list[list[int]], rest: list[int], came: list[tuple[int, str]]
    ) -> None:
        """Under fairness everything drains: from every state, the workers alone lead to rest."""
        good, todo = set(rest), list(rest)
        while todo:
            for earlier in before[todo.pop()]:
                if earlier not in good:
                    good.add(earlier)
                    todo.append(earlier)
        if len(good) < len(came):
            stuck = next(number for number in range(len(came)) if number not in good)
            raise Violation(f"never drained: {_history(came, stuck)}")

    # ------------------------------------------------------------------------------------------- the promise

    def _wrong(self, world: World) -> str:
        """What is broken in this state, or nothing."""
        document, log = world.document, log_of(world.document)
        accepted = NAMES[: world.accepted]
        kept = [entry.event_id or "" for entry in document.inbox]
        if len(set(log)) < len(log):
            return f"double effect {log}"
        if self.in_order and log != accepted[: len(log)]:
            return f"out of order {log}, accepted {accepted}"
        for event in accepted:
            if event not in log and event not in kept:
                return f"lost {event}"
            if event in log and event in kept:
                return f"committed and still kept {event}"
        return ""

    def _is_at_rest(self, world: World) -> bool:
        document = world.document
        done = "".join(sorted(log_of(document))) == NAMES[: world.accepted]
        return done and not (document.inbox or document.lease or world.hands)

    # --------------------------------------------------------------------------------------------- the steps

    def _steps(self, world: World) -> Iterator[tuple[str, World]]:
        busy = {hand.worker for hand in world.hands}
        idle = [worker for worker in range(self.setting.workers) if worker not in busy]
        for worker in idle[:1] if self.canonical else idle:
            yield from self._idle_steps(world, worker)
        for place, hand in enumerate(world.hands):
            others = (*world.hands[:place], *world.hands[place + 1 :])
            if hand.sent is None:
                yield from self._turn_steps(world, hand, others)
            else:
                yield "ask again", self._asked_again(world, hand, others)
            if world.budget.crashes:
                yield "crash", World(world.document, others, world.accepted, _less(world, "crashes"))
        yield from self._lease_steps(world)

    def _idle_steps(self, world: World, worker: int) -> Iterator[tuple[str, World]]:
        for number in range(min(world.accepted + 1, self.setting.events)):
            yield from self._deliveries(world, number, worker)
        document, answer = protocol.take_over(world.document, NOW, None, "w", self.terms)
        if document is not world.document:
            hands = self._with(world.hands, answer.grant, worker)
            yield "take over", World(document, hands, world.accepted, world.budget)

    def _deliveries(self, world: World, number: int, worker: int) -> Iterator[tuple[str, World]]:
        event, again = Event(NAMES[number], b""), number < world.accepted
        name = f"{'redeliver' if again else 'deliver'}:{event.id}"
        for lost in (False, True) if world.budget.lost_replies else (False,):
            op = OP if lost else None
            document, answer = protocol.accept(
                world.document, NOW, op, event, self.setting.policy, "w", self.terms
            )
            if document is world.document:
                continue
            if again and answer.status in ("queued", "debounced"):
                self._broken = f"accepted {event.id} twice"
            count = max(world.accepted, number + 1)
            if not lost:
                hands = self._with(world.hands, answer.grant, worker)
                yield name, World(document, hands, count, world.budget)
                continue
            sent = Sent("accept", event.id or "", answer.status, _handed(answer.grant))
            epoch = document.epoch if answer.grant else -1
            hand = Hand(epoch, (), False, "", "", len(world.hands), worker, sent=sent)
            yield (
                f"{name}, reply lost",
                World(document, (*world.hands, hand), count, _less(world, "lost_replies")),
            )

    def _turn_steps(self, world: World, hand: Hand, others: tuple[Hand, ...]) -> Iterator[tuple[str, World]]:
        yield f"commit:{hand.events}", self._committed(world, hand, others)
        budget = world.budget
        lease = world.document.lease
        if lease is not None and lease.deadline <= NOW:
            document, good = protocol.renew(world.document, NOW, hand.claim, self.terms)
            if good:
                yield "renew", World(document, world.hands, world.accepted, budget)
        if budget.releases:
            document, _ = protocol.release(world.document, NOW, None, hand.claim, self.terms)
            yield "give back", World(document, others, world.accepted, _less(world, "releases"))
        if budget.failures:
            document, answer = protocol.settle(
                world.document, NOW, None, hand.claim, self.terms, verdict="retry", not_before=LATER
            )
            hands = self._with(others, answer.grant, hand.worker, hand.rank)
            yield f"fail:{hand.events}", World(document, hands, world.accepted, _less(world, "failures"))
        if budget.lost_replies:
            document, answer = self._settle(world, hand, OP)
            sent = Sent("settle", "", answer.status, _handed(answer.grant))
            waiting = self._outdo(others, hand, answer.status)
            hands = (*waiting, hand._replace(sent=sent))
            name = f"commit:{hand.events}, reply lost"
            yield name, World(document, hands, world.accepted, _less(world, "lost_replies"))

    def _lease_steps(self, world: World) -> Iterator[tuple[str, World]]:
        document, budget = world.document, world.budget
        if document.lease is not None and document.lease.deadline > NOW:
            held = any(hand.epoch == document.epoch for hand in world.hands)
            over = replace(document, lease=Lease(document.lease.owner, OVER))
            if not held:
                yield "dead lease ends", World(over, world.hands, world.accepted, budget)
            elif budget.expiries:
                yield "lease ends", World(over, world.hands, world.accepted, _less(world, "expiries"))
        if any(entry.not_before > NOW for entry in document.inbox):
            inbox = tuple([replace(entry, not_before=NOW) for entry in document.inbox])
            yield "retry comes", World(replace(document, inbox=inbox), world.hands, world.accepted, budget)
        if budget.forced:
            freed, _ = protocol.force_release(document, NOW, None, self.terms)
            if freed is not document:
                yield "force release", World(freed, world.hands, world.accepted, _less(world, "forced"))

    def _committed(self, world: World, hand: Hand, others: tuple[Hand, ...]) -> World:
        document, answer = self._settle(world, hand, None)
        hands = self._with(self._outdo(others, hand, answer.status), answer.grant, hand.worker, hand.rank)
        return World(document, hands, world.accepted, world.budget)

    def _settle(self, world: World, hand: Hand, op: str | None) -> protocol.Step:
        return protocol.settle(world.document, NOW, op, hand.claim, self.terms, patch=hand.patch)

    def _outdo(self, others: tuple[Hand, ...], hand: Hand, status: str) -> tuple[Hand, ...]:
        """Note a commit: nobody with an earlier lease may commit after it."""
        if status != "committed":
            return others
        if hand.outdone:
            self._broken = f"a commit of {hand.events} by a lease older than one that has committed"
        return tuple([one._replace(outdone=True) if one.rank < hand.rank else one for one in others])

    def _asked_again(self, world: World, hand: Hand, others: tuple[Hand, ...]) -> World:
        """Repeat a request under its operation id: the answer is the first one's, whatever happened since."""
        sent = hand.sent
        assert sent is not None
        if sent.kind == "settle":
            document, answer = self._settle(world, hand, OP)
        else:
            event = Event(sent.event, b"")
            policy = self.setting.policy
            document, answer = protocol.accept(world.document, NOW, OP, event, policy, "w", self.terms)
        if answer.status != sent.status:
            self._broken = f"{sent.kind} answered {sent.status} first and {answer.status} when repeated"
        handed = _handed(answer.grant)
        if handed not in (sent.handed, ()):
            self._broken = f"{sent.kind} granted {sent.handed} first and {handed} when repeated"
        hands = self._with(others, answer.grant, hand.worker, hand.rank)
        return World(document, hands, world.accepted, world.budget)

    def _with(
        self, hands: tuple[Hand, ...], grant: Grant | None, worker: int, rank: int | None = None
    ) -> tuple[Hand, ...]:
        """The hands and one more; a grant handed on keeps the rank of the lease it goes on with."""
        if grant is None:
            return hands
        if rank is None:
            rank = max([hand.rank for hand in hands], default=-1) + 1
        base = "" if grant.record is None else grant.record.fields["log"][1:-1].decode()
        events = "".join([entry.event_id or "" for entry in grant.entries])
        claim = grant.claim
        return (*hands, Hand(claim.epoch, claim.seqs, claim.lone, base, events, rank, worker))

    # ------------------------------------------------------------------------------------- what is the same

    def _same(self, world: World, canonical: bool | None = None) -> World:
        """The world with everything that makes no difference set to one value."""
        canonical = self.canonical if canonical is None else canonical
        document, hands = world.document, world.hands
        inbox = document.inbox
        if any(entry.attempts > 1 for entry in inbox):
            inbox = tuple([replace(e, attempts=1) if e.attempts > 1 else e for e in inbox])
        shift = document.epoch - BASE if canonical else 0
        ranks = {rank: place for place, rank in enumerate(sorted({hand.rank for hand in hands}))}
        if hands:
            plain = sorted([_plain(hand, shift, ranks, canonical) for hand in hands], key=_by_rank)
            hands = tuple(
                [hand._replace(worker=place) for place, hand in enumerate(plain)] if canonical else plain
            )
        ops = tuple([replace(op, epoch=_shifted(op.epoch, shift)) for op in document.ops])
        epoch = document.epoch - shift
        document = replace(document, version=0, touched=0.0, epoch=epoch, inbox=inbox, ops=ops)
        return World(document, hands, world.accepted, world.budget)


def _shifted(epoch: int, shift: int) -> int:
    """An operation's epoch beside the document's: all that are over are one, 0 and -1 are none."""
    return epoch if epoch <= 0 or not shift else max(epoch - shift, BASE - 1)


def _by_rank(hand: Hand) -> tuple[object, ...]:
    return hand.rank, hand.events, hand.seqs, repr(hand.sent)


def _plain(hand: Hand, shift: int, ranks: dict[int, int], canonical: bool) -> Hand:
    epoch = hand.epoch - shift
    if canonical and epoch < BASE:
        epoch = BASE - 1
    return hand._replace(epoch=epoch, rank=ranks[hand.rank])


def _handed(grant: Grant | None) -> tuple[int, ...] | None:
    return None if grant is None else grant.claim.seqs


def _less(world: World, name: str) -> Budget:
    return world.budget._replace(**{name: getattr(world.budget, name) - 1})


def _history(came: list[tuple[int, str]], number: int) -> str:
    names: list[str] = []
    while number >= 0:
        number, name = came[number]
        names.append(name)
    return " -> ".join(reversed(names))


LARGE = {
    "every misfortune, queued": Setting(budget=Budget(2, 2, 1, 1, 1, 1)),
    "every misfortune, rejected": Setting(budget=Budget(2, 2, 1, 1, 1, 1), policy=Reject()),
    "every misfortune, in bursts": Setting(budget=Budget(2, 2, 1, 1, 1, 1), policy=Burst(0)),
    "four workers, four events": Setting(4, 4, Budget(3, 3, 1, 1)),
}


if __name__ == "__main__":
    for name, setting in LARGE.items():
        print(f"{name}: {Explorer(setting).run()}", flush=True)
