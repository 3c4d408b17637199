"""Whole pages: the frame around every one, and lists of conversations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from hitherto import __version__
from hitherto.addresses import decode, key_text
from hitherto.flows import spec
from hitherto.inspector import parts
from hitherto.inspector.html import Child, Html, tag, text
from hitherto.inspector.looking import PAGE, Counts, Health, Looker, Seen, Tally, unknown_flows
from hitherto.inspector.parts import View, card, chip, name_of, none, table, when
from hitherto.protocol import depth
from hitherto.stores.base import Listed

NAV: Final = (
    ("", "Overview"),
    ("conversations", "Conversations"),
    ("queues", "Queues"),
    ("leases", "Leases"),
    ("dead", "Dead letters"),
    ("health", "Health"),
)
DONE: Final = {
    "edit": "The data was changed.",
    "move": "It was moved.",
    "clear": "The record was removed.",
    "release": "It was released: whoever held it can commit nothing more.",
    "retry": "The event is in line again.",
    "drop": "The dead letter was dropped.",
    "forget": "Everything about it was erased.",
    "nothing": "There was nothing to do.",
}

Pieces = Mapping[str, Html]


def frame(
    view: View,
    *,
    title: str,
    at: str,
    bot: str,
    head: Child,
    pieces: Pieces,
    said: str = "",
    live: bool = True,
) -> Html:
    """A page: its navigation, its head, and the pieces that stay up to date."""
    body = [tag("div", piece, id=f"part-{name}", data_part=name) for name, piece in pieces.items()]
    note = tag("p", DONE.get(said, ""), class_="said", role="status") if said in DONE else None
    main = tag("main", head, note, tag("div", body, class_="pieces"), id="main", tabindex="-1")
    return document(view, title, banner(view, at, bot), main, live=live)


def document(view: View, title: str, *body: Child, live: bool = False) -> Html:
    """The HTML around it."""
    static = view.link("static") or ""
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", f"{title} · hitherto"),
        tag("link", rel="icon", href=f"{static}/icon.svg", type="image/svg+xml"),
        tag("link", rel="stylesheet", href=f"{static}/map.css"),
        tag("link", rel="stylesheet", href=f"{static}/inspector.css"),
        tag("script", type="module", src=f"{static}/inspector.js"),
    )
    skip = tag("a", "Skip to the content", href="#main", class_="skip")
    foot = tag("footer", f"hitherto {__version__}", tag("span", id="live", role="status", class_="soft"))
    attributes: dict[str, str | None] = {"data_now": f"{view.now:.3f}", "data_live": "" if live else None}
    whole = tag("html", head, tag("body", skip, *body, foot, **attributes), lang="en")
    return Html(f"<!doctype html>\n{whole}")


def banner(view: View, at: str, bot: str) -> Html:
    """The head of every page: where one is, and where one can go."""
    pages = [*NAV, *([("person", "Forget a person")] if view.write else [])]
    links = [
        tag("a", label, href=view.link(page), aria_current="page" if page == at else None)
        for page, label in pages
    ]
    mode = chip("may write", "warn") if view.write else chip("read only")
    name = tag("a", tag("strong", "hitherto"), text(" "), tag("bdi", bot), href=view.link(""), class_="home")
    return tag(
        "header", tag("div", name, mode, _search(view), class_="bar"), tag("nav", links, aria_label="Pages")
    )


def _search(view: View) -> Html:
    hidden = [tag("input", type="hidden", name=name, value=value) for name, value in view.keep.items()]
    field = tag(
        "input", type="search", name="key", id="key", placeholder="7/7 or .room/7", autocomplete="off",
        spellcheck="false", value=view.key or None, required=True,
    )  # fmt: skip
    label = tag("label", "Conversation", for_="key")
    button = tag("button", "Find")
    action = view.link("conversation", bare="1")
    return tag("form", hidden, label, field, button, role="search", action=action, class_="search")


# ------------------------------------------------------------------------------------------------ overview


def overview(looker: Looker, view: View, counts: Counts | None, tallies: Mapping[str, Tally]) -> Pieces:
    """Every flow's map with how many are where, and what needs a look."""
    charts = [_chart(looker, view, counts, flow) for flow in looker.flows]
    return {
        "tiles": _tiles(looker, view, counts, tallies),
        "maps": tag("div", charts, _elsewhere(looker, view, counts), class_="charts"),
        "lately": _lately(looker, view),
    }


