"""The clauses of the FSM storage contract: seven methods, which any object may have."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, ClassVar, Final

import pytest

from hitherto.records import Record
from hitherto.testing.kit import BOT, KEY, Contract, refuses

if TYPE_CHECKING:
    from hitherto.addresses import Key
    from hitherto.contracts import FSMStorage

TWINS: Final[tuple[Key, ...]] = (
    (7,),
    ("7",),
    (7.0,),
    (1,),
    (True,),
    (1.0,),
    ("1",),
    (None,),
    ("None",),
    ("null",),
    (0,),
    (False,),
    (0.0,),
    (-0.0,),
    ("",),
    (),
    7,
    "7",
    None,
    (7, 7),
    (7, 7, 7),
    (7, "7"),
    ("7", 7),
    ("7/7",),
    ("7:7",),
    ("7", ":7"),
    ("7:", "7"),
)
"""Keys that are easily taken for one another, and are all different."""

HOSTILE: Final = (
    ":", "::", "/", "//", "%", "%2F", "{", "}", "{a}", "[", "]", "*", "?", "\\", "'", '"', "`", ";", "--",
    " ", "\x00", "\n", "\r\n", "\t", "\x7f", "é", "e\u0301", "ß", "İ", "\u202e", "\ufeff", "\uffff", "😀",
    "𐍈", "\U0010fffd", "lock", "state", "data", "a" * 2000, "-1", "1e3", ".",
    "..", "=7", "()", "null", "true",
)  # fmt: skip
"""Texts that have broken storages before."""

VALUES: Final[tuple[object, ...]] = (
    0, -1, 2**31, 2**53 + 1, -(2**63), 2**64, 10**40, 0.5, -2.75, 1e16, 1.0, 1e-300, 1.79e308, 5e-324,
    True, False, None, "", "text", "\x00", "\x00\x01\x1f", "line\nline\r\n", '"\\/', "é😀𐍈\U0010fffd",
    "\u2028\u2029", [], {}, [[]], [{}], {"": ""}, {"a": {"b": {"c": [1, [2, [3, {"d": None}]]]}}},
    [1, 1.0, "1", True, None], {"1": 1, "\x00": 2, "é": 3, "a.b": 4, "$x": 5, "a": {"1": 1}}, "x" * 100_000,
    list(range(2000)),
)  # fmt: skip
"""Values that must come back exactly, types included."""

UNSTORABLE: Final[tuple[object, ...]] = (
    float("nan"), float("inf"), float("-inf"), b"bytes", {1, 2}, frozenset(), object(), 1j, {1: "a"},
    {None: 1},
    {"deep": [{"er": float("nan")}]}, [[[b""]]], {(1, 2): 3},
)  # fmt: skip
"""Values that would not come back as they went in."""


def same(found: object, expected: object) -> bool:
    """Whether two values are equal in their types as well, all the way down."""
    if type(found) is not type(expected):
        return False
    if isinstance(found, dict) and isinstance(expected, dict):
        return found.keys() == expected.keys() and all(same(found[key], expected[key]) for key in expected)
    if isinstance(found, list) and isinstance(expected, list):
        return len(found) == len(expected) and all(map(same, found, expected))
    return found == expected


class FSMStorageContract(Contract):
    """What is promised of the seven methods: init, get and set state, get, set and update data, clear.

    It uses these and nothing else, so that it fits an object of the user's own as well.
    """

    mixin: ClassVar[bool] = True

    @pytest.fixture
    def store(self) -> FSMStorage:
        """An opened, empty storage."""
        raise NotImplementedError("give the class a fixture `store`: an opened, empty storage")

    # ------------------------------------------------------------------------------------------------ init

    async def test_init_may_be_called_again(self, store: FSMStorage) -> None:
        """``init`` may be called as often as one likes and removes nothing."""
        await store.init(BOT)
        await store.set_state(BOT, KEY, Record("signup", "name", {"a": 1}))
        await store.init(BOT)
        assert await store.get_state(BOT, KEY) == Record("signup", "name", {"a": 1})

    async def test_init_takes_options(self, store: FSMStorage) -> None:
        """``init`` takes whatever options the keeper was given, known to it or not."""
        await store.init(BOT, flows=[], an_option_of_the_future=True)
        assert await store.get_state(BOT, KEY) is None

    async def test_init_of_one_bot_leaves_others_alone(self, store: FSMStorage) -> None:
        """``init`` of one bot does nothing to another."""
        await store.set_data(BOT, KEY, {"a": 1})
        await store.init("another")
        assert await store.get_data(BOT, KEY) == {"a": 1}

    # ------------------------------------------------------------------------------------------- get_state

    async def test_unknown_state_is_none(self, store: FSMStorage) -> None:
        """``get_state`` of a conversation that has no record is ``None``."""
        assert await store.get_state(BOT, KEY) is None

    async def test_state_comes_back(self, store: FSMStorage) -> None:
        """``get_state`` gives flow, state and data as they were set."""
        await store.set_state(BOT, KEY, Record("signup", "ask_name", {"name": "Ann"}))
        found = await store.get_state(BOT, KEY)
        assert isinstance(found, Record)
        assert (found.flow, found.state, found.data) == ("signup", "ask_name", {"name": "Ann"})

    async def test_state_version_comes_back(self, store: FSMStorage) -> None:
        """The version of the flow is kept with the record."""
        await store.set_state(BOT, KEY, Record("signup", "ask_name", {}, 3))
        found = await store.get_state(BOT, KEY)
        assert found is not None
        assert found.version == 3

    async def test_state_none_comes_back(self, store: FSMStorage) -> None:
        """A record may be in a flow and in no state, or in neither."""
        for flow in ("signup", None):
            await store.set_state(BOT, KEY, Record(flow, None, {"a": 1}))
            assert await store.get_state(BOT, KEY) == Record(flow, None, {"a": 1})

    async def test_state_names_are_any_text(self, store: FSMStorage) -> None:
        """Names of flows and states are any text, the empty one too."""
        for text in ("", "None", "null", "a:b/c", "\x00", "😀", "x" * 500):
            await store.set_state(BOT, KEY, Record(text, text))
            assert await store.get_state(BOT, KEY) == Record(text, text)

    async def test_got_state_is_the_callers_own(self, store: FSMStorage) -> None:
        """What ``get_state`` gives is the caller's own: changing it changes nothing that is stored."""
        await store.set_state(BOT, KEY, Record("signup", "name", {"list": [1], "map": {"a": 1}}))
        found = await store.get_state(BOT, KEY)
        assert found is not None
        found.state = "other"
        found.data["list"].append(2)
        found.data["map"]["b"] = 2
        found.data["new"] = 1
        assert await store.get_state(BOT, KEY) == Record("signup", "name", {"list": [1], "map": {"a": 1}})

    # ------------------------------------------------------------------------------------------- set_state

    async def test_set_state_overwrites_everything(self, store: FSMStorage) -> None:
        """``set_state`` overwrites flow, state, version and all data."""
        await store.set_state(BOT, KEY, Record("signup", "name", {"old": 1, "both": 1}, 2))
        await store.set_state(BOT, KEY, Record("order", "size", {"both": 2}, 5))
        assert await store.get_state(BOT, KEY) == Record("order", "size", {"both": 2}, 5)

    async def test_set_state_may_leave_the_flow(self, store: FSMStorage) -> None:
        """``set_state`` with no flow and no state removes them, and the record stays."""
        await store.set_state(BOT, KEY, Record("signup", "name", {"a": 1}))
        await store.set_state(BOT, KEY, Record(None, None, {"a": 1}))
        assert await store.get_state(BOT, KEY) == Record(None, None, {"a": 1})

    async def test_set_state_without_data_is_a_record(self, store: FSMStorage) -> None:
        """A record without anything in it is still a record."""
        await store.set_state(BOT, KEY, Record())
        assert await store.get_state(BOT, KEY) == Record()

    async def test_set_state_keeps_a_copy(self, store: FSMStorage) -> None:
        """``set_state`` takes its argument as it is now: changing it later changes nothing that is stored."""
        record = Record("signup", "name", {"list": [1]})
        await store.set_state(BOT, KEY, record)
        record.state = "other"
        record.data["list"].append(2)
        record.data["new"] = 1
        assert await store.get_state(BOT, KEY) == Record("signup", "name", {"list": [1]})

    async def test_set_state_refuses_what_cannot_be_stored(self, store: FSMStorage) -> None:
        """``set_state`` refuses data that would not come back as it is, and nothing changes."""
        await store.set_state(BOT, KEY, Record("signup", "name", {"a": 1}))
        for value in UNSTORABLE:
            with refuses(ValueError, TypeError):
                await store.set_state(BOT, KEY, Record("order", "size", {"value": value}))
        assert await store.get_state(BOT, KEY) == Record("signup", "name", {"a": 1})

    # -------------------------------------------------------------------------------------------- get_data

    async def test_unknown_data_is_none(self, store: FSMStorage) -> None:
        """``get_data`` of a conversation that has no record is ``None``."""
        assert await store.get_data(BOT, KEY) is None

    async def test_data_of_a_record_without_data_is_empty(self, store: FSMStorage) -> None:
        """``get_data`` of a record without data is an empty dict, not ``None``."""
        await store.set_state(BOT, KEY, Record("signup", "name"))
        assert await store.get_data(BOT, KEY) == {}

    async def test_data_is_that_of_the_state(self, store: FSMStorage) -> None:
        """``get_data`` and ``get_state`` give the same data, however it was written."""
        await store.set_state(BOT, KEY, Record("signup", "name", {"a": 1}))
        assert await store.get_data(BOT, KEY) == {"a": 1}
        await store.update_data(BOT, KEY, {"b": 2})
        await store.update_data(BOT, KEY, {"c": {"d": []}})
        found = await store.get_state(BOT, KEY)
        assert found is not None
        assert await store.get_data(BOT, KEY) == found.data == {"a": 1, "b": 2, "c": {"d": []}}

    async def test_got_data_is_the_callers_own(self, store: FSMStorage) -> None:
        """What ``get_data`` gives is the caller's own: changing it changes nothing that is stored."""
        await store.set_data(BOT, KEY, {"list": [1], "map": {"a": {}}})
        found = await store.get_data(BOT, KEY)
        assert found is not None
        found["list"].append(2)
        found["map"]["a"]["b"] = 1
        found["new"] = 1
        assert await store.get_data(BOT, KEY) == {"list": [1], "map": {"a": {}}}

    # -------------------------------------------------------------------------------------------- set_data

    async def test_set_data_overwrites(self, store: FSMStorage) -> None:
        """``set_data`` overwrites all data: nothing of the old stays."""
        await store.set_data(BOT, KEY, {"old": 1, "both": 1})
        await store.set_data(BOT, KEY, {"both": 2})
        assert await store.get_data(BOT, KEY) == {"both": 2}

    async def test_set_data_may_empty(self, store: FSMStorage) -> None:
        """``set_data`` with an empty dict leaves a record without data."""
        await store.set_data(BOT, KEY, {"old": 1})
        await store.set_data(BOT, KEY, {})
        assert await store.get_data(BOT, KEY) == {}
        assert await store.get_state(BOT, KEY) == Record()

    async def test_set_data_keeps_flow_and_state(self, store: FSMStorage) -> None:
        """``set_data`` keeps flow, state and version."""
        await store.set_state(BOT, KEY, Record("signup", "name", {"a": 1}, 4))
        await store.set_data(BOT, KEY, {"b": 2})
        assert await store.get_state(BOT, KEY) == Record("signup", "name", {"b": 2}, 4)

    async def test_set_data_makes_a_record(self, store: FSMStorage) -> None:
        """``set_data`` where there was no record makes one with state ``None``."""
        await store.set_data(BOT, KEY, {"a": 1})
        assert await store.get_state(BOT, KEY) == Record(None, None, {"a": 1})

    async def test_set_empty_data_makes_a_record(self, store: FSMStorage) -> None:
        """``set_data`` makes a record also when the data is empty."""
        await store.set_data(BOT, KEY, {})
        assert await store.get_state(BOT, KEY) == Record()

    async def test_set_data_keeps_a_copy(self, store: FSMStorage) -> None:
        """``set_data`` takes its argument as it is now: changing it later changes nothing that is stored."""
        data: dict[str, Any] = {"list": [1]}
        await store.set_data(BOT, KEY, data)
        data["list"].append(2)
        data["new"] = 1
        assert await store.get_data(BOT, KEY) == {"list": [1]}

    async def test_set_data_refuses_what_cannot_be_stored(self, store: FSMStorage) -> None:
        """``set_data`` refuses data that would not come back as it is, and nothing changes."""
        await store.set_data(BOT, KEY, {"a": 1})
        for value in UNSTORABLE:
            with refuses(ValueError, TypeError):
                await store.set_data(BOT, KEY, {"b": 2, "value": value})
        assert await store.get_data(BOT, KEY) == {"a": 1}

    # ----------------------------------------------------------------------------------------- update_data

    async def test_update_data_merges(self, store: FSMStorage) -> None:
        """``update_data`` keeps what it does not name."""
        await store.set_data(BOT, KEY, {"a": 1, "b": 1})
        await store.update_data(BOT, KEY, {"c": 3})
        assert await store.get_data(BOT, KEY) == {"a": 1, "b": 1, "c": 3}

    async def test_update_data_new_keys_win(self, store: FSMStorage) -> None:
        """``update_data`` overwrites the keys that it names."""
        await store.set_data(BOT, KEY, {"a": 1, "b": 1})
        await store.update_data(BOT, KEY, {"b": 2})
        assert await store.get_data(BOT, KEY) == {"a": 1, "b": 2}

    async def test_update_data_merges_the_top_level(self, store: FSMStorage) -> None:
        """``update_data`` merges top-level keys; a nested dict is replaced as a whole."""
        await store.set_data(BOT, KEY, {"map": {"a": 1, "b": 1}, "list": [1, 2]})
        await store.update_data(BOT, KEY, {"map": {"b": 2}, "list": [3]})
        assert await store.get_data(BOT, KEY) == {"map": {"b": 2}, "list": [3]}

    async def test_update_data_answers_the_whole(self, store: FSMStorage) -> None:
        """``update_data`` answers all data as it is then."""
        await store.set_data(BOT, KEY, {"a": 1, "b": 1})
        assert await store.update_data(BOT, KEY, {"b": 2, "c": 3}) == {"a": 1, "b": 2, "c": 3}

    async def test_update_data_answer_is_the_callers_own(self, store: FSMStorage) -> None:
        """What ``update_data`` answers is the caller's own: changing it changes nothing that is stored."""
        found = await store.update_data(BOT, KEY, {"list": [1]})
        found["list"].append(2)
        found["new"] = 1
        assert await store.get_data(BOT, KEY) == {"list": [1]}

    async def test_update_data_keeps_flow_and_state(self, store: FSMStorage) -> None:
        """``update_data`` keeps flow, state and version."""
        await store.set_state(BOT, KEY, Record("signup", "name", {"a": 1}, 4))
        await store.update_data(BOT, KEY, {"b": 2})
        assert await store.get_state(BOT, KEY) == Record("signup", "name", {"a": 1, "b": 2}, 4)

    async def test_update_data_makes_a_record(self, store: FSMStorage) -> None:
        """``update_data`` where there was no record makes one with state ``None``."""
        assert await store.update_data(BOT, KEY, {"a": 1}) == {"a": 1}
        assert await store.get_state(BOT, KEY) == Record(None, None, {"a": 1})

    async def test_update_with_nothing_makes_a_record(self, store: FSMStorage) -> None:
        """``update_data`` with an empty dict makes a record where there was none."""
        assert await store.update_data(BOT, KEY, {}) == {}
        assert await store.get_state(BOT, KEY) == Record()

    async def test_update_with_nothing_changes_nothing(self, store: FSMStorage) -> None:
        """``update_data`` with an empty dict answers the data and changes nothing."""
        await store.set_state(BOT, KEY, Record("signup", "name", {"a": 1}))
        assert await store.update_data(BOT, KEY, {}) == {"a": 1}
        assert await store.get_state(BOT, KEY) == Record("signup", "name", {"a": 1})

    async def test_update_data_keeps_a_copy(self, store: FSMStorage) -> None:
        """``update_data`` takes its argument as it is now: changing it later changes nothing stored."""
        new: dict[str, Any] = {"list": [1]}
        await store.update_data(BOT, KEY, new)
        new["list"].append(2)
        new["other"] = 1
        assert await store.get_data(BOT, KEY) == {"list": [1]}

    async def test_update_data_refuses_what_cannot_be_stored(self, store: FSMStorage) -> None:
        """``update_data`` refuses data that would not come back as it is, and nothing changes."""
        await store.set_data(BOT, KEY, {"a": 1})
        for value in UNSTORABLE:
            with refuses(ValueError, TypeError):
                await store.update_data(BOT, KEY, {"b": 2, "value": value})
        assert await store.get_data(BOT, KEY) == {"a": 1}

    async def test_fifty_updates_leave_fifty_keys(self, store: FSMStorage) -> None:
        """Fifty concurrent ``update_data`` of one conversation leave fifty keys."""
        await asyncio.gather(*[store.update_data(BOT, KEY, {f"k{n}": n}) for n in range(50)])
        assert await store.get_data(BOT, KEY) == {f"k{n}": n for n in range(50)}

    async def test_fifty_updates_answer_what_they_made(self, store: FSMStorage) -> None:
        """Of fifty concurrent ``update_data``, each answer holds its own key, and one holds them all."""
        answers = await asyncio.gather(*[store.update_data(BOT, KEY, {f"k{n}": n}) for n in range(50)])
        assert all(answer[f"k{n}"] == n for n, answer in enumerate(answers))
        assert sorted(map(len, answers)) == list(range(1, 51))

    async def test_updates_of_many_conversations_do_not_mix(self, store: FSMStorage) -> None:
        """Concurrent ``update_data`` of many conversations each land in their own."""
        updates = [store.update_data(BOT, (n % 10, 0), {f"k{n}": n}) for n in range(50)]
        await asyncio.gather(*updates)
        for chat in range(10):
            assert await store.get_data(BOT, (chat, 0)) == {f"k{n}": n for n in range(chat, 50, 10)}

    async def test_update_and_set_state_both_count(self, store: FSMStorage) -> None:
        """An ``update_data`` beside a ``set_data`` is before or after it: never half of both."""
        await store.set_data(BOT, KEY, {"old": 1})
        await asyncio.gather(store.set_data(BOT, KEY, {"set": 1}), store.update_data(BOT, KEY, {"new": 1}))
        assert await store.get_data(BOT, KEY) in ({"set": 1}, {"set": 1, "new": 1})

    # ----------------------------------------------------------------------------------------------- clear

    async def test_clear_removes_everything(self, store: FSMStorage) -> None:
        """After ``clear``, ``get_state`` and ``get_data`` are ``None``."""
        await store.set_state(BOT, KEY, Record("signup", "name", {"a": 1}))
        await store.clear(BOT, KEY)
        assert await store.get_state(BOT, KEY) is None
        assert await store.get_data(BOT, KEY) is None

    async def test_clear_of_nothing_is_no_error(self, store: FSMStorage) -> None:
        """``clear`` of what is not there is no error and makes no record."""
        await store.clear(BOT, KEY)
        await store.clear(BOT, KEY)
        assert await store.get_state(BOT, KEY) is None

    async def test_clear_leaves_nothing_behind(self, store: FSMStorage) -> None:
        """What is written after ``clear`` starts afresh."""
        await store.set_state(BOT, KEY, Record("signup", "name", {"a": 1}, 4))
        await store.clear(BOT, KEY)
        await store.update_data(BOT, KEY, {"b": 2})
        assert await store.get_state(BOT, KEY) == Record(None, None, {"b": 2})

    async def test_clear_is_of_one_conversation(self, store: FSMStorage) -> None:
        """``clear`` touches no other conversation and no other bot."""
        for bot, key in ((BOT, KEY), (BOT, (7, 8)), ("another", KEY)):
            await store.set_data(bot, key, {"a": 1})
        await store.clear(BOT, KEY)
        assert await store.get_data(BOT, (7, 8)) == {"a": 1}
        assert await store.get_data("another", KEY) == {"a": 1}

    # ---------------------------------------------------------------------------------------- bots and keys

    async def test_bots_never_meet(self, store: FSMStorage) -> None:
        """Two bots never meet in one store, whatever their names."""
        bots = ["a", "A", "a:b", "a/b", "a%2Fb", "a*", "é", "e\u0301", "😀", "a b", "a\n", "{a}", "a" * 300]
        for bot in bots:
            await store.set_data(bot, KEY, {"bot": bot})
        for bot in bots:
            assert await store.get_data(bot, KEY) == {"bot": bot}

    async def test_bot_and_key_do_not_run_together(self, store: FSMStorage) -> None:
        """What belongs to the bot's name and what to the key is never confused."""
        pairs: list[tuple[str, Key]] = [
            ("a", ("b", "c")), ("a/b", ("c",)), ("a:b", ("c",)), ("a", ("b/c",)), ("a", ("b:c",)),
            ("ab", ("c",)), ("a//.b", ("c",)), ("a", (".b", "c")),
        ]  # fmt: skip
        for number, (bot, key) in enumerate(pairs):
            await store.set_data(bot, key, {"n": number})
        for number, (bot, key) in enumerate(pairs):
            assert await store.get_data(bot, key) == {"n": number}

    async def test_keys_that_look_alike_differ(self, store: FSMStorage) -> None:
        """Keys of different types or shapes never meet: `1`, `"1"`, `True`, `1.0`, `(7,)` and `7`."""
        for number, key in enumerate(TWINS):
            await store.set_data(BOT, key, {"n": number})
        for number, key in enumerate(TWINS):
            assert await store.get_data(BOT, key) == {"n": number}, key

    async def test_hostile_keys(self, store: FSMStorage) -> None:
        """A key may hold any text: separators, wildcards, quotes, controls, every plane of Unicode."""
        for number, text in enumerate(HOSTILE):
            await store.set_data(BOT, (text, 7), {"n": number})
        for number, text in enumerate(HOSTILE):
            assert await store.get_data(BOT, (text, 7)) == {"n": number}, text

    async def test_large_numbers_as_keys(self, store: FSMStorage) -> None:
        """A key may hold whole numbers of any size and sign, and no two of them meet."""
        numbers = [2**31, -(2**31), 2**53, 2**53 + 1, 2**63, -(2**63) - 1, 10**40, -1001234567890]
        for number in numbers:
            await store.set_data(BOT, (number,), {"n": number})
        for number in numbers:
            assert await store.get_data(BOT, (number,)) == {"n": number}

    async def test_an_impossible_key_is_refused(self, store: FSMStorage) -> None:
        """What cannot name a conversation is refused: NaN, objects, nested collections."""
        for key in ((float("nan"),), (object(),), ((1, 2),), ({},), (b"7",)):
            with refuses(ValueError, TypeError):
                await store.set_data(BOT, key, {"a": 1})  # type: ignore[arg-type]

    # ------------------------------------------------------------------------------------------------ data

    async def test_values_come_back_exactly(self, store: FSMStorage) -> None:
        """Data comes back exactly, types included: any integer, floats as floats, any text, empty things."""
        for value in VALUES:
            await store.set_data(BOT, KEY, {"value": value})
            assert same(await store.get_data(BOT, KEY), {"value": value})

    async def test_values_come_back_exactly_from_an_update(self, store: FSMStorage) -> None:
        """``update_data`` answers values as exactly as ``get_data`` does, those it did not touch too."""
        expected: dict[str, Any] = {}
        for number, value in enumerate(VALUES):
            expected[f"v{number}"] = value
            answer = await store.update_data(BOT, KEY, {f"v{number}": value})
            assert same(answer, expected)
        found = await store.get_state(BOT, KEY)
        assert found is not None
        assert same(found.data, expected)

    async def test_data_keys_are_any_text(self, store: FSMStorage) -> None:
        """The names in data are any text."""
        data = {text: number for number, text in enumerate((*HOSTILE, "", "flow", "version", "a.b", "$set"))}
        await store.set_data(BOT, KEY, data)
        assert await store.get_data(BOT, KEY) == data

    async def test_tuples_become_lists(self, store: FSMStorage) -> None:
        """Tuples become lists, on every store alike."""
        await store.set_data(BOT, KEY, {"pair": (1, (2, 3)), "nested": [{"pair": ()}]})
        assert same(await store.get_data(BOT, KEY), {"pair": [1, [2, 3]], "nested": [{"pair": []}]})

    async def test_lone_surrogates_are_refused(self, store: FSMStorage) -> None:
        """Text that is no text (a lone surrogate) is refused, as a value, as a name and in a key."""
        for data in ({"a": "\ud800"}, {"\ud800": 1}, {"a": [{"b": "x\udfff"}]}, {"a": {"\udc00": 1}}):
            with refuses(ValueError, TypeError):
                await store.set_data(BOT, KEY, data)
        with refuses(ValueError, TypeError):
            await store.set_data(BOT, ("\ud800",), {})
        assert await store.get_state(BOT, KEY) is None
