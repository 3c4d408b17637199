"""Who writes to the playground's bot: people with their chats, and the platform that carries what they write.

The platform is like a real one: it delivers a message until the worker has answered for it, again and with
the same id after a crash or a refusal.  That it may do so is what the library is for.
"""

from __future__ import annotations

import time
import uuid
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec

from hitherto.demo.worker import ATTEMPTS, Settings

NAMES: Final = ("Ann", "Ben", "Cleo", "Dan", "Eve", "Finn", "Gia", "Hugo", "Ida", "Jon")
_KEPT: Final = 200
_LOGGED: Final = 80
# what a message has come to; it never goes back from a later one to an earlier one
_RANKS: Final = {"sending": 0, "busy": 0, "kept": 1, "failed": 2, "running": 2, "handled": 3, "folded": 3}
_LAST: Final = 4
_REFUSED: Final = ("busy", "full")


class Message(msgspec.Struct):
    """One bubble in a chat; ``delivered`` counts how often it was brought to the worker."""

    n: int
    id: str
    text: str
    mine: bool
    status: str = "sending"
    attempt: int = 0
    delivered: int = 0
    answered: bool = False
    at: float = 0.0


class Person:
    """One person: what they see of the chat, what they try out, and the way they went."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.settings = Settings()
        self.messages: deque[Message] = deque(maxlen=_KEPT)
        self.log: deque[dict[str, Any]] = deque(maxlen=_LOGGED)
        self.taken: tuple[str | None, str] | None = None
        self.watching = 0
        self.seen_at = time.monotonic()

    def message(self, event_id: str | None) -> Message | None:
        """The first message with this id: a copy of it has a fate of its own."""
        return next((one for one in self.messages if one.mine and one.id == event_id), None)

    def note(self, kind: str, says: str, event_id: str | None = None) -> None:
        """Write down what happened."""
        number = self.log[-1]["n"] + 1 if self.log else 1
        text = getattr(self.message(event_id), "text", "")
        self.log.append({"n": number, "at": time.time(), "kind": kind, "says": says, "text": text})


class People:
    """All chats; *deliver* brings a command to the worker and says whether there was one."""

    def __init__(self, deliver: Callable[[dict[str, Any]], bool]) -> None:
        self._deliver = deliver
        self._people: dict[str, Person] = {}
        self._count = 0

    def of(self, name: str) -> Person:
        """The person of this name, who is new otherwise."""
        return self._people.setdefault(name, Person(name))

    def __iter__(self) -> Iterator[Person]:
        return iter(tuple(self._people.values()))

    def free_name(self) -> str:
        """A name for a new tab: one that no tab shows, and none was given a moment ago."""
        now = time.monotonic()
        for name in (*NAMES, *(f"Guest {number}" for number in range(1, 1000))):
            person = self._people.get(name)
            if person is None or (not person.watching and now - person.seen_at > 30):
                self.of(name).seen_at = now
                return name
        return "Guest"

    # --------------------------------------------------------------------------------------- to the worker

    def say(self, name: str, text: str, *, event_id: str | None = None) -> Message:
        """Write a message; one with the id of another is the platform's second delivery of it."""
        person = self.of(name)
        self._count += 1
        message = Message(self._count, event_id or uuid.uuid4().hex[:12], text, True, at=time.time())
        person.messages.append(message)
        self._bring(person, message)
        return message

    def set(self, name: str, settings: Settings) -> None:
        """Let a person try something out."""
        self.of(name).settings = settings
        self._deliver(_settings_of(self.of(name)))

    def worker_is_up(self) -> None:
        """Tell a new worker what it has to know, and bring again what the last one did not answer for."""
        for person in self._people.values():
            self._deliver(_settings_of(person))
            for message in person.messages:
                if message.mine and not message.answered:
                    self._bring(person, message)

    def bring_again(self, name: str, n: int) -> None:
        """Deliver a message that was refused as busy."""
        person = self.of(name)
        for message in person.messages:
            if message.n == n and not message.answered:
                self._bring(person, message)

    def mend(self, name: str, seq: int, event_id: str | None, verb: str) -> bool:
        """Put a dead letter back in line, or drop it; whether there was a worker to do it."""
        message = self.of(name).message(event_id)
        if message is not None and verb == "retry":
            message.status = "kept"
        self.of(name).note(verb, "put back in line" if verb == "retry" else "dropped for good", event_id)
        return self._deliver({"do": verb, "who": name, "seq": seq})

    def _bring(self, person: Person, message: Message) -> None:
        event = {"id": message.id, "who": person.name, "text": message.text}
        if self._deliver({"do": "accept", "n": message.n, "event": event}):
            message.delivered += 1

    # -------------------------------------------------------------------------------------- from the worker

    def outcome(self, told: dict[str, Any]) -> tuple[Person, Message] | None:
        """What became of a delivery; who it was, when it has to be brought again."""
        found = [
            (person, one) for person in self._people.values() for one in person.messages if one.n == told["n"]
        ]
        if not found:
            return None
        (person, message), status = found[0], told["status"]
        if status in _REFUSED:
            _become(message, "busy")
            person.note("busy", "refused as busy: the platform brings it again", message.id)
            return person, message
        message.answered = True
        if status == "duplicate" and person.message(message.id) is message:
            _become(message, "kept")  # it was accepted, and the worker died before it could say so
        elif status in ("duplicate", "dropped", "failed"):
            message.status = status
            person.note(status, _OUTCOMES[status], message.id)
        else:
            _become(message, "kept")
        return None

    def said(self, told: dict[str, Any]) -> None:
        """The bot spoke."""
        person = self.of(told["who"])
        for line in told["lines"]:
            self._count += 1
            person.messages.append(Message(self._count, "", line, False, "", at=time.time()))

    def step(self, told: dict[str, Any]) -> None:
        """The keeper did something."""
        person, kind = self.of(told["who"]), told["kind"]
        if kind == "committed":
            if told.get("moved") and told["state"] is not None:
                person.taken = (told.get("from"), told["state"])
            for event_id in told.get("folded", ()):
                _become(person.message(event_id), "folded")
        status = _STATUSES.get("dead" if told["detail"] == "dead" else kind)
        message = person.message(told["id"])
        if status is not None and message is not None:
            _become(message, "replaced" if told["detail"] == "superseded" else status)
            message.attempt = told["attempt"] or message.attempt
        says = _STEPS.get(kind)
        if says is not None:
            person.note(kind, says.format(**told, most=ATTEMPTS), told["id"])

    def worker_died(self) -> None:
        """Every chat shows it."""
        for person in self._people.values():
            person.note("plug", "the worker was killed")
            for message in person.messages:
                if message.status == "running":
                    message.status = "failed"


_STATUSES: Final = {
    "started": "running", "committed": "handled", "failed": "failed", "dead": "dead", "dropped": "dropped",
    "fenced": "failed",
}  # fmt: skip
_STEPS: Final = {
    "started": "started, attempt {attempt}, epoch {epoch}",
    "committed": "committed under epoch {epoch}",
    "failed": "raised {detail}: nothing is committed (attempt {attempt} of {most})",
    "recovered": "taken over after a crash, epoch {epoch}",
    "fenced": "refused: epoch {epoch} is not the newest",
    "lost": "has lost its lease",
    "dead": "is a dead letter after {most} attempts",
    "dropped": "given up by the policy ({detail})",
}
_OUTCOMES: Final = {
    "duplicate": "came again with the same id: nothing happens",
    "dropped": "given up by the policy",
    "failed": "was not accepted",
}


def _become(message: Message | None, status: str) -> None:
    if message is not None and _RANKS.get(status, _LAST) >= _RANKS.get(message.status, _LAST):
        message.status = status


def _settings_of(person: Person) -> dict[str, Any]:
    return {"do": "settings", "who": person.name, "settings": msgspec.to_builtins(person.settings)}