def _tiles(looker: Looker, view: View, counts: Counts | None, tallies: Mapping[str, Tally]) -> Html:
    told = None if looker.keeper is None else looker.keeper.counts
    none_here = "no keeper runs in this process"
    total = "…" if counts is None else f"{counts.total:,}".replace(",", "\u202f")
    tiles = [
        _tile(
            "Conversations",
            Html(total),
            "counting" if counts is None else "with a record",
            view.link("conversations"),
        ),
        _tile("Waiting", str(tallies["pending"]), "with events in line", view.link("queues")),
        _tile("Leases", str(tallies["lease"]), "held, or left behind", view.link("leases")),
        _tile("Dead letters", str(tallies["dead"]), "with events given up", view.link("dead"), alarm=True),
        _tile(
            "Recovered",
            "–" if told is None else told.get("recovered", 0),
            none_here if told is None else "taken over",
        ),
        _tile(
            "Fenced",
            "–" if told is None else told.get("fenced", 0),
            none_here if told is None else "late commits refused",
        ),
    ]
    return tag("ul", tiles, class_="tiles")


def _tile(label: str, value: Child, says: str, href: str | None = None, alarm: bool = False) -> Html:
    number = str(value)
    inner = [
        tag("span", label, class_="label"),
        tag("span", value if isinstance(value, Html) else number, class_="value"),
        tag("span", says, class_="soft"),
    ]
    kind = "tile alarm" if alarm and number not in ("0", "–") else "tile"
    return tag("li", tag("a", inner, href=href) if href else tag("div", inner), class_=kind)


def _chart(looker: Looker, view: View, counts: Counts | None, flow: type) -> Html:
    name = spec(flow).name
    there = None if counts is None else counts.of(name)
    number = "counting" if there is None else f"{sum(there.values())} conversations"
    odd = {state: n for state, n in (there or {}).items() if state not in spec(flow).states}
    rows = [(_place_link(view, name, state or None), n) for state, n in odd.items()]
    stray = (
        table(("State that the flow does not have", "Conversations"), rows, "Other states") if rows else None
    )
    return card(
        f"flow-{name}",
        name,
        parts.map_of(flow, view, counts=there),
        stray,
        beside=tag("span", number, class_="soft"),
    )


def _elsewhere(looker: Looker, view: View, counts: Counts | None) -> Html | None:
    """What is stored in flows that there is no map of."""
    if counts is None:
        return card("elsewhere", "By flow and state", none("Counting…")) if not len(looker.flows) else None
    rows = [
        (name_of(flow, "no flow"), _place_link(view, flow, state), number)
        for flow, places in unknown_flows(counts, looker.flows)
        for state, number in places
    ]
    if not rows:
        return (
            None if len(looker.flows) else card("elsewhere", "By flow and state", none("Nothing is stored."))
        )
    title = "In flows without a map" if len(looker.flows) else "By flow and state"
    return card("elsewhere", title, table(("Flow", "State", "Conversations"), rows, title))


def _place_link(view: View, flow: str | None, state: str | None) -> Html:
    href = view.link("conversations", flow=flow or "", state=state or "")
    return tag("a", name_of(state, "no state"), href=href)


def _lately(looker: Looker, view: View) -> Html:
    if looker.history is None:
        return Html("")
    moments = list(looker.history.latest)[:-16:-1]
    if not moments:
        return card("lately", "Turns lately", none("None since this process started."))
    rows = []
    for moment in moments:
        key = key_text(decode(moment.step.conversation).key)
        link = tag("a", tag("code", key), href=view.link("conversation", key=key))
        rows.append((when(moment.at), link, parts.happened(moment)))
    return card("lately", "Turns lately", table(("When", "Conversation", "What"), rows, "Turns lately"))


