"""Wrong variants of the protocol: a run on one must find a violation, or the harness is broken."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final
from unittest import mock

from msgspec.structs import replace

from hitherto import protocol, quick
from hitherto.document import Claim, Document, Entry


def no_epoch_check() -> None:
    """Whoever comes to commit may, as long as somebody holds the conversation."""

    def held(document: Document, claim: Claim) -> list[Entry] | None:
        return [entry for entry in document.inbox if entry.seq in claim.seqs]

    _patch(protocol, "_held", held)
    _patch(quick, "settle", protocol.settle)


def seen_before_inbox() -> None:
    """The id is marked when the event comes, and nothing is kept until it is handled."""
    honest = protocol.accept

    def accept(document: Document, now: float, op: str | None, event: Any, *rest: Any) -> Any:
        after, answer = honest(document, now, op, event, *rest)
        if answer.status == "queued":
            inbox = tuple([entry for entry in after.inbox if entry.seq != answer.seq])
            seen = protocol.marked(after.seen, (event.id,), now, rest[-1])
            after = replace(after, inbox=inbox, seen=seen)
        return after, answer

    _patch(protocol, "accept", accept)
    _patch(quick, "accept", accept)


def nothing_is_seen() -> None:
    """Handled ids are forgotten at once."""
    _patch(protocol, "marked", lambda seen, ids, now, terms: {})


def _patch(module: Any, name: str, spoiled: Any) -> None:
    mock.patch.object(module, name, spoiled).start()


SPOILERS: Final[dict[str, Callable[[], None]]] = {
    "no-epoch-check": no_epoch_check,
    "seen-before-inbox": seen_before_inbox,
    "nothing-is-seen": nothing_is_seen,
}
