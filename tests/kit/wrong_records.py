"""Wrong FSM storages: seven methods each, one of them mistaken."""

from __future__ import annotations

import asyncio
import copy
import json
import unicodedata

from hitherto import codec
from hitherto.addresses import Address, encode
from hitherto.records import Record
from kit.wrong import wrong_storage


class Storage:
    """An honest FSM storage in thirty lines."""

    def __init__(self):
        self.rows = {}

    def place(self, bot, key):
        return encode(Address(bot, "", key))

    def pack(self, data):
        return codec.join(codec.encode(data))

    def unpack(self, packed):
        return codec.decode_value(packed)

    async def init(self, bot, **options):
        pass

    async def get_state(self, bot, key):
        row = self.rows.get(self.place(bot, key))
        return None if row is None else Record(row[0], row[1], self.unpack(row[3]), row[2])

    async def set_state(self, bot, key, record):
        packed = self.pack(record.data)
        self.rows[self.place(bot, key)] = (record.flow, record.state, record.version, packed)

    async def get_data(self, bot, key):
        row = self.rows.get(self.place(bot, key))
        return None if row is None else self.unpack(row[3])

    async def set_data(self, bot, key, data):
        row = self.rows.get(self.place(bot, key), (None, None, 1, b""))
        self.rows[self.place(bot, key)] = (*row[:3], self.pack(data))

    async def update_data(self, bot, key, new):
        data = {**(await self.get_data(bot, key) or {}), **self.unpack(self.pack(new))}
        await self.set_data(bot, key, data)
        return self.unpack(self.pack(data))

    async def clear(self, bot, key):
        self.rows.pop(self.place(bot, key), None)


@wrong_storage("test_init_may_be_called_again")
class InitErases(Storage):
    async def init(self, bot, **options):
        self.rows = {text: row for text, row in self.rows.items() if not text.startswith(f"{bot}/")}


@wrong_storage("test_init_of_one_bot_leaves_others_alone")
class InitErasesOthers(Storage):
    async def init(self, bot, **options):
        self.rows = {text: row for text, row in self.rows.items() if text.startswith(f"{bot}/")}


@wrong_storage("test_init_takes_options")
class InitStoresItsOptions(Storage):
    async def init(self, bot, **options):
        if options:
            await self.set_data(bot, (7, 7), {"options": len(options)})


@wrong_storage("test_unknown_state_is_none")
class UnknownIsBlank(Storage):
    async def get_state(self, bot, key):
        return await super().get_state(bot, key) or Record()


@wrong_storage("test_unknown_data_is_none")
class UnknownDataIsEmpty(Storage):
    async def get_data(self, bot, key):
        return await super().get_data(bot, key) or {}


@wrong_storage("test_data_of_a_record_without_data_is_empty")
class EmptyDataIsNone(Storage):
    async def get_data(self, bot, key):
        return await super().get_data(bot, key) or None


@wrong_storage("test_state_comes_back")
class SwapsFlowAndState(Storage):
    async def get_state(self, bot, key):
        record = await super().get_state(bot, key)
        return record and Record(record.state, record.flow, record.data, record.version)


@wrong_storage("test_state_version_comes_back")
class LosesTheVersion(Storage):
    async def get_state(self, bot, key):
        record = await super().get_state(bot, key)
        return record and Record(record.flow, record.state, record.data)


@wrong_storage("test_state_none_comes_back")
class NoStateNoFlow(Storage):
    async def set_state(self, bot, key, record):
        flow = record.flow if record.state is not None else None
        await super().set_state(bot, key, Record(flow, record.state, record.data, record.version))


@wrong_storage("test_state_names_are_any_text")
class EmptyNamesAreNone(Storage):
    async def set_state(self, bot, key, record):
        record = Record(record.flow or None, record.state or None, record.data, record.version)
        await super().set_state(bot, key, record)


class Sharing(Storage):
    """Keeps objects instead of what they say."""

    def pack(self, data):
        codec.encode(data)
        return data

    def unpack(self, packed):
        return packed


@wrong_storage("test_got_data_is_the_callers_own")
class SharesWhatItGives(Sharing):
    def pack(self, data):
        return copy.deepcopy(super().pack(data))


