"""attach(dispatcher, keeper): real aiogram, long polling and webhooks, against the fake Telegram."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import Any

import pytest
from aiogram import BaseMiddleware, Bot, Dispatcher, F, Router
from aiogram.client.telegram import TelegramAPIServer
from aiogram.dispatcher.event.bases import CancelHandler, SkipHandler
from aiogram.filters import CommandStart
from aiogram.methods import SendMessage
from aiogram.types import CallbackQuery, ErrorEvent, InlineKeyboardButton, InlineKeyboardMarkup, Message

from aiogram_bots import TOKEN, a_bot, polling, until, webhook
from hitherto import Burst, Flow, Keeper, MemoryStore, Queue, Reject, State, Turn
from hitherto.addresses import Address
from hitherto.aiogram import DataIs, InFlow, InState, NoFlow, attach
from hitherto.errors import StoreUnavailable
from hitherto.protocol import Event, Terms
from hitherto.telegram import update_json
from hitherto.testing.telegram import FakeTelegram


@dataclass
class Person:
    name: str = ""
    size: str = ""


class Signup(Flow, data=Person):
    ask_name = State(to="ask_size", initial=True)
    ask_size = State(to=["done", "ask_name"])
    done = State()


class Order(Flow):
    size = State(initial=True)


@pytest.fixture
async def telegram():
    async with FakeTelegram(TOKEN) as fake:
        yield fake
    assert fake.server.faults == []


def attached(store: Any = "memory://", **options: Any) -> tuple[Dispatcher, Keeper]:
    dispatcher = Dispatcher()
    keeper = Keeper("bot", store, [Signup, Order], **{"backoff": lambda attempt: 0.01, **options})
    attach(dispatcher, keeper)
    return dispatcher, keeper


def signup_bot(store: Any = "memory://") -> tuple[Dispatcher, Keeper]:
    """The whole dialogue, spread over two routers."""
    dispatcher, keeper = attached(store)
    later = Router()
    dispatcher.include_router(later)

    @dispatcher.message(CommandStart(), NoFlow())
    async def start(message: Message, turn: Turn) -> None:
        turn.start(Signup)
        await message.answer("name?")

    @later.message(Signup.ask_name)
    async def name(message: Message, turn: Turn) -> None:
        turn.data.name = message.text
        turn.transition(Signup.ask_size)
        keys = [[InlineKeyboardButton(text="large", callback_data="large")]]
        await message.answer("size?", reply_markup=InlineKeyboardMarkup(inline_keyboard=keys))

    @later.callback_query(InState(Signup.ask_size))
    async def size(query: CallbackQuery, turn: Turn) -> None:
        turn.update_data(size=query.data)
        turn.transition(Signup.done)
        await query.answer()
        await query.message.answer(f"thank you, {turn.data.name}")

    @dispatcher.message(DataIs(size="large"), InFlow(Signup))
    async def large(message: Message) -> None:
        await message.answer("you are large")

    return dispatcher, keeper


async def a_dialogue(telegram: FakeTelegram) -> None:
    alice, bob = telegram.user("Alice"), telegram.user("Bob")
    alice.says("/start")
    assert (await alice.hears()).text == "name?"
    bob.says("/start")
    assert (await bob.hears()).text == "name?"
    alice.says("Ann")
    alice.presses((await alice.hears()).button("large"))
    assert (await alice.hears()).text == "thank you, Ann"
    alice.says("hm")
    assert (await alice.hears()).text == "you are large"
    bob.says("Bob")
    assert (await bob.hears()).text == "size?"


# --------------------------------------------------------------------------------- the turn, and the filters


async def test_a_dialogue_by_polling(telegram):
    dispatcher, keeper = signup_bot()
    async with polling(telegram, dispatcher):
        assert keeper.running
        await a_dialogue(telegram)
        await telegram.drained()
    assert not keeper.running


@pytest.mark.parametrize("background", [True, False])
async def test_a_dialogue_by_webhook(telegram, background):
    dispatcher, keeper = signup_bot()
    async with webhook(telegram, dispatcher, handle_in_background=background):
        assert keeper.running
        await a_dialogue(telegram)
        await telegram.drained()
    assert not keeper.running
    assert {attempt.status for attempt in telegram.attempts} == {200}


async def test_a_dialogue_goes_on_after_a_restart(telegram, tmp_path):
    alice = telegram.user("Alice")
    dispatcher, _ = signup_bot(f"sqlite:///{tmp_path}/bot.db")
    async with polling(telegram, dispatcher):
        alice.says("/start")
        assert (await alice.hears()).text == "name?"
    alice.says("Ann")
    dispatcher, _ = signup_bot(f"sqlite:///{tmp_path}/bot.db")
    async with polling(telegram, dispatcher):
        assert (await alice.hears()).text == "size?"
    assert [said.text for said in alice.messages] == ["name?", "size?"]


@pytest.mark.parametrize(
    ("asked", "where"),
    [
        (InFlow(), {"name", "size", "order"}),
        (InFlow(Signup), {"name", "size"}),
        (InFlow(Order, Signup), {"name", "size", "order"}),
        (NoFlow(), {"none"}),
        (Signup.ask_size, {"size"}),
        (InState(Signup.ask_name, Order.size), {"name", "order"}),
        (DataIs(size="large"), {"size"}),
        (~InFlow(Signup), {"none", "order"}),
    ],
)
async def test_filters(asked, where):
    """Each filter, asked in each of four places through the dispatcher, says yes in these."""
    dispatcher, keeper = attached()
    passed: list[str] = []

    @dispatcher.message(asked)
    async def yes(message: Message) -> None:
        passed.append(message.text)

    places = {"none": (None, {}), "name": (Signup.ask_name, {}), "order": (Order.size, {"size": 1})}
    places["size"] = (Signup.ask_size, {"size": "large"})
    async with keeper, FakeTelegram(TOKEN) as telegram:
        bot = a_bot(telegram)
        for number, (place, (state, data)) in enumerate(places.items()):
            async with keeper.open((number + 1, number + 1)) as turn:
                if state is not None:
                    turn.force(state.flow, state)
                    turn.update_data(data)
            await dispatcher.feed_raw_update(bot, an_update(number + 1, text=place))
        await bot.session.close()
    assert set(passed) == where


def an_update(number: int, chat: int | None = None, text: str = "hello") -> dict[str, Any]:
    chat = number if chat is None else chat
    who = {"id": chat, "is_bot": False, "first_name": "Ann"}
    place = {"id": chat, "type": "private", "first_name": "Ann"}
    message = {"message_id": number, "date": 1, "chat": place, "from": who, "text": text}
    return {"update_id": number, "message": message}


@pytest.mark.parametrize("asked", [NoFlow(), Signup.ask_name])
async def test_a_filter_without_a_keeper_says_what_is_missing(asked):
    dispatcher = Dispatcher()
    dispatcher.message(asked)(lambda message: None)
    async with FakeTelegram(TOKEN) as telegram:
        bot = a_bot(telegram)
        with pytest.raises(TypeError, match="attach"):
            await dispatcher.feed_raw_update(bot, an_update(1))
        await bot.session.close()


async def test_an_update_of_no_conversation_has_an_empty_turn(telegram):
    dispatcher, keeper = attached()
    seen: list[Turn] = []

    @dispatcher.poll()
    async def poll(poll: Any, turn: Turn) -> None:
        seen.append(turn)

    async with polling(telegram, dispatcher):
        poll = {"id": "1", "question": "?", "options": [], "total_voter_count": 0, "is_closed": False}
        kinds = {"is_anonymous": True, "type": "regular", "allows_multiple_answers": False}
        telegram.push({"poll": {**poll, **kinds, "allows_revoting": False, "members_only": False}})
        await until(lambda: seen)
        await telegram.drained()
    assert seen[0].key is None
    assert keeper.counts["no-key"] == 1


# ----------------------------------------------------------------------------- routers, middlewares, errors


class Noted(BaseMiddleware):
    def __init__(self, name: str, notes: list[Any]) -> None:
        self.name, self.notes = name, notes

    async def __call__(self, handler: Any, event: Any, data: dict[str, Any]) -> Any:
        self.notes.append((self.name, data["turn"].event.update_id))
        return await handler(event, {**data, "middle": "ware"})


def noted_bot(
    store: Any = "memory://", **options: Any
) -> tuple[Dispatcher, Keeper, list[Any], asyncio.Event]:
    """Two routers, a middleware of every sort (some after attach), and a handler that can be held up."""
    notes: list[Any] = []
    go = asyncio.Event()
    dispatcher = Dispatcher(answer=42)
    dispatcher.update.outer_middleware(Noted("before", notes))
    keeper = Keeper("bot", store, [Signup], **{"backoff": lambda attempt: 0.01, **options})
    attach(dispatcher, keeper)
    dispatcher.update.outer_middleware(Noted("after", notes))
    dispatcher.message.outer_middleware(Noted("outer", notes))
    router = Router()
    router.message.middleware(Noted("inner", notes))
    dispatcher.include_routers(Router(), router)

    @router.message()
    async def note(message: Message, turn: Turn, answer: int, middle: str) -> SendMessage:
        await go.wait()
        turn.update_data(texts=[*turn.data.get("texts", []), message.text])
        notes.append((message.text, answer, middle))
        return message.answer(f"heard {message.text}")

    return dispatcher, keeper, notes, go


ALL = ["before", "after", "outer", "inner"]


def through(notes: list[Any], number: int) -> list[str]:
    return [note[0] for note in notes if note[1] == number]


async def test_what_waits_goes_through_all_routers_and_middlewares(telegram):
    dispatcher, keeper, notes, go = noted_bot()
    alice = telegram.user("Alice")
    async with polling(telegram, dispatcher):
        made = [alice.says(text) for text in ("one", "two", "three")]
        await telegram.drained()
        assert [note for note in notes if note[0] == "inner"] == [("inner", made[0]["update_id"])]
        go.set()
        heard = [(await alice.hears()).text for _ in range(3)]
    assert heard == ["heard one", "heard two", "heard three"]
    for update in made:
        assert through(notes, update["update_id"]) == ALL
    assert keeper.counts["queued"] == 2


async def left_behind(store: MemoryStore, telegram: FakeTelegram, text: str, number: int = 77) -> None:
    """An update that a worker accepted before it died."""
    alice = telegram.user("Alice", id=7)
    update = {
        "update_id": number,
        "message": telegram.world.write(alice.chat, {"text": text}, sender=alice.user),
    }
    address = Address("bot", "", (7, 7))
    event = Event(f"tg:{number}", update_json(update))
    answer = await store.accept(address, event, Queue(), "the dead", None, Terms(lease=1e-6))
    assert answer.status == "granted"


@pytest.mark.parametrize("way", [polling, webhook])
async def test_what_a_crash_left_behind_goes_through_all_of_them_at_the_start(telegram, way):
    store = MemoryStore()
    await left_behind(store, telegram, "late")
    dispatcher, keeper, notes, go = noted_bot(store)
    started: list[str] = []
    dispatcher.sub_routers[-1].startup()(lambda: started.append("user"))
    go.set()
    async with way(telegram, dispatcher):
        await until(lambda: telegram.calls_of("sendMessage"))
        await keeper.idle()
    assert started == ["user"]
    assert telegram.calls_of("sendMessage")[0]["text"] == "heard late"
    assert through(notes, 77) == ALL
    assert ("late", 42, "ware") in notes
    assert (await store.get_data("bot", (7, 7))) == {"texts": ["late"]}


async def test_data_of_start_polling_reaches_what_was_left_behind(telegram):
    store = MemoryStore()
    await left_behind(store, telegram, "late")
    dispatcher, _keeper = attached(store)
    seen: list[Any] = []

    @dispatcher.message()
    async def note(message: Message, extra: str, bot: Any) -> None:
        seen.append((extra, bot.id, message.bot.id))

    async with polling(telegram, dispatcher, extra="given"):
        await until(lambda: seen)
    assert seen == [("given", 42, 42)]


async def test_redelivered_updates_are_handled_once(telegram):
    dispatcher, keeper, _notes, go = noted_bot()
    go.set()
    alice = telegram.user("Alice")
    telegram.mischief(duplicate=0.5, reorder=0.2, seed=3)
    async with polling(telegram, dispatcher):
        made = [alice.says(str(number)) for number in range(30)]
        await telegram.drained()
        await keeper.idle()
        for update in made[:5]:
            telegram.redeliver(update["update_id"])
        await telegram.drained()
        data = await keeper.store.get_data("bot", (alice.id, alice.id))
    assert sorted(map(int, data["texts"])) == list(range(30))
    assert keeper.counts["duplicate"] >= 5
    assert keeper.counts["committed"] == 30


async def test_an_error_handler_that_takes_care_ends_the_event_and_the_turn_changes_nothing(telegram):
    dispatcher, keeper = attached()
    errors: list[Any] = []

    @dispatcher.message()
    async def fail(message: Message, turn: Turn) -> None:
        turn.start(Signup)
        raise ZeroDivisionError

    @dispatcher.errors()
    async def caught(error: ErrorEvent, turn: Turn) -> SendMessage:
        errors.append((type(error.exception), turn.flow))
        turn.update_data(failed=True)
        return error.update.message.answer("sorry")

    alice = telegram.user("Alice")
    async with polling(telegram, dispatcher):
        alice.says("hello")
        assert (await alice.hears()).text == "sorry"
        await telegram.drained()
        await keeper.idle()
        record = await keeper.store.get_state("bot", (alice.id, alice.id))
    assert errors == [(ZeroDivisionError, None)]
    assert (record.flow, record.data) == (None, {"failed": True})
    assert keeper.counts["committed"] == 1


async def test_an_error_nobody_takes_care_of_is_tried_again_by_the_keeper(telegram, caplog):
    caplog.set_level(logging.CRITICAL, "aiogram.event")
    dispatcher, keeper = attached(max_attempts=3)
    tries: list[int] = []

    @dispatcher.message(F.text == "bad")
    async def fail(message: Message, turn: Turn) -> None:
        tries.append(turn.attempt)
        turn.update_data(lost=True)
        if turn.attempt < 3:
            raise ZeroDivisionError
        turn.clear()
        turn.update_data(kept=True)

    alice = telegram.user("Alice")
    async with polling(telegram, dispatcher):
        alice.says("bad")
        await until(lambda: len(tries) == 3)
        await keeper.idle()
        data = await keeper.store.get_data("bot", (alice.id, alice.id))
    assert tries == [1, 2, 3]
    assert data == {"kept": True}


async def test_what_is_given_up_is_a_dead_letter_and_the_next_one_is_handled(telegram, caplog):
    caplog.set_level(logging.CRITICAL, "aiogram.event")
    dispatcher, keeper = attached(max_attempts=2)

    @dispatcher.message(F.text == "bad")
    async def fail(message: Message) -> None:
        raise ZeroDivisionError

    @dispatcher.message()
    async def fine(message: Message) -> None:
        await message.answer("fine")

    alice = telegram.user("Alice")
    async with polling(telegram, dispatcher):
        alice.says("bad")
        alice.says("good")
        assert (await alice.hears()).text == "fine"
        await until(lambda: keeper.counts["dead"])
        (letter,) = await keeper.dead_letters((alice.id, alice.id))
    assert letter.error.endswith("builtins.ZeroDivisionError")


async def test_skip_goes_to_the_next_handler_and_cancel_ends_the_event(telegram):
    dispatcher, keeper = attached()
    texts: list[str] = []

    @dispatcher.message()
    async def skip(message: Message, turn: Turn) -> None:
        turn.update_data(skipped=True)
        raise SkipHandler

    @dispatcher.message(F.text == "stop")
    async def stop(message: Message, turn: Turn) -> None:
        texts.append("cancelled")
        raise CancelHandler

    @dispatcher.message()
    async def last(message: Message, turn: Turn) -> None:
        texts.append(message.text)

    alice = telegram.user("Alice")
    async with polling(telegram, dispatcher):
        alice.says("go")
        alice.says("stop")
        await until(lambda: len(texts) == 2)
        await telegram.drained()
        await keeper.idle()
        document = await keeper.inspect((alice.id, alice.id))
        data = await keeper.store.get_data("bot", (alice.id, alice.id))
    assert texts == ["go", "cancelled"]
    assert data == {"skipped": True}
    assert (document.inbox, len(document.seen)) == ((), 2)


async def test_an_unhandled_update_is_done(telegram):
    dispatcher, keeper = attached()
    dispatcher.message(F.text == "known")(lambda message: None)
    alice = telegram.user("Alice")
    async with polling(telegram, dispatcher):
        alice.says("unknown")
        await telegram.drained()
        await keeper.idle()
        document = await keeper.inspect((alice.id, alice.id))
    assert (document.inbox, document.record, keeper.counts["committed"]) == ((), None, 1)


async def test_a_burst_is_one_turn_with_the_newest_event(telegram):
    dispatcher, keeper = attached(overlap=Burst(0))
    go, seen = asyncio.Event(), []

    @dispatcher.message()
    async def note(message: Message, turn: Turn) -> None:
        seen.append((message.text, [one.message.text for one in turn.skipped]))
        await go.wait()

    alice = telegram.user("Alice")
    async with polling(telegram, dispatcher):
        for text in "abcd":
            alice.says(text)
        await telegram.drained()
        go.set()
        await keeper.idle()
    assert seen == [("a", []), ("d", ["b", "c"])]


# ------------------------------------------------------------------- accepted before it is confirmed


class Slow(MemoryStore):
    """A store whose accept waits to be let through, or fails."""

    def __init__(self) -> None:
        super().__init__()
        self.go = asyncio.Event()
        self.away = False
        self.asked = 0

    async def accept(self, *arguments: Any) -> Any:
        self.asked += 1
        if self.away:
            raise StoreUnavailable("it is away")
        await self.go.wait()
        return await super().accept(*arguments)


@pytest.mark.parametrize("as_tasks", [True, False])
async def test_polling_confirms_only_what_is_accepted(telegram, as_tasks):
    store = Slow()
    dispatcher, _keeper, _notes, go = noted_bot(store)
    go.set()
    alice = telegram.user("Alice")
    async with polling(telegram, dispatcher, handle_as_tasks=as_tasks):
        alice.says("one")
        await until(lambda: store.asked)
        asked = len(telegram.calls_of("getUpdates"))
        await asyncio.sleep(0.1)
        assert len(telegram.calls_of("getUpdates")) == asked
        assert telegram.confirmed == ()
        store.go.set()
        assert (await alice.hears()).text == "heard one"
        await telegram.drained()


@pytest.mark.parametrize("as_tasks", [True, False])
async def test_polling_asks_again_for_what_could_not_be_accepted(telegram, as_tasks, caplog):
    caplog.set_level(logging.CRITICAL)
    store = Slow()
    store.go.set()
    store.away = True
    dispatcher, _keeper, _notes, go = noted_bot(store, deadline=0.05)
    go.set()
    alice, bob = telegram.user("Alice"), telegram.user("Bob")
    async with polling(telegram, dispatcher, handle_as_tasks=as_tasks):
        alice.says("one")
        bob.says("two")
        await until(lambda: len(telegram.calls_of("getUpdates")) > 3)
        assert telegram.confirmed == ()
        store.away = False
        assert (await alice.hears()).text == "heard one"
        assert (await bob.hears()).text == "heard two"
        await telegram.drained()
    assert len(alice.messages) == len(bob.messages) == 1


async def test_polling_asks_again_for_what_the_policy_refuses(telegram):
    dispatcher, keeper, _notes, go = noted_bot(overlap=Reject())
    alice = telegram.user("Alice")
    async with polling(telegram, dispatcher):
        alice.says("one")
        alice.says("two")
        await until(lambda: keeper.counts["busy"] >= 2)
        assert len(telegram.confirmed) == 1
        go.set()
        assert [(await alice.hears()).text for _ in range(2)] == ["heard one", "heard two"]
        await telegram.drained()


@pytest.mark.parametrize("background", [True, False])
async def test_a_webhook_is_answered_only_when_the_event_is_kept(telegram, background):
    store = Slow()
    dispatcher, _keeper, _notes, go = noted_bot(store)
    go.set()
    alice = telegram.user("Alice")
    async with webhook(telegram, dispatcher, handle_in_background=background):
        alice.says("one")
        await until(lambda: store.asked)
        await asyncio.sleep(0.05)
        assert telegram.attempts == ()
        store.go.set()
        assert (await alice.hears()).text == "heard one"
        await telegram.drained()
    assert [attempt.status for attempt in telegram.attempts] == [200]


async def test_in_the_background_a_webhook_is_answered_before_the_handler_ends(telegram):
    dispatcher, _keeper, _notes, go = noted_bot()
    alice = telegram.user("Alice")
    async with webhook(telegram, dispatcher):
        alice.says("one")
        await telegram.drained()
        assert len(telegram.attempts) == 1
        go.set()
        assert (await alice.hears()).text == "heard one"


async def test_a_webhook_that_cannot_be_accepted_is_500_and_comes_again(telegram, caplog):
    caplog.set_level(logging.CRITICAL)
    store = Slow()
    store.go.set()
    store.away = True
    dispatcher, _keeper, _notes, go = noted_bot(store, deadline=0.02)
    go.set()
    alice = telegram.user("Alice")
    async with webhook(telegram, dispatcher):
        alice.says("one")
        await until(lambda: len(telegram.attempts) >= 2)
        store.away = False
        assert (await alice.hears()).text == "heard one"
        await telegram.drained()
    statuses = [attempt.status for attempt in telegram.attempts]
    assert statuses[-1] == 200
    assert set(statuses[:-1]) == {500}


async def test_a_webhook_refused_by_the_policy_comes_again(telegram, caplog):
    caplog.set_level(logging.CRITICAL)
    dispatcher, _keeper, _notes, go = noted_bot(overlap=Reject())
    alice = telegram.user("Alice")
    async with webhook(telegram, dispatcher):
        alice.says("one")
        await telegram.drained()
        alice.says("two")
        await until(lambda: 500 in {attempt.status for attempt in telegram.attempts})
        go.set()
        assert [(await alice.hears()).text for _ in range(2)] == ["heard one", "heard two"]
        await telegram.drained()


async def test_a_method_returned_by_a_handler_may_be_the_answer_of_the_webhook(telegram):
    dispatcher, _keeper, _notes, go = noted_bot()
    go.set()
    alice = telegram.user("Alice")
    async with webhook(telegram, dispatcher, handle_in_background=False):
        alice.says("one")
        assert (await alice.hears()).text == "heard one"
    assert len(telegram.calls_of("sendMessage")) == 1


async def test_an_update_without_a_handler_in_its_allowed_kinds_is_not_asked_for(telegram):
    dispatcher, _keeper = signup_bot()
    async with polling(telegram, dispatcher):
        pass
    (call, *_) = telegram.calls_of("getUpdates")
    assert set(call["allowed_updates"]) == {"message", "callback_query"}


# --------------------------------------------------------------------------------------- start and stop


async def test_a_keeper_of_ones_own_is_left_running(telegram):
    dispatcher, keeper, _notes, go = noted_bot()
    go.set()
    alice = telegram.user("Alice")
    async with keeper:
        for text in ("one", "two"):
            async with polling(telegram, dispatcher):
                alice.says(text)
                assert (await alice.hears()).text == f"heard {text}"
            assert keeper.running
    assert not keeper.running


async def test_what_runs_when_polling_ends_is_finished_first(telegram):
    dispatcher, keeper, notes, go = noted_bot()
    closed: list[Any] = []
    dispatcher.shutdown()(lambda: closed.append(len([note for note in notes if note[0] == "slow"])))
    alice = telegram.user("Alice")
    async with polling(telegram, dispatcher):
        alice.says("slow")
        await until(lambda: notes)
        asyncio.get_running_loop().call_later(0.1, go.set)
    assert closed == [1]
    assert (await alice.hears()).text == "heard slow"
    assert keeper.counts["committed"] == 1


async def test_what_does_not_finish_is_run_by_the_next_process(telegram):
    store = MemoryStore()
    dispatcher, _keeper, notes, go = noted_bot(store, grace=0.05)
    alice = telegram.user("Alice")
    async with polling(telegram, dispatcher):
        alice.says("slow")
        await telegram.drained()
    assert through(notes, 100_000_001) == ALL
    dispatcher, _keeper, notes, go = noted_bot(store)
    go.set()
    async with polling(telegram, dispatcher):
        assert (await alice.hears()).text == "heard slow"
    assert await store.get_data("bot", (alice.id, alice.id)) == {"texts": ["slow"]}


async def test_an_app_that_feeds_updates_itself(telegram):
    """Without startup and shutdown of aiogram: the keeper is the app's own."""
    dispatcher, keeper, _notes, go = noted_bot()
    go.set()
    bot = a_bot(telegram)
    alice = telegram.user("Alice", id=7)
    async with keeper:
        answer = await dispatcher.feed_raw_update(bot, an_update(1, chat=7))
        again = await dispatcher.feed_raw_update(bot, an_update(1, chat=7))
    await bot.session.close()
    assert isinstance(answer, SendMessage)
    assert again is None
    assert alice.messages == []