# --------------------------------------------------------------------------------------------------- lists


def conversations(
    view: View, listed: Sequence[Listed], chosen: Mapping[str, str], counts: Counts | None
) -> Pieces:
    """A page of conversations in the order of their keys."""
    shown, more = listed[:PAGE], len(listed) > PAGE
    rows = [
        (
            _link(view, key_text(one.key)), _where(one),
            one.pending or "", chip(one.dead, "bad") if one.dead else "",
            chip("held", "busy") if one.lease_until and one.lease_until > view.now else "",
            when(one.touched),
        )
        for one in shown
    ]  # fmt: skip
    heads = ("Key", "Where", "Events", "Dead", "Lease", "Last change")
    body = table(heads, rows, "Conversations") if rows else none("None here.")
    place = {name: chosen[name] for name in ("flow", "state") if name in chosen}
    next_ = {"after": shown[-1].cursor, **place} if more else None
    first = place if "after" in chosen else None
    pager = _pager(view, "conversations", first, next_)
    return {"list": card("list", "In the order of their keys", _chosen(view, chosen, counts), body, pager)}


def _where(one: Listed) -> Html:
    """Flow and state in one cell."""
    if one.flow is None:
        return tag("em", "in no flow" if one.recorded else "no record")
    return tag(
        "span", name_of(one.flow, ""), tag("span", " / ", class_="soft"), name_of(one.state, "no state")
    )


def _chosen(view: View, chosen: Mapping[str, str], counts: Counts | None) -> Html | None:
    """Which flow and state the list is of, and the others that there are."""
    here = None
    if "flow" in chosen:
        state = [text(" / "), name_of(chosen["state"] or None, "no state")] if "state" in chosen else None
        everything = tag("a", "Show all", href=view.link("conversations"))
        here = tag("p", "Only ", name_of(chosen["flow"] or None, "no flow"), state, text(" · "), everything)
    places = sorted(counts.places.items(), key=lambda one: -one[1])[:24] if counts is not None else []
    if not places or here is not None:
        return here
    links = [
        tag(
            "a", name_of(flow, "no flow"), text(" / "), name_of(state, "no state"),
            tag("span", number, class_="count"),
            href=view.link("conversations", flow=flow or "", state=state or ""), class_="filter",
        )
        for (flow, state), number in places
    ]  # fmt: skip
    return tag("div", links, class_="filters")


def _pager(
    view: View, page: str, first: Mapping[str, str] | None, next_: Mapping[str, str] | None
) -> Html | None:
    links = []
    if first is not None:
        links.append(tag("a", "First page", href=view.link(page, **first), class_="button quiet"))
    if next_ is not None:
        links.append(tag("a", "Next page", href=view.link(page, **next_), class_="button quiet", rel="next"))
    return tag("p", links, class_="row pager") if links else None


def _link(view: View, key: str) -> Html:
    return tag("a", tag("code", key, class_="key"), href=view.link("conversation", key=key))


def filed(view: View, page: str, found: Sequence[Seen], number: int, more: bool) -> Pieces:
    """Queues, leases or dead letters, conversation by conversation."""
    title, heads, rows = _FILED[page](view, found)
    body = table(heads, rows, title) if rows else none("None.")
    first: Mapping[str, str] | None = {} if number else None
    next_ = {"page": str(number + 1)} if more else None
    return {"list": card("list", title, body, _pager(view, page, first, next_))}


_Filed = tuple[str, Sequence[str], list[Sequence[Child]]]


def _queues(view: View, found: Sequence[Seen]) -> _Filed:
    rows: list[Sequence[Child]] = [
        (
            _link(view, key_text(one.address.key)), parts.status(one.document, one.now),
            depth(one.document), len(one.document.inbox) - depth(one.document),
            when(one.document.inbox[0].accepted_at) if one.document.inbox else "",
        )
        for one in found
    ]  # fmt: skip
    return (
        "Events accepted, and not committed yet",
        ("Key", "Is", "Waiting", "Running", "Oldest accepted"),
        rows,
    )


