"""One conversation, piece by piece: its record, lease, inbox, dead letters, seen window and history as HTML.

Values of data, texts of events and errors are left out unless the view reveals them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from hitherto import maps
from hitherto.addresses import Key, key_text
from hitherto.codec import decode
from hitherto.document import Dead, Document, Entry
from hitherto.flows import Flow, FlowRegistry, spec
from hitherto.inspector.history import Moment
from hitherto.inspector.html import Child, Html, tag, text
from hitherto.protocol import depth, is_busy, live_record

EVERYTHING: Final = frozenset({"*"})
_SEEN: Final = 30
_SAYS: Final = {
    "started": "handler started", "committed": "committed", "failed": "handler raised",
    "fenced": "refused: fenced", "lost": "lost its lease", "recovered": "recovered from another worker",
    "dropped": "event given up", "dead": "became a dead letter", "released": "given back unrun",
}  # fmt: skip


def nowhere(page: str, /, **query: str) -> str | None:
    """No links, for whoever shows a conversation without the inspector's other pages."""
    return None


@dataclass(frozen=True)
class View:
    """How to show: at which time of the store, revealing what, with which links and actions."""

    now: float
    revealed: frozenset[str] = frozenset()
    link: Callable[..., str | None] = nowhere
    write: bool = False
    key: str = ""
    keep: Mapping[str, str] = field(default_factory=dict)

    def shows(self, what: str) -> bool:
        """Whether this was asked for."""
        return what in self.revealed or "*" in self.revealed

    def toggle(self, what: str, label: str) -> Html:
        """What asks for it, or hides it again."""
        if "*" in self.revealed:
            return Html("")
        wanted = self.revealed - {what} if self.shows(what) else self.revealed | {what}
        href = self.link("conversation", key=self.key, reveal=",".join(sorted(wanted)))
        verb = "Hide" if self.shows(what) else "Show"
        return tag("a", f"{verb} {label}", class_="button quiet reveal", href=href, data_reveal=what)

    def action(self, name: str, label: str, **query: str) -> Html:
        """A link to the page that asks whether to do it; nothing when nothing may be done."""
        if not self.write:
            return Html("")
        href = self.link(f"act/{name}", key=self.key, **query)
        kind = "danger" if name in ("clear", "release", "forget", "drop") else ""
        return tag("a", label, class_=f"button act {kind}".strip(), href=href)


# ------------------------------------------------------------------------------------------- small things


def card(name: str, title: str, *body: Child, beside: Child = None) -> Html:
    """A titled piece that is exchanged as a whole when it changes."""
    head = tag("div", tag("h2", title, id=f"{name}-title"), tag("div", beside, class_="row"), class_="head")
    return tag("section", head, body, class_=f"card {name}", aria_labelledby=f"{name}-title")


def when(at: float) -> Html:
    """A time; the page's script says how long ago it was."""
    try:
        moment = datetime.fromtimestamp(at, UTC)
    except (OverflowError, ValueError, OSError):
        return text("?")
    return tag("time", f"{moment:%Y-%m-%d %H:%M:%S} UTC", datetime=moment.isoformat(), data_at=f"{at:.3f}")


def table(heads: Sequence[str], rows: Sequence[Sequence[Child]], says: str) -> Html:
    """A table that is named for those who do not see it, and stacks on a narrow page."""
    top = tag("thead", tag("tr", [tag("th", head, scope="col") for head in heads]))
    body = [
        tag("tr", [tag("td", cell, data_label=head) for head, cell in zip(heads, row, strict=True)])
        for row in rows
    ]
    return tag("table", tag("caption", says, class_="unseen"), top, tag("tbody", body))


def none(says: str) -> Html:
    """Said where there is nothing."""
    return tag("p", says, class_="none")


def chip(says: Child, kind: str = "") -> Html:
    """A short word that stands out."""
    return tag("span", says, class_=f"chip {kind}".strip())


def name_of(value: str | None, nothing: str) -> Html:
    """A flow's or state's name, or that there is none."""
    return tag("em", nothing) if value is None else tag("bdi", value, class_="name")


def key_of(key: Key) -> Html:
    """A key as the command line takes it."""
    return tag("code", key_text(key), class_="key")


def pretty(value: Any) -> str:
    """A value as JSON for people."""
    return json.dumps(value, ensure_ascii=False, indent=2)


def facts(*pairs: tuple[str, Child]) -> Html:
    """Names and their values."""
    return tag("dl", [[tag("dt", name), tag("dd", value)] for name, value in pairs])


# ------------------------------------------------------------------------------------------------- pieces


def status(document: Document, now: float) -> Html:
    """What it is doing, in a word."""
    if not document.version:
        return chip("unknown")
    if is_busy(document, now):
        return chip("a turn runs", "busy")
    if document.lease is not None and document.inbox:
        return chip("left behind, to be recovered", "bad")
    if document.inbox:
        return chip("events wait", "busy")
    return chip("at rest", "good")