async def test_many_bots_are_refused_at_the_start(telegram):
    dispatcher, keeper, *_ = noted_bot()
    bots = a_bot(telegram), a_bot(telegram, "43:TEST")
    with pytest.raises(ValueError, match="give each bot a dispatcher and a keeper"):
        await dispatcher.start_polling(*bots, handle_signals=False)
    for bot in bots:
        await bot.session.close()
    assert not keeper.running


async def test_another_bot_that_shares_the_session_polls_on(telegram):
    """Its offsets are its own, and it does not wait for our updates to be accepted."""
    store = Slow()
    dispatcher, *_ = noted_bot(store)
    bot = a_bot(telegram)
    polled = asyncio.create_task(dispatcher.start_polling(bot, polling_timeout=5, handle_signals=False))
    alice = telegram.user("Alice")
    alice.says("one")
    await until(lambda: store.asked)
    async with FakeTelegram("43:TEST") as other, asyncio.timeout(10):
        another = Bot("43:TEST", session=bot.session)
        api, bot.session.api = bot.session.api, TelegramAPIServer.from_base(other.url)
        other.user("Bob").says("hello")
        (update,) = await another.get_updates(offset=other.pending[0]["update_id"], timeout=0)
        bot.session.api = api
    assert update.message.text == "hello"
    store.go.set()
    await until(lambda: telegram.confirmed)
    await dispatcher.stop_polling()
    await polled
    await bot.session.close()


async def test_an_update_of_another_bot_is_refused(telegram):
    dispatcher, keeper, _notes, go = noted_bot()
    go.set()
    bots = a_bot(telegram), a_bot(telegram, "43:TEST")
    async with keeper:
        await dispatcher.feed_raw_update(bots[0], an_update(1))
        with pytest.raises(ValueError, match="give each bot a dispatcher and a keeper"):
            await dispatcher.feed_raw_update(bots[1], an_update(2))
    for bot in bots:
        await bot.session.close()


def test_a_dispatcher_has_one_keeper():
    dispatcher, _ = attached()
    with pytest.raises(ValueError, match="has a keeper already"):
        attach(dispatcher, Keeper("other"))