def _leases(view: View, found: Sequence[Seen]) -> _Filed:
    rows: list[Sequence[Child]] = []
    for one in found:
        lease, own = (
            one.document.lease,
            View(view.now, link=view.link, write=view.write, key=key_text(one.address.key)),
        )
        if lease is not None:
            word = chip("held", "busy") if lease.deadline > one.now else chip("left behind", "bad")
            since = parts.working_since(one.document)
            cells = (
                _link(view, own.key),
                word,
                tag("code", lease.owner),
                one.document.epoch,
                since,
                when(lease.deadline),
            )
            rows.append((*cells, own.action("release", "Force release")) if view.write else cells)
    heads = ("Key", "Is", "Owner", "Epoch", "At work since", "Runs out", *(["Do"] if view.write else []))
    return "Who may commit, and until when", heads, rows


def _dead(view: View, found: Sequence[Seen]) -> _Filed:
    rows: list[Sequence[Child]] = []
    for one in found:
        own = View(view.now, link=view.link, write=view.write, key=key_text(one.address.key))
        for letter in one.document.dead:
            error = tag("code", parts.last_line(letter.error))
            cells = (_link(view, own.key), f"#{letter.seq}", letter.attempts, when(letter.died_at), error)
            rows.append((*cells, parts.letter_acts(letter, own)) if view.write else cells)
    heads = ("Key", "Place", "Attempts", "Died", "Error", *(["Do"] if view.write else []))
    return "Events that were given up", heads, rows


_FILED: Final = {"queues": _queues, "leases": _leases, "dead": _dead}


# -------------------------------------------------------------------------------------------------- health


def health(looker: Looker, found: Health, url: str) -> Pieces:
    """The store, and the keeper if one runs here."""
    pairs: list[tuple[str, Child]] = [
        ("Is", chip("answers", "good") if not found.error else chip("does not answer", "bad"))
    ]
    if found.error:
        pairs.append(("Says", found.error))
    if found.facts is not None:
        pairs += [
            ("Software", found.facts.software), ("Schema", found.facts.schema),
            ("Lost in a crash", found.facts.lost_in_a_crash),
            ("An answer took", f"{found.seconds * 1000:.1f} ms"),
            ("Its clock", f"{found.skew:+.1f} s beside this machine's"),
        ]  # fmt: skip
    if url:
        pairs.insert(0, ("URL", tag("code", url)))
    return {"store": card("store", "Store", parts.facts(*pairs)), "keeper": _keeper(looker)}


def _keeper(looker: Looker) -> Html:
    if looker.keeper is None:
        why = "None runs in this process, so recovered and fenced turns are not counted here."
        return card("keeper", "Keeper", none(why))
    health, counts = looker.keeper.health(), looker.keeper.counts
    pairs: list[tuple[str, Child]] = [
        ("Is", chip("works", "good") if health.ok else chip("cannot do its work", "bad")),
        ("Turns running", health.running),
        ("Last sweep", "not yet" if health.swept is None else f"{health.swept:.1f} s ago"),
    ]
    pairs += [("Error", f"{health.error}, {health.failures} times")] if health.error else []
    rows = [(name, counts[name]) for name in sorted(counts)]
    body = table(("Outcome", "Since the start"), rows, "Outcomes") if rows else none("No event came yet.")
    return card("keeper", "Keeper", parts.facts(*pairs), body)


def problem(view: View, title: str, says: str, bot: str) -> Html:
    """What went wrong."""
    main = tag("main", tag("h1", title), tag("p", says, class_="error", role="alert"), id="main")
    return document(view, title, banner(view, "?", bot), main)


def which_bot(view: View) -> Html:
    """Asked where no bot was named: a store does not list its bots."""
    field = tag("input", name="bot", id="bot", required=True, autocomplete="off", spellcheck="false")
    form = tag(
        "form",
        tag("label", "Bot", for_="bot"),
        field,
        tag("button", "Look"),
        action=view.link(""),
        class_="ask",
    )
    main = tag("main", tag("h1", "Which bot?"), form, id="main")
    return document(view, "Which bot?", main)
