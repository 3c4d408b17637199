"""Key strategies: every kind of update, held in three ways, by every strategy; and one's own strategies."""

from __future__ import annotations

import copy
import functools
import json
import pickle
from typing import Any

import pytest
import telegram
from aiogram import types
from hypothesis import given
from hypothesis import strategies as st

from hitherto import telegram as table
from hitherto.addresses import Address, decode, encode
from hitherto.errors import BadKey
from hitherto.keys import Chat, ChatTopic, ChatTopicUser, ChatUser, Strategy, User, as_strategy
from telegram_updates import ANN, BUSINESS, CASES, CHANNEL, GROUP, KINDS, LINK, Case, message, private, user

STRATEGIES: tuple[Strategy, ...] = (ChatUser(), User(), Chat(), ChatTopic(), ChatTopicUser())
READERS = {
    "dict": lambda update: update,
    "aiogram": types.Update.model_validate,
    "python-telegram-bot": lambda update: telegram.Update.de_json(update, None),
}


def test_the_table_of_this_suite_has_every_kind_once() -> None:
    assert set(KINDS) == set(table.KINDS)
    assert len(KINDS) == len(table.KINDS) == 27
    assert all(name == case.kind for name, case in KINDS.items())


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("name", CASES)
def test_keys(name: str, reader: str) -> None:
    case = CASES[name]
    event = READERS[reader](case.update)
    found = [strategy.extract(event) for strategy in STRATEGIES]
    assert found == list(case.keys)
    for key in found:
        assert key is None or [type(part) for part in key] == [str] * isinstance(key[0], str) + [int] * (
            len(key) - isinstance(key[0], str)
        )


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize(
    ("case", "key"),
    [
        (KINDS["inline_query"], (ANN, ANN)),
        (KINDS["chosen_inline_result"], (ANN, ANN)),
        (KINDS["shipping_query"], (ANN, ANN)),
        (KINDS["pre_checkout_query"], (ANN, ANN)),
        (KINDS["purchased_paid_media"], (ANN, ANN)),
        (KINDS["poll_answer"], (ANN, ANN)),
        (KINDS["managed_bot"], (ANN, ANN)),
        (KINDS["subscription"], (ANN, ANN)),
        (KINDS["business_connection"], (ANN, ANN)),
        (CASES["press on an inline message"], (ANN, ANN)),
        (KINDS["message"], (ANN, ANN)),
        (KINDS["chat_member"], (GROUP, ANN)),
        (KINDS["poll"], None),
        (CASES["anonymous vote"], (0, CHANNEL)),
    ],
)
def test_chatless_private_joins_the_private_chat(case: Case, key: Any, reader: str) -> None:
    event = READERS[reader](case.update)
    assert ChatUser(chatless="private").extract(event) == key
    chat = None if key is None or not key[0] else key[0]
    assert Chat(chatless="private").extract(event) == (None if chat is None else (chat,))
    assert ChatTopic(chatless="private").extract(event) == (None if chat is None else (chat, 0))
    assert ChatTopicUser(chatless="private").extract(event) == (None if chat is None else (chat, 0, key[1]))


def test_realms_of_one_chat_and_person_never_meet() -> None:
    plain = message(private(), **{"from": user()})
    updates = [
        {"message": plain},
        {"business_message": plain | {"business_connection_id": LINK}},
        {"business_message": plain | {"business_connection_id": "other"}},
        {"business_message": plain},
        {"guest_message": plain},
        {"message": plain | {"direct_messages_topic": {"topic_id": 1}}},
        {"message": plain | {"direct_messages_topic": {"topic_id": 2}}},
        {"message": plain | {"chat": private(is_direct_messages=True)}},
    ]
    for strategy in STRATEGIES:
        texts = {encode(Address("b", "", strategy.extract(update))) for update in updates}
        assert len(texts) == len(updates)
    assert User().extract(updates[1]) == (BUSINESS, ANN)


@pytest.mark.parametrize(
    "event",
    [
        None,
        7,
        "message",
        b"{}",
        [],
        (),
        {},
        {"update_id": 1},
        {"update_id": 1, "new_kind": {"chat": {"id": 1}}},
        object(),
    ],
)
def test_what_is_no_known_update_gives_none(event: Any) -> None:
    assert [strategy.extract(event) for strategy in STRATEGIES] == [None] * 5


def test_strategies_are_values() -> None:
    assert [repr(strategy) for strategy in STRATEGIES] == [
        "ChatUser()",
        "User()",
        "Chat()",
        "ChatTopic()",
        "ChatTopicUser()",
    ]
    assert repr(ChatUser(chatless="private")) == "ChatUser(chatless='private')"
    assert len({*STRATEGIES, ChatUser(), User(), ChatUser(chatless="private")}) == 6
    assert ChatUser() == ChatUser("zero") != ChatUser("private")
    assert ChatUser() != Chat()
    for strategy in STRATEGIES:
        assert copy.deepcopy(strategy) == pickle.loads(pickle.dumps(strategy)) == strategy
        with pytest.raises((AttributeError, TypeError)):
            strategy.chatless = "private"  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match="chatless must be 'zero' or 'private', not 'both'"):
        Chat(chatless="both")  # type: ignore[arg-type]


class _Own:
    def __init__(self, key: Any) -> None:
        self.key = key

    def extract(self, event: Any) -> Any:
        return self.key

    def method(self, event: Any) -> Any:
        return (event["room"], self.key)