def map_of(
    flow: type[Flow],
    view: View,
    *,
    counts: Mapping[str, int] | None = None,
    here: str | None = None,
    taken: tuple[str | None, str] | None = None,
) -> Html:
    """The map of a flow, each state a link to its conversations."""
    name = spec(flow).name
    links = {state: view.link("conversations", flow=name, state=state) for state in spec(flow).states}
    targets = {state: href for state, href in links.items() if href is not None}
    drawn = maps.svg(spec(flow), here=here, taken=taken, counts=counts, links=targets)
    return tag("div", Html(drawn), class_="chart", tabindex="0", role="group", aria_label=f"Map of {name}")


def taken(moments: Sequence[Moment], flow: str | None, state: str | None) -> tuple[str | None, str] | None:
    """The edge that the newest committed turn took, if it was told."""
    done = [one.step for one in moments if one.step.kind == "committed"][:2]
    if len(done) < 2 or state is None or (done[0].flow, done[0].state) != (flow, state):
        return None
    if done[1].flow != flow:
        return None, state
    return None if done[1].state == state else (done[1].state, state)


def where(document: Document, flows: FlowRegistry, view: View, moments: Sequence[Moment] = ()) -> Html:
    """The map with the conversation's state lit, or why there is none."""
    record = live_record(document, view.now)
    flow = None if record is None else record.flow
    state = None if record is None else record.state
    known = next((one for one in flows if one.name == flow), None)
    if record is None:
        return card("where", "Where it is", none("No record: it is in no flow."))
    place = tag("p", name_of(flow, "in no flow"), text(" / "), name_of(state, "in no state"), class_="place")
    if known is None:
        hint = "" if flow is None else "This flow is not known here, so there is no map of it."
        return card("where", "Where it is", place, none(hint) if hint else None)
    drawn = map_of(known, view, here=state, taken=taken(moments, flow, state))
    stray = None
    if state is not None and state not in spec(known).states:
        stray = none("The flow has no such state now.")
    return card("where", "Where it is", drawn, place, stray)


def record(document: Document, view: View) -> Html:
    """Flow, state and data; the values only when they were asked for."""
    kept = live_record(document, view.now)
    acts = [view.action("edit", "Edit data"), view.action("move", "Move")]
    if kept is None:
        return card("record", "Record", none("There is none."), beside=acts)
    data = decode(kept.fields)
    shown = view.shows("data")
    rows = [(tag("bdi", name, class_="name"), _value(value, shown)) for name, value in data.items()]
    about = facts(
        ("Flow", name_of(kept.flow, "none")), ("State", name_of(kept.state, "none")),
        ("Version of the flow", kept.version), ("Last change", when(document.touched)),
        *([("Expires", when(kept.expires_at))] if kept.expires_at is not None else []),
    )  # fmt: skip
    body = table(("Data", "Value"), rows, "Data") if rows else none("No data.")
    reveal = view.toggle("data", "values") if rows else None
    return card("record", "Record", about, body, beside=[reveal, acts, view.action("clear", "Clear")])


def _value(value: Any, shown: bool) -> Html:
    if shown:
        return tag("pre", pretty(value))
    kinds = {"str": "text", "dict": "object", "list": "list", "bool": "yes or no", "NoneType": "nothing"}
    kind = kinds.get(type(value).__name__, "number")
    return tag("span", "•••••", tag("span", f" {kind}", class_="soft"), class_="masked")


def lease(document: Document, view: View) -> Html:
    """Who may commit, under which epoch, and since when."""
    held = document.lease
    epoch = ("Epoch", tag("span", document.epoch, class_="number"))
    lone = any(entry.lone_until is not None for entry in document.inbox)
    beside = view.action("release", "Force release") if held is not None or lone else None
    if held is None:
        return card("lease", "Lease", facts(epoch), none("Nobody holds it."), beside=beside)
    alive = held.deadline > view.now
    about = facts(
        epoch,
        ("Owner", tag("code", held.owner)),
        ("Runs out" if alive else "Ran out", when(held.deadline)),
        ("At work on an event accepted", working_since(document)),
    )
    word = chip("held", "busy") if alive else chip("dead: whoever sweeps takes it over", "bad")
    return card("lease", "Lease", tag("p", word), about, beside=beside)


def working_since(document: Document) -> Html:
    """Since when the events that run now have been here."""
    times = [entry.accepted_at for entry in document.inbox if entry.claimed]
    return when(min(times)) if times else tag("em", "no event")


