"""What an operator may do to a conversation, and what is asked before it is done."""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, Final

import msgspec

from hitherto import codec
from hitherto.addresses import Address, Key
from hitherto.codec import Fields, Shape
from hitherto.errors import DataError, HithertoError
from hitherto.flows import FlowRegistry, spec
from hitherto.inspector.html import Child, Html, tag, visible
from hitherto.inspector.looking import Looker
from hitherto.inspector.parts import pretty
from hitherto.protocol import blank_if_none, is_busy, live_record
from hitherto.records import Record, Stored, from_record
from hitherto.stores.base import DEFAULT_TERMS

Form = Mapping[str, str]


class Ask(msgspec.Struct, frozen=True):
    """What is asked before an action."""

    title: str
    says: str
    button: str
    danger: bool = False


ASKS: Final = {
    "edit": Ask("Edit data", "The data as JSON. What cannot be stored exactly is refused.", "Save"),
    "move": Ask("Move", "Put it into another state. Its data stays, and no handler runs.", "Move"),
    "clear": Ask("Clear", "Remove the record: flow, state, data. Events and seen ids stay.", "Clear", True),
    "release": Ask(
        "Force release",
        "Free the conversation. Whoever runs it now can commit nothing more; its events wait again.",
        "Release", True,
    ),
    "retry": Ask("Retry", "Put the event back in line, with its attempts forgotten.", "Retry"),
    "drop": Ask("Drop", "Throw the dead letter away. Its id stays seen.", "Drop", True),
    "forget": Ask(
        "Forget", "Erase everything about this conversation. It cannot be brought back.", "Forget it", True
    ),
    "person": Ask(
        "Forget a person",
        "Erase every conversation with this id in its key. They cannot be brought back.",
        "Forget them all", True,
    ),
}  # fmt: skip


class Changed(HithertoError):
    """Somebody else changed it meanwhile."""

    def __init__(self) -> None:
        super().__init__(
            "The data was changed meanwhile. Your text is kept here; load the page anew to see theirs."
        )


def mark_of(fields: Fields) -> str:
    """What data looked like when somebody began to edit it."""
    return hashlib.blake2s(codec.join(dict(sorted(fields.items()))), digest_size=12).hexdigest()


class Acts:
    """Does it: through the keeper that runs here, which then looks at the conversation, or the store."""

    def __init__(self, looker: Looker) -> None:
        self._looker, self._store = looker, looker.store

    async def do(self, name: str, bot: str, key: Key, form: Form) -> str:
        """Do it; the answer is ``done`` or ``nothing``. HithertoError says why not."""
        act: Callable[..., Any] = getattr(self, f"_{name}")
        done = await act(Address(bot, "", key), form)
        return "done" if done else "nothing"

    # -------------------------------------------------------------------------------------- the record

    async def _edit(self, address: Address, form: Form) -> bool:
        data = _parsed(form.get("data", ""))
        was = form.get("was", "")
        fresh: list[bool] = []

        def change(stored: Stored | None) -> Stored | None:
            base = blank_if_none(stored)
            fresh[:] = [mark_of(base.fields) == was]
            if not fresh[0]:
                return stored
            fields = _fitting(self._looker.flows, base.flow, data)
            return Stored(base.flow, base.state, base.version, fields, base.expires_at)

        current = blank_if_none(await self._store.read(address))
        _fitting(self._looker.flows, current.flow, data)
        await self._store.write(address, change)
        if not fresh[0]:
            raise Changed()
        return True

    async def _move(self, address: Address, form: Form) -> bool:
        flow, state = _place(form)
        flows = self._looker.flows
        known = next((one for one in flows if one.name == flow), None)
        if known is not None:
            flows.state(known, state)
        elif flow is not None and len(flows):
            flows.by_name(flow)
        checked = from_record(Record(flow, state))

        def change(stored: Stored | None) -> Stored | None:
            base = blank_if_none(stored)
            version = base.version if known is None else spec(known).version
            return Stored(checked.flow, checked.state, version, base.fields, base.expires_at)

        await self._store.write(address, change)
        return True

    async def _clear(self, address: Address, form: Form) -> bool:
        there = await self._store.read(address) is not None
        await self._store.clear(address.bot, address.key)
        return there

    # ------------------------------------------------------------------------------- lease and letters

    async def _release(self, address: Address, form: Form) -> bool:
        keeper = self._looker.keeper
        if keeper is not None and keeper.running:
            return await keeper.force_release(address.key)
        answer = await self._store.force_release(address, self._store.op(), DEFAULT_TERMS)
        return answer.status == "released"

    async def _retry(self, address: Address, form: Form) -> bool:
        keeper, seq = self._looker.keeper, _seq(form)
        if keeper is not None and keeper.running:
            return await keeper.retry_dead(address.key, seq)
        answer = await self._store.retry_dead(address, seq, self._store.op(), DEFAULT_TERMS)
        return answer.status == "queued"

    async def _drop(self, address: Address, form: Form) -> bool:
        answer = await self._store.drop_dead(address, _seq(form), self._store.op(), DEFAULT_TERMS)
        return answer.status == "dropped"

    async def _forget(self, address: Address, form: Form) -> bool:
        there = (await self._store.load(address)).version > 0
        await self._store.forget(address)
        return there

    async def forget_person(self, bot: str, part: object) -> AsyncIterator[Address]:
        """Erase every conversation with this part in its key, one after the other."""
        async for address in self._looker.of_person(bot, part):
            await self._store.forget(address)
            yield address

    # --------------------------------------------------------------------------------------- the forms

    async def fields(self, name: str, bot: str, key: Key, form: Form) -> Child:
        """What the form of an action asks for, as it was filled in before if it was."""
        if name in ("retry", "drop"):
            return tag("input", type="hidden", name="seq", value=str(_seq(form)))
        if name not in ("edit", "move"):
            return None
        address = Address(bot, "", key)
        document, now = await self._store.load(address), await self._store.now()
        stored = blank_if_none(live_record(document, now))
        warning = None
        if is_busy(document, now):
            says = "A turn runs now. What it commits comes on top of your change."
            warning = tag("p", says, class_="warning")
        if name == "move":
            return [warning, _places(self._looker.flows, stored)]
        written = form.get("data") or visible(pretty(codec.decode(stored.fields)))
        area = tag("textarea", Html(_raw(written)), name="data", id="data", rows=14, spellcheck="false")
        was = tag("input", type="hidden", name="was", value=form.get("was") or mark_of(stored.fields))
        return [warning, tag("label", "Data", for_="data"), area, was]