@wrong_storage("test_set_data_keeps_a_copy", "test_set_state_keeps_a_copy")
class KeepsWhatItGets(Sharing):
    def unpack(self, packed):
        return copy.deepcopy(packed)


@wrong_storage("test_got_state_is_the_callers_own")
class CachesStates(Storage):
    def __init__(self):
        super().__init__()
        self.cache = {}

    async def get_state(self, bot, key):
        place = self.place(bot, key)
        if place not in self.cache:
            self.cache[place] = await super().get_state(bot, key)
        return self.cache[place]

    async def set_state(self, bot, key, record):
        await super().set_state(bot, key, record)
        self.cache.pop(self.place(bot, key), None)


@wrong_storage("test_data_is_that_of_the_state", "test_set_state_keeps_a_copy")
class KeepsTheRecord(Storage):
    def __init__(self):
        super().__init__()
        self.records = {}

    async def get_state(self, bot, key):
        return copy.deepcopy(self.records.get(self.place(bot, key))) or await super().get_state(bot, key)

    async def set_state(self, bot, key, record):
        await super().set_state(bot, key, record)
        self.records[self.place(bot, key)] = record


@wrong_storage("test_set_state_overwrites_everything")
class SetStateMerges(Storage):
    async def set_state(self, bot, key, record):
        data = {**(await self.get_data(bot, key) or {}), **record.data}
        await super().set_state(bot, key, Record(record.flow, record.state, data, record.version))


@wrong_storage("test_set_state_may_leave_the_flow")
class SetStateNeverLeaves(Storage):
    async def set_state(self, bot, key, record):
        before = await self.get_state(bot, key) or Record()
        flow, state = record.flow or before.flow, record.state or before.state
        await super().set_state(bot, key, Record(flow, state, record.data, record.version))


@wrong_storage("test_set_state_without_data_is_a_record")
class BlankRecordsAreNone(Storage):
    async def set_state(self, bot, key, record):
        await super().set_state(bot, key, record)
        if record == Record():
            await self.clear(bot, key)


class Careless(Storage):
    """Stores what would not come back."""

    def pack(self, data):
        return json.dumps(data, default=str, skipkeys=True).encode()


@wrong_storage("test_set_state_refuses_what_cannot_be_stored")
class CarelessAboutStates(Storage):
    async def set_state(self, bot, key, record):
        place = self.place(bot, key)
        packed = Careless().pack({name: str(value) for name, value in record.data.items()})
        self.rows[place] = (record.flow, record.state, record.version, packed)


@wrong_storage("test_set_data_refuses_what_cannot_be_stored")
class CarelessAboutData(Storage):
    async def set_data(self, bot, key, data):
        try:
            await super().set_data(bot, key, data)
        except ValueError:
            await super().set_data(bot, key, {"value": "?"})


@wrong_storage("test_update_data_refuses_what_cannot_be_stored")
class CarelessAboutUpdates(Storage):
    async def update_data(self, bot, key, new):
        try:
            return await super().update_data(bot, key, new)
        except ValueError:
            return await super().update_data(bot, key, {"value": "?"})


@wrong_storage("test_update_data_refuses_what_cannot_be_stored")
class ChecksTooLate(Storage):
    async def update_data(self, bot, key, new):
        for name, value in new.items():
            await super().update_data(bot, key, {name: value})
        return await self.get_data(bot, key)


@wrong_storage("test_set_data_makes_a_record")
class TwoDatas(Storage):
    async def get_data(self, bot, key):
        return await super().get_data(f"{bot}-data", key)

    async def set_data(self, bot, key, data):
        await super().set_data(f"{bot}-data", key, data)


@wrong_storage("test_update_data_keeps_a_copy")
class UpdateKeepsItsArgument(Storage):
    def __init__(self):
        super().__init__()
        self.late = {}

    async def update_data(self, bot, key, new):
        data = await super().update_data(bot, key, new)
        self.late[self.place(bot, key)] = new
        return data

    async def get_data(self, bot, key):
        late = self.late.pop(self.place(bot, key), None)
        if late is not None:
            await super().update_data(bot, key, late)
        return await super().get_data(bot, key)


@wrong_storage("test_set_data_overwrites")
class SetDataMerges(Storage):
    async def set_data(self, bot, key, data):
        await super().set_data(bot, key, {**(await self.get_data(bot, key) or {}), **data})