def inbox(document: Document, view: View) -> Html:
    """Events accepted and not committed."""
    title = f"Inbox: {len(document.inbox)}" if document.inbox else "Inbox"
    if not document.inbox:
        return card("inbox", title, none("Nothing waits."))
    rows = [
        (
            tag("code", f"#{entry.seq}"), tag("bdi", entry.event_id or "no id"), _is(entry, view.now),
            when(entry.accepted_at), entry.attempts,
            _event(f"event-{entry.seq}", entry.payload, view),
        )
        for entry in document.inbox
    ]  # fmt: skip
    heads = ("Place", "Event", "Is", "Accepted", "Attempts", "Text")
    says = f"{depth(document)} of {len(document.inbox)} wait"
    return card("inbox", title, table(heads, rows, "Inbox"), tag("p", says, class_="soft"))


def _is(entry: Entry, now: float) -> Html:
    if entry.lone_until is not None:
        return chip("runs without a lease", "busy")
    if entry.claimed:
        return chip("runs", "busy")
    if entry.not_before > now:
        return tag("span", chip("waits for its retry"), text(" "), when(entry.not_before))
    return chip("waits")


def _event(name: str, payload: bytes, view: View) -> Html:
    """The text of an event, when it was asked for."""
    size = tag("span", f"{len(payload)} bytes ", class_="soft")
    if not view.shows(name):
        return tag("span", size, view.toggle(name, "text"))
    try:
        written = pretty(json.loads(payload))
    except ValueError:
        written = payload.decode("utf-8", "replace")
    return tag("div", size, view.toggle(name, "text"), tag("pre", written))


def dead(document: Document, view: View) -> Html:
    """Events that were given up, if there are any."""
    if not document.dead:
        return Html("")
    rows = [_letter(letter, view) for letter in document.dead]
    heads = ("Place", "Event", "Died", "Attempts", "Error", "Text", *(["Do"] if view.write else []))
    return card("dead", f"Dead letters: {len(rows)}", table(heads, rows, "Dead letters"))


def _letter(letter: Dead, view: View) -> tuple[Child, ...]:
    seq = str(letter.seq)
    error: Child = tag("code", last_line(letter.error))
    if view.shows(f"dead-{seq}"):
        error = tag("pre", letter.error)
    return (
        tag("code", f"#{seq}"), tag("bdi", letter.event_id or "no id"), when(letter.died_at),
        letter.attempts, error, _event(f"dead-{seq}", letter.payload, view),
        *([letter_acts(letter, view)] if view.write else []),
    )  # fmt: skip


def letter_acts(letter: Dead, view: View) -> Html:
    """What can be done with a dead letter."""
    seq = str(letter.seq)
    return tag(
        "div", view.action("retry", "Retry", seq=seq), view.action("drop", "Drop", seq=seq), class_="row"
    )


def seen(document: Document, view: View) -> Html:
    """The window of event ids already handled, the newest first."""
    newest = list(document.seen.items())[: -_SEEN - 1 : -1]
    if not newest:
        return card("seen", "Seen", none("No event was handled yet."))
    rows = [(tag("bdi", event_id), when(at)) for event_id, at in newest]
    more = f"the newest {len(rows)} of {len(document.seen)}" if len(document.seen) > len(rows) else None
    beside = tag("span", more, class_="soft") if more else None
    title = f"Seen: {len(document.seen)}"
    return card("seen", title, table(("Event", "Handled"), rows, "Seen"), beside=beside)


def history(moments: Sequence[Moment] | None) -> Html:
    """What its turns did lately."""
    title = "Turns lately"
    if moments is None:
        why = (
            "Not known here: turns are told by a keeper in this process. Mount the inspector in your bot's "
            "own application to see them; the seen window says what was handled, and when."
        )
        return card("history", title, none(why))
    if not moments:
        return card("history", title, none("None since this process started."))
    return card("history", title, tag("ol", [_moment(one) for one in moments], class_="moments"))


def _moment(moment: Moment) -> Html:
    return tag("li", when(moment.at), text(" "), happened(moment))


def happened(moment: Moment) -> Html:
    """One step in words."""
    step = moment.step
    kind = "bad" if step.kind in ("failed", "fenced", "lost", "dead", "dropped") else ""
    more = [f"epoch {step.epoch}"] if step.epoch else []
    more += [f"attempt {step.attempt}"] if step.attempt > 1 else []
    more += [f"{step.seconds * 1000:.0f} ms"] if step.seconds else []
    more += [step.detail] if step.detail and step.kind in ("failed", "dropped") else []
    event = tag("bdi", step.event_id) if step.event_id else None
    place = tag("span", " → ", tag("bdi", step.state)) if step.state and step.kind == "committed" else None
    says = tag("span", ", ".join(more), class_="soft")
    word = chip(_SAYS.get(step.kind, step.kind), kind or ("good" if step.kind == "committed" else ""))
    return tag("span", word, text(" "), event, place, text(" "), says)


def last_line(error: str) -> str:
    """The error itself, without the lines that lead to it."""
    return (error.splitlines() or ["?"])[-1][:200]
