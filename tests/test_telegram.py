"""The table of updates: what it reads from dicts and from frameworks' objects, and that it never raises."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import msgspec
import pytest
import telegram
from aiogram import types
from hypothesis import given
from hypothesis import strategies as st

from hitherto.errors import BadEvent
from hitherto.telegram import Facts, event_id, facts, media_group, sender, update_json
from telegram_updates import ANN, BOT, BUSINESS, CASES, GROUP, KINDS, message, pressed, private, user

NOT_IN_AIOGRAM: set[str] = set()
NOT_IN_PTB = {"subscription", "stopped_message_generation"}


def from_aiogram(update: Any) -> types.Update:
    """The update as aiogram gives it to handlers."""
    return types.Update.model_validate(update)


def from_ptb(update: Any) -> telegram.Update:
    """The update as python-telegram-bot gives it to handlers."""
    return telegram.Update.de_json(update, None)


def test_the_kinds_that_a_framework_does_not_know_are_these() -> None:
    assert set(KINDS) - set(types.Update.model_fields) <= NOT_IN_AIOGRAM
    assert (
        set(KINDS) - {name for kind in telegram.Update.__mro__ for name in getattr(kind, "__slots__", ())}
        <= NOT_IN_PTB
    )


@pytest.mark.parametrize("name", CASES)
def test_frameworks_give_the_facts_of_the_dict(name: str) -> None:
    update = CASES[name].update
    found = facts(update)
    assert found is not None
    assert (found.kind, found.update_id) == (CASES[name].kind, 10_000)
    assert facts(from_aiogram(update)) == found
    assert facts(from_ptb(update)) == found


def test_all_facts_of_a_message() -> None:
    body = message(
        {"id": GROUP, "type": "supergroup", "title": "Group"},
        message_thread_id=42,
        is_topic_message=True,
        media_group_id="album",
        **{"from": user()},
    )
    update = {"update_id": 3, "message": body}
    expected = Facts("message", 3, GROUP, ANN, 42, "", "supergroup", "album")
    for event in (update, from_aiogram(update), from_ptb(update)):
        assert facts(event) == expected
        assert sender(event) == ANN
        assert media_group(event) == "album"
        assert type(facts(event).chat_type) is str  # type: ignore[union-attr]
    with pytest.raises(AttributeError):
        expected.chat = 1  # type: ignore[misc]


def test_a_kind_that_the_framework_does_not_know_yet_is_read_all_the_same() -> None:
    update = KINDS["subscription"].update
    late = SimpleNamespace(update_id=10_000, message=None)
    assert facts(late) is None
    assert facts(from_ptb(update)) == facts(update)
    assert facts(from_aiogram({"update_id": 1, "kind_of_2030": {"chat": {"id": 1}}})) is None


def test_plain_objects_with_the_names_of_the_bot_api_are_read_too() -> None:
    body = SimpleNamespace(chat=private(), from_user=SimpleNamespace(id=ANN))
    assert facts(SimpleNamespace(update_id=1, message=body)) == Facts(
        "message", 1, ANN, ANN, chat_type="private"
    )


def test_fields_that_the_framework_does_not_know_yet_are_read_all_the_same() -> None:
    class Known:
        def __init__(self, api_kwargs: Any, **fields: Any) -> None:
            self.__dict__ |= fields
            self.api_kwargs = api_kwargs

        api_kwargs: Any

    chat = Known({"is_direct_messages": True}, id=GROUP, type="supergroup")
    body = Known({"direct_messages_topic": {"topic_id": 5}}, chat=chat, from_user=SimpleNamespace(id=ANN))
    Known.api_kwargs = None
    assert facts(SimpleNamespace(update_id=1, message=body)) == Facts(
        "message", 1, GROUP, ANN, None, "dm:5", "supergroup"
    )


@pytest.mark.parametrize("bad", [True, 1.0, "7", None, 0, [7], {"id": 7}, b"7"])
def test_only_ints_are_ids(bad: Any) -> None:
    body = {
        "chat": {"id": bad, "type": "private"},
        "from": {"id": bad},
        "is_topic_message": True,
        "message_thread_id": bad,
    }
    assert facts({"update_id": bad, "message": body}) == Facts("message", chat_type="private")


def test_a_topic_is_one_only_if_telegram_says_true() -> None:
    for flag, thread in ((True, 42), (False, None), (None, None), (1, None), ("true", None)):
        body = message(private(), message_thread_id=42, is_topic_message=flag, **{"from": user()})
        for update in (
            {"message": body},
            {"edited_message": body},
            {"callback_query": pressed(message=body)},
        ):
            found = facts(update)
            assert found is not None
            assert found.thread == thread


def test_a_realm_needs_text_that_can_be_stored() -> None:
    body = message(private(), **{"from": user()})
    for bad in ("", "\ud800", 5, None, True):
        ordinary = facts({"message": body | {"business_connection_id": bad}})
        business = facts({"business_message": body | {"business_connection_id": bad}})
        assert ordinary is not None
        assert business is not None
        assert (ordinary.realm, business.realm) == ("", "business:")


class _Raising:
    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(name)


class _RaisingInside:
    update_id = 1

    @property
    def message(self) -> Any:
        return _Raising()


class _Endless:
    def __getattr__(self, name: str) -> Any:
        return self


def _recursive() -> dict[str, Any]:
    update: dict[str, Any] = {"update_id": 1}
    for kind in KINDS:
        update[kind] = update
    update |= {"chat": update, "from": update, "user": update, "id": update, "type": update}
    return update


@pytest.mark.parametrize(
    "event",
    [
        _Raising(),
        _RaisingInside(),
        _Endless(),
        _recursive(),
        MagicMock(),
        telegram.Update,
        types.Update,
        msgspec,
        float("nan"),
    ],
    ids=lambda event: type(event).__name__,
)
def test_hostile_objects_never_raise_and_tell_nothing(event: Any) -> None:
    found = facts(event)
    assert found is None or (found.chat, found.user, found.thread) == (None, None, None)
    assert sender(event) is None
    assert media_group(event) is None
    assert event_id(event) in (None, "tg:1")


@pytest.mark.parametrize("name", CASES)
def test_update_json_is_the_update_again(name: str) -> None:
    update = CASES[name].update
    assert json.loads(update_json(update)) == update
    for read in (from_aiogram, from_ptb):
        event = read(update)
        document = update_json(event)
        assert read(json.loads(document)) == event
        assert facts(json.loads(document)) == facts(update)
        assert event_id(json.loads(document)) == event_id(event) == "tg:10000"


def test_update_json_of_aiogram_leaves_out_what_is_decided_when_sending() -> None:
    update = {
        "update_id": 1,
        "message": message(private(), link_preview_options={"url": "http://x"}, **{"from": user(BOT)}),
    }
    document = update_json(from_aiogram(update))
    assert json.loads(document) == update


def test_update_json_passes_valid_bytes_on() -> None:
    document = b' {"update_id": 1,\n "poll": {}} '
    for event in (document, bytearray(document), memoryview(document)):
        assert update_json(event) == document


class _Unwritable:
    def to_json(self) -> Any:
        return "{broken"


@pytest.mark.parametrize(
    "event",
    [
        b"",
        b"{",
        b"\xff",
        b'{"a": NaN}',
        b'"\\ud800"',
        b"[" * 100_000,
        object(),
        {"a": object()},
        {"a": "\ud800"},
        _recursive(),
        _Unwritable(),
    ],
    ids=lambda event: repr(event)[:12],
)
def test_update_json_refuses_what_is_not_json(event: Any) -> None:
    with pytest.raises(BadEvent, match="is not an event that can be written as JSON"):
        update_json(event)


@pytest.mark.parametrize(
    ("event", "text"),
    [
        ({"update_id": 10_000, "id": 5}, "tg:10000"),
        ({"update_id": 0}, "tg:0"),
        (SimpleNamespace(update_id=7), "tg:7"),
        ({"type": "event_callback", "event_id": "Ev08", "event": {"type": "message"}}, "slack:Ev08"),
        ({"type": "events_api", "envelope_id": "e", "payload": {"event_id": "Ev08"}}, "slack:Ev08"),
        ({"type": "block_actions", "trigger_id": "1.2.a", "payload": "x"}, "slack:1.2.a"),
        ({"id": "1042", "type": 2, "application_id": "1"}, "id:1042"),
        ({"id": 1042}, "id:1042"),
        (SimpleNamespace(id=1042), "id:1042"),
        ({"id": "é:/"}, "id:é:/"),
        ({"text": "hi"}, None),
        ({"id": True}, None),
        ({"id": 1.0}, None),
        ({"id": ""}, None),
        ({"id": None}, None),
        ({"id": {"a": 1}}, None),
        ({"id": "\ud800"}, None),
        ({"update_id": "7"}, "tg:7"),
        (None, None),
        (7, None),
        ("id", None),
        ([1], None),
        (b'{"id": 1}', None),
    ],
)
def test_event_ids(event: Any, text: str | None) -> None:
    assert event_id(event) == text


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda parts: (
        st.lists(parts, max_size=3)
        | st.dictionaries(st.sampled_from(["id", "payload", "event_id"]) | st.text(max_size=3), parts)
    ),
    max_leaves=15,
)


@given(JSON)
def test_event_id_of_arbitrary_json_is_text_that_can_be_stored(event: Any) -> None:
    found = event_id(event)
    assert found is None or found.encode()


def test_business_realm_is_the_connection() -> None:
    found = facts(KINDS["business_message"].update)
    assert found is not None
    assert found.realm == BUSINESS