@wrong_storage("test_set_data_may_empty")
class SetDataNeverEmpties(Storage):
    async def set_data(self, bot, key, data):
        if data or await self.get_state(bot, key) is None:
            await super().set_data(bot, key, data)


@wrong_storage("test_set_data_keeps_flow_and_state")
class SetDataForgetsTheState(Storage):
    async def set_data(self, bot, key, data):
        await self.set_state(bot, key, Record(None, None, data))


@wrong_storage("test_update_data_merges")
class SetDataNeedsARecord(Storage):
    async def set_data(self, bot, key, data):
        if await self.get_state(bot, key) is not None or self.pack(data) == b"{}":
            await super().set_data(bot, key, data)


@wrong_storage("test_set_empty_data_makes_a_record")
class SetDataNeedsData(Storage):
    async def set_data(self, bot, key, data):
        if data or await self.get_state(bot, key) is not None:
            await super().set_data(bot, key, data)


@wrong_storage("test_update_data_merges", "test_update_data_new_keys_win")
class UpdateReplaces(Storage):
    async def update_data(self, bot, key, new):
        await self.set_data(bot, key, new)
        return await self.get_data(bot, key)


@wrong_storage("test_update_data_answers_the_whole", "test_update_data_new_keys_win")
class UpdateKeepsTheOld(Storage):
    async def update_data(self, bot, key, new):
        return await super().update_data(bot, key, {**new, **(await self.get_data(bot, key) or {})})


def deeply(old, new):
    """A merge all the way down."""
    if isinstance(old, dict) and isinstance(new, dict):
        return {**old, **{name: deeply(old.get(name), value) for name, value in new.items()}}
    return new


@wrong_storage("test_update_data_merges_the_top_level")
class UpdateMergesDeeply(Storage):
    async def update_data(self, bot, key, new):
        return await super().update_data(bot, key, deeply(await self.get_data(bot, key) or {}, new))


@wrong_storage("test_fifty_updates_answer_what_they_made")
class UpdateAnswersTheNew(Storage):
    async def update_data(self, bot, key, new):
        await super().update_data(bot, key, new)
        return self.unpack(self.pack(new))


@wrong_storage("test_update_data_answer_is_the_callers_own")
class UpdateAnswersItsOwn(Storage):
    async def update_data(self, bot, key, new):
        data = await super().update_data(bot, key, new)
        self.rows[self.place(bot, key)] = (*self.rows[self.place(bot, key)][:3], data)
        return data

    def unpack(self, packed):
        return packed if isinstance(packed, dict) else super().unpack(packed)


@wrong_storage("test_update_data_keeps_flow_and_state")
class UpdateForgetsTheState(Storage):
    async def update_data(self, bot, key, new):
        data = await super().update_data(bot, key, new)
        await self.set_state(bot, key, Record(None, None, data))
        return data


@wrong_storage("test_update_data_makes_a_record")
class UpdateNeedsARecord(Storage):
    async def update_data(self, bot, key, new):
        if new and await self.get_state(bot, key) is None:
            return {}
        return await super().update_data(bot, key, new)


@wrong_storage("test_update_with_nothing_makes_a_record")
class UpdateNeedsData(Storage):
    async def update_data(self, bot, key, new):
        return await super().update_data(bot, key, new) if new else await self.get_data(bot, key) or {}


@wrong_storage("test_update_with_nothing_changes_nothing")
class UpdateWithNothingEmpties(Storage):
    async def update_data(self, bot, key, new):
        if not new:
            await self.set_data(bot, key, {})
        return await super().update_data(bot, key, new)


@wrong_storage("test_fifty_updates_answer_what_they_made", "test_fifty_updates_leave_fifty_keys")
class ReadsThenWrites(Storage):
    async def update_data(self, bot, key, new):
        data = {**(await self.get_data(bot, key) or {}), **new}
        await asyncio.sleep(0)
        await self.set_data(bot, key, data)
        return await self.get_data(bot, key)


@wrong_storage("test_updates_of_many_conversations_do_not_mix")
class OneBufferForAll(Storage):
    """What is updated at the same moment lands in the conversation that came last."""

    async def update_data(self, bot, key, new):
        self.last = key
        await asyncio.sleep(0)
        return await super().update_data(bot, self.last, new)