class _Called(_Own):
    extract = None  # type: ignore[assignment]

    def __call__(self, event: Any) -> Any:
        return self.key


def test_built_in_strategies_stay_themselves() -> None:
    for strategy in STRATEGIES:
        assert as_strategy(strategy) is strategy
    own = as_strategy(_Own((1,)))
    assert as_strategy(own) is own


def test_functions_and_objects_become_strategies() -> None:
    event = {"room": "kitchen"}
    assert as_strategy(lambda event: (event["room"], 1)).extract(event) == ("kitchen", 1)
    assert as_strategy(lambda event: event["room"]).extract(event) == "kitchen"
    assert as_strategy(_Own((1, None, 2.5))).extract(event) == (1, None, 2.5)
    assert as_strategy(_Own(7).method).extract(event) == ("kitchen", 7)
    assert as_strategy(functools.partial(_Own.method, _Own(7))).extract(event) == ("kitchen", 7)
    assert as_strategy(lambda event: None).extract(event) is None
    assert as_strategy(lambda event: (table.sender(event),)).extract(KINDS["message"].update) == (ANN,)
    assert repr(as_strategy(_Own(1))) == "as_strategy(_Own)"


def test_a_subclass_of_a_built_in_strategy_is_checked() -> None:
    class Rooms(ChatUser):
        def extract(self, event: Any, /) -> Any:
            return [event]

    with pytest.raises(BadKey, match="a list cannot be a key"):
        as_strategy(Rooms()).extract(1)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ((n for n in (1, 2)), "_Own answered what cannot be a key: key: generator cannot be in a key"),
        ([1, 2], "_Own answered what cannot be a key: key: a list cannot be a key; use a tuple"),
        ((1, {"secret": 2}), r"_Own answered what cannot be a key: key\[1\]: dict cannot be in a key"),
        ((1, float("nan")), r"_Own answered what cannot be a key: key\[1\]: nan is not a finite number"),
    ],
)
def test_answers_that_cannot_be_keys_are_refused(answer: Any, reason: str) -> None:
    with pytest.raises(BadKey, match=f"^{reason}"):
        as_strategy(_Own(answer)).extract({})


async def _async_function(event: Any) -> Any:
    return (1,)


class _AsyncObject:
    async def extract(self, event: Any) -> Any:
        return (1,)


class _AsyncCalled:
    async def __call__(self, event: Any) -> Any:
        return (1,)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (None, "NoneType is no key strategy: give ChatUser()"),
        ("chat", "str is no key strategy"),
        ((1, 2), "tuple is no key strategy"),
        (_Called(1), "_Called is no key strategy"),
        (ChatUser, r"a key strategy is an object, not a class: write ChatUser\(\)"),
        (_async_function, "_async_function is async"),
        (_AsyncObject(), "_AsyncObject is async"),
        (_AsyncCalled(), "_AsyncCalled is async"),
    ],
)
def test_what_is_no_strategy_is_a_type_error(given: Any, reason: str) -> None:
    with pytest.raises(TypeError, match=f"^{reason}"):
        as_strategy(given)


NAMES = [
    *table.KINDS,
    *(
        "id",
        "update_id",
        "chat",
        "from",
        "from_user",
        "user",
        "message",
        "sender_chat",
        "actor_chat",
        "voter_chat",
        "type",
    ),
    *(
        "message_thread_id",
        "is_topic_message",
        "business_connection_id",
        "guest_query_id",
        "direct_messages_topic",
    ),
    *(
        "topic_id",
        "is_direct_messages",
        "boost",
        "source",
        "media_group_id",
        "guest_bot_caller_user",
        "api_kwargs",
    ),
]
LEAVES = (
    st.none()
    | st.booleans()
    | st.sampled_from(
        [0, 1, -1, 7, 777000, 136817688, 1087968824, 2**70, 1.5, "7", "private", "\ud800", "\x00"]
    )
    | st.text(max_size=3)
    | st.floats()
)
JUNK = st.recursive(
    LEAVES,
    lambda parts: (
        st.lists(parts, max_size=2)
        | st.dictionaries(st.sampled_from(NAMES) | st.text(max_size=3), parts, max_size=5)
    ),
    max_leaves=25,
)


def _check(event: Any) -> None:
    for strategy in (
        *STRATEGIES,
        ChatUser("private"),
        Chat("private"),
        ChatTopic("private"),
        ChatTopicUser("private"),
    ):
        key = strategy.extract(event)
        if key is not None:
            assert decode(encode(Address("b", "", key))).key == key
            assert all(type(part) is int or type(part) is str for part in key)


@given(JUNK)
def test_arbitrary_json_never_raises(event: Any) -> None:
    _check(event)


@given(st.sampled_from(table.KINDS), st.dictionaries(st.sampled_from(NAMES), JUNK, max_size=6))
def test_arbitrary_bodies_of_known_kinds_never_raise(kind: str, body: dict[str, Any]) -> None:
    _check({"update_id": 1, kind: body})


@given(st.sampled_from(sorted(CASES)), st.data())
def test_real_updates_with_one_part_replaced_never_raise(name: str, data: st.DataObject) -> None:
    update = json.loads(json.dumps(CASES[name].update))
    node: Any = update
    while True:
        place = data.draw(st.sampled_from(list(node) if isinstance(node, dict) else range(len(node))))
        if not (isinstance(node[place], dict | list) and node[place] and data.draw(st.booleans())):
            break
        node = node[place]
    node[place] = data.draw(JUNK)
    _check(update)