def _raw(written: str) -> str:
    """Text for a textarea, which drops a newline at its front."""
    import html

    return "\n" + html.escape(written)


def _parsed(written: str) -> dict[str, Any]:
    try:
        data = json.loads(written, object_pairs_hook=_once, parse_constant=_constant)
    except DataError:
        raise
    except RecursionError:
        raise DataError("data: nested too deeply", path="data") from None
    except json.JSONDecodeError as error:
        says = f"data: not JSON: {error.msg} (line {error.lineno}, column {error.colno})"
        raise DataError(says, path="data") from None
    except ValueError:
        raise DataError("data: a number has too many digits", path="data") from None
    if not isinstance(data, dict):
        raise DataError('data: an object is needed, as in {"name": "Ann"}', path="data")
    return data


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise DataError("data: a key is there twice", path="data")
    return found


def _constant(word: str) -> float:
    return float(word)  # the codec refuses it, and names the path


def _fitting(flows: FlowRegistry, flow: str | None, data: dict[str, Any]) -> Fields:
    """The data as fields, checked against the flow's data class where there is one."""
    fields = codec.encode(data)
    known = next((one for one in flows if one.name == flow), None)
    if known is not None and spec(known).data is not None and fields:
        Shape(spec(known).data).decode(fields)
    return fields


def _place(form: Form) -> tuple[str | None, str | None]:
    """The flow and state that a form names: chosen from a list as JSON, or written."""
    if "place" not in form:
        return form.get("flow") or None, form.get("state") or None
    try:
        flow, state = json.loads(form["place"])
    except (ValueError, TypeError):
        raise DataError("place: choose one from the list", path="place") from None
    if not isinstance(flow, str | None) or not isinstance(state, str | None):
        raise DataError("place: choose one from the list", path="place")
    return flow, state


def _places(flows: FlowRegistry, stored: Stored) -> Child:
    if not len(flows):
        return [
            [
                tag("label", label, for_=name),
                tag("input", id=name, name=name, value=value, autocomplete="off"),
            ]
            for name, label, value in (("flow", "Flow", stored.flow), ("state", "State", stored.state))
        ]
    here = (stored.flow, stored.state)
    groups = [
        tag("optgroup", [_option(flow.name, name, here) for name in spec(flow).states], label=flow.name)
        for flow in flows
    ]
    select = tag("select", _option(None, None, here), groups, id="place", name="place")
    return [tag("label", "Flow and state", for_="place"), select]


def _option(flow: str | None, state: str | None, here: tuple[str | None, str | None]) -> Html:
    label = "in no flow" if flow is None else f"{flow} / {state}"
    return tag("option", label, value=json.dumps([flow, state]), selected=(flow, state) == here)


def _seq(form: Form) -> int:
    try:
        return int(form.get("seq", ""))
    except ValueError:
        raise DataError("seq: which dead letter? Its number is needed", path="seq") from None