@wrong_storage("test_update_and_set_state_both_count")
class TearsSetData(Storage):
    async def set_data(self, bot, key, data):
        old = await self.get_data(bot, key) or {}
        await super().set_data(bot, key, data)
        await asyncio.sleep(0)
        if "old" in old and "new" in (await self.get_data(bot, key) or {}):
            await super().set_data(bot, key, {**old, **data})


@wrong_storage("test_clear_removes_everything")
class ClearDoesNothing(Storage):
    async def clear(self, bot, key):
        pass


@wrong_storage("test_clear_of_nothing_is_no_error")
class ClearMakesARecord(Storage):
    async def clear(self, bot, key):
        self.rows[self.place(bot, key)] = (None, None, 1, b"{}")


@wrong_storage("test_clear_leaves_nothing_behind")
class ClearLeavesTheVersion(Storage):
    async def clear(self, bot, key):
        self.left = self.rows.pop(self.place(bot, key), None)

    async def update_data(self, bot, key, new):
        if self.place(bot, key) not in self.rows and getattr(self, "left", None):
            self.rows[self.place(bot, key)] = (*self.left[:3], b"{}")
        return await super().update_data(bot, key, new)


@wrong_storage("test_clear_is_of_one_conversation")
class ClearTakesTheWholeBot(Storage):
    async def clear(self, bot, key):
        self.rows = {text: row for text, row in self.rows.items() if not text.startswith(f"{bot}/")}


@wrong_storage("test_bots_never_meet")
class BotsIgnoringCase(Storage):
    def place(self, bot, key):
        return super().place(bot.casefold(), key)


@wrong_storage("test_bot_and_key_do_not_run_together")
class JoinedWithColons(Storage):
    def place(self, bot, key):
        encode(Address(bot, "", key))
        parts = key if isinstance(key, tuple) else (key,)
        return ":".join([bot, *map(str, parts)])


@wrong_storage("test_keys_that_look_alike_differ")
class KeysAsText(Storage):
    def place(self, bot, key):
        encode(Address(bot, "", key))
        return bot, str(key)


@wrong_storage("test_keys_that_look_alike_differ")
class KeysAsPythonSeesThem(Storage):
    def place(self, bot, key):
        encode(Address(bot, "", key))
        return bot, key


@wrong_storage("test_hostile_keys")
class KeysNormalised(Storage):
    def place(self, bot, key):
        return unicodedata.normalize("NFC", repr((bot, key))).replace("\\x00", "")


@wrong_storage("test_large_numbers_as_keys")
class KeysInDoubles(Storage):
    def place(self, bot, key):
        parts = key if isinstance(key, tuple) else (key,)
        numbers = tuple([float(part) if type(part) is int else part for part in parts])
        return super().place(bot, numbers if isinstance(key, tuple) else numbers[0])


@wrong_storage("test_an_impossible_key_is_refused")
class AnyKeyWillDo(Storage):
    def place(self, bot, key):
        try:
            return super().place(bot, key)
        except (ValueError, TypeError):
            return repr((bot, key))


@wrong_storage("test_values_come_back_exactly")
class FloatsMayBecomeIntegers(Storage):
    def unpack(self, packed):
        return json.loads(
            packed, parse_float=lambda text: int(float(text)) if float(text) % 1 == 0 else float(text)
        )


@wrong_storage("test_values_come_back_exactly_from_an_update")
class UpdatesInDoubles(Storage):
    async def update_data(self, bot, key, new):
        data = await super().update_data(bot, key, new)
        return {name: float(value) if type(value) is int else value for name, value in data.items()}


@wrong_storage("test_data_keys_are_any_text")
class NamesTrimmed(Storage):
    def pack(self, data):
        return super().pack({name.strip(): value for name, value in data.items()})


@wrong_storage("test_tuples_become_lists")
class TuplesAsText(Storage):
    def pack(self, data):
        codec.encode(data)
        flat = {name: str(value) if type(value) is tuple else value for name, value in data.items()}
        return super().pack(flat)


@wrong_storage("test_lone_surrogates_are_refused")
class SurrogatesReplaced(Storage):
    def pack(self, data):
        text = json.dumps(data, ensure_ascii=False) if "\\ud" in repr(data) or "\\udc" in repr(data) else None
        return super().pack(data) if text is None else text.encode(errors="replace")
