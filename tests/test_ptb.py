"""attach(application, keeper): real python-telegram-bot, polling and webhooks, against the fake Telegram."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import Any

import pytest
from telegram import InlineKeyboardButton, InlineKeyboardMarkup, Update
from telegram.ext import (
    Application,
    ApplicationHandlerStop,
    CallbackContext,
    CallbackQueryHandler,
    CommandHandler,
    ContextTypes,
    ExtBot,
    MessageHandler,
    PollHandler,
    TypeHandler,
    filters,
)

from hitherto import Burst, Flow, Keeper, MemoryStore, Queue, Reject, State, Turn
from hitherto.addresses import Address
from hitherto.errors import StoreUnavailable
from hitherto.protocol import Event, Terms
from hitherto.ptb import (
    Context,
    DataIs,
    HithertoPersistence,
    InFlow,
    InState,
    NoFlow,
    NotAccepted,
    When,
    attach,
)
from hitherto.telegram import update_json
from hitherto.testing.telegram import FakeTelegram
from ptb_bots import TOKEN, a_builder, polling, webhook


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


async def until(come: Any, seconds: float = 20.0) -> None:
    """Let others run until it is true; fail when it never is."""
    async with asyncio.timeout(seconds):
        while not come():  # noqa: ASYNC110 - what is waited for rings no bell
            await asyncio.sleep(0.002)


def a_keeper(store: Any = "memory://", **options: Any) -> Keeper:
    return Keeper("bot", store, [Signup, Order], **{"backoff": lambda attempt: 0.01, **options})


def attached(telegram: FakeTelegram, store: Any = "memory://", **options: Any) -> tuple[Application, Keeper]:
    application, keeper = a_builder(telegram).concurrent_updates(True).build(), a_keeper(store, **options)
    attach(application, keeper)
    return application, keeper


# --------------------------------------------------------------------------------- the turn, and the filters


async def start(update: Update, context: Context) -> None:
    context.turn.start(Signup)
    await update.message.reply_text("name?")


async def name(update: Update, context: Context) -> None:
    context.turn.data.name = update.message.text
    context.turn.transition(Signup.ask_size)
    keys = InlineKeyboardMarkup([[InlineKeyboardButton("large", callback_data="large")]])
    await update.message.reply_text("size?", reply_markup=keys)


async def size(update: Update, context: Context) -> None:
    context.turn.update_data(size=update.callback_query.data)
    context.turn.transition(Signup.done)
    await update.callback_query.answer()
    await update.callback_query.message.reply_text(f"thank you, {context.turn.data.name}")


async def large(update: Update, context: Context) -> None:
    await update.message.reply_text("you are large")


def signup_bot(telegram: FakeTelegram, store: Any = "memory://") -> tuple[Application, Keeper]:
    """The whole dialogue, in two groups."""
    application, keeper = attached(telegram, store)
    application.add_handler(CommandHandler("start", start, NoFlow()))
    application.add_handler(MessageHandler(filters.TEXT & InState(Signup.ask_name), name), 1)
    application.add_handler(When(CallbackQueryHandler(size, "large|small"), Signup.ask_size))
    application.add_handler(MessageHandler(filters.TEXT & DataIs(size="large") & InFlow(Signup), large))
    return application, keeper


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


async def test_a_dialogue_by_polling(telegram):
    application, keeper = signup_bot(telegram)
    async with polling(telegram, application):
        assert keeper.running
        await a_dialogue(telegram)
        await telegram.drained()
    assert not keeper.running


async def test_a_dialogue_by_webhook(telegram):
    application, keeper = signup_bot(telegram)
    async with webhook(telegram, application):
        await a_dialogue(telegram)
        await telegram.drained()
    assert not keeper.running
    assert {attempt.status for attempt in telegram.attempts} == {200}


async def test_a_dialogue_goes_on_after_a_restart(telegram, tmp_path):
    alice = telegram.user("Alice")
    application, _ = signup_bot(telegram, f"sqlite:///{tmp_path}/bot.db")
    async with polling(telegram, application):
        alice.says("/start")
        assert (await alice.hears()).text == "name?"
    alice.says("Ann")
    application, _ = signup_bot(telegram, f"sqlite:///{tmp_path}/bot.db")
    async with polling(telegram, application):
        assert (await alice.hears()).text == "size?"
    assert [said.text for said in alice.messages] == ["name?", "size?"]


@pytest.mark.parametrize(
    ("asked", "where"),
    [
        (InFlow(), {"name", "size", "order"}),
        (InFlow(Signup), {"name", "size"}),
        (InFlow(Order, Signup), {"name", "size", "order"}),
        (NoFlow(), {"none"}),
        (InState(Signup.ask_size), {"size"}),
        (InState(Signup.ask_name, Order.size), {"name", "order"}),
        (DataIs(size="large"), {"size"}),
        (~InFlow(Signup), {"none", "order"}),
        (filters.TEXT & InFlow(Signup) & ~InState(Signup.ask_name), {"size"}),
        (NoFlow() | InState(Order.size), {"none", "order"}),
        (filters.PHOTO & InFlow(), set()),
        (InFlow(Signup) ^ DataIs(size="large"), {"name"}),
    ],
)
async def test_filters(telegram, asked, where):
    """Each filter, asked in each of four places through the application, says yes in these."""
    application, keeper = attached(telegram)
    passed: list[str] = []

    async def yes(update: Update, context: Context) -> None:
        passed.append(update.message.text)

    application.add_handler(MessageHandler(asked, yes))
    places = {"none": (None, {}), "name": (Signup.ask_name, {}), "order": (Order.size, {"size": 1})}
    places["size"] = (Signup.ask_size, {"size": "large"})
    async with application:
        for number, (place, (state, data)) in enumerate(places.items()):
            async with keeper.open((number + 1, number + 1)) as turn:
                if state is not None:
                    turn.force(state.flow, state)
                    turn.update_data(data)
            await application.process_update(an_update(application.bot, number + 1, text=place))
    assert set(passed) == where


@pytest.mark.parametrize(
    ("conditions", "passes"),
    [
        ([Signup.ask_name], True),
        ([Signup], True),
        ([Signup, Signup.ask_size], False),
        ([Order], False),
        ([InFlow(Signup), DataIs(name="Ann")], True),
        ([lambda turn: turn.data.name == "Ann"], True),
        ([NoFlow()], False),
    ],
)
async def test_when(telegram, conditions, passes):
    application, keeper = attached(telegram)
    seen: list[Any] = []

    async def note(update: Update, context: Context) -> None:
        seen.append(context.match.group(1))

    application.add_handler(When(CallbackQueryHandler(note, "press (.)"), *conditions))
    async with application:
        async with keeper.open((7, 7)) as turn:
            turn.start(Signup)
            turn.update_data(name="Ann")
        for number, data in enumerate(["press a", "other"]):
            query = {"id": "1", "chat_instance": "1", "data": data, "from": WHO, "message": a_message(1, 7)}
            update = Update.de_json({"update_id": number, "callback_query": query}, application.bot)
            await application.process_update(update)
    assert seen == (["a"] if passes else [])


def test_when_takes_conditions_only():
    handler = MessageHandler(filters.TEXT, name)
    with pytest.raises(TypeError, match="is no condition"):
        When(handler, InFlow() & ~InState(Signup.done))


WHO = {"id": 7, "is_bot": False, "first_name": "Ann"}


def a_message(number: int, chat: int, text: str = "hello") -> dict[str, Any]:
    place = {"id": chat, "type": "private", "first_name": "Ann"}
    return {"message_id": number, "date": 1, "chat": place, "from": {**WHO, "id": chat}, "text": text}


def an_update(bot: Any, number: int, chat: int | None = None, text: str = "hello") -> Update:
    message = a_message(number, number if chat is None else chat, text)
    return Update.de_json({"update_id": number, "message": message}, bot)


async def test_without_a_keeper_it_is_said_what_is_missing(telegram):
    application = a_builder(telegram).build()
    errors: list[Exception] = []

    async def note(update: object, context: Any) -> None:
        errors.append(context.error)

    application.add_error_handler(note)
    application.add_handler(MessageHandler(NoFlow(), name))
    async with application:
        await application.process_update(an_update(application.bot, 1))
    (error,) = errors
    assert isinstance(error, TypeError)
    assert "attach(application, keeper)" in str(error)


async def test_an_update_of_no_conversation_has_an_empty_turn(telegram):
    application, keeper = attached(telegram)
    seen: list[Turn] = []

    async def note(update: Update, context: Context) -> None:
        seen.append(context.turn)

    application.add_handler(PollHandler(note))
    async with polling(telegram, application, allowed_updates=["poll"]):
        poll = {"id": "1", "question": "?", "options": [], "total_voter_count": 0, "is_closed": False}
        kinds = {"is_anonymous": True, "type": "regular", "allows_multiple_answers": False}
        telegram.push({"poll": {**poll, **kinds, "allows_revoting": False, "members_only": False}})
        await until(lambda: seen)
        await telegram.drained()
    assert seen[0].key is None
    assert keeper.counts["no-key"] == 1


class Mine(CallbackContext[ExtBot[None], dict[Any, Any], dict[Any, Any], dict[Any, Any]]):
    @property
    def shout(self) -> str:
        return self.turn.event.message.text.upper()


async def test_contexts_and_data_of_ones_own_are_kept(telegram):
    class Chat(dict[str, Any]):
        pass

    kinds = ContextTypes(context=Mine, chat_data=Chat)
    application = a_builder(telegram).context_types(kinds).build()
    attach(application, a_keeper())
    seen: list[Any] = []

    async def note(update: Update, context: Mine) -> None:
        seen.append(
            (context.shout, isinstance(context, Mine), type(context.chat_data), type(context.user_data))
        )

    application.add_handler(TypeHandler(Update, note))
    async with application:
        await application.process_update(an_update(application.bot, 1, text="hi"))
    assert seen == [("HI", True, Chat, dict)]


async def test_an_application_of_ones_own_stays_one(telegram):
    class Mine(Application):
        def __init__(self, extra: str, **options: Any) -> None:
            super().__init__(**options)
            self.extra = extra

    queue: asyncio.Queue[object] = asyncio.Queue()
    builder = a_builder(telegram).application_class(Mine, {"extra": "mine"}).update_queue(queue)
    application = builder.build()
    keeper = a_keeper()
    attach(application, keeper)
    seen: list[Any] = []

    async def note(update: Update, context: Context) -> None:
        seen.append((context.application.extra, context.turn.attempt))

    application.add_handler(TypeHandler(Update, note))
    async with application:
        await application.start()
        await queue.put(an_update(application.bot, 1))
        assert keeper.counts["accepted"] + keeper.counts["queued"] + keeper.counts["committed"] > 0
        await until(lambda: seen)
        await application.stop()
    assert isinstance(application, Mine)
    assert seen == [("mine", 1)]


# -------------------------------------------------------------------------------- groups, errors, and tasks


def noted_bot(
    telegram: FakeTelegram, store: Any = "memory://", concurrent: bool = True, **options: Any
) -> tuple[Application, Keeper, list[Any], asyncio.Event]:
    """Three groups, and a handler that can be held up."""
    notes: list[Any] = []
    go = asyncio.Event()
    application = a_builder(telegram).concurrent_updates(concurrent).build()
    keeper = a_keeper(store, **options)
    attach(application, keeper)

    async def first(update: Update, context: Context) -> None:
        notes.append(("first", update.update_id))
        context.said = update.message.text

    async def note(update: Update, context: Context) -> None:
        notes.append(("second", update.update_id))
        await go.wait()
        context.turn.update_data(texts=[*context.turn.data.get("texts", []), context.said])
        notes.append((context.said,))
        await update.message.reply_text(f"heard {context.said}")

    async def last(update: Update, context: Context) -> None:
        notes.append(("third", update.update_id))

    application.add_handler(TypeHandler(Update, first), -1)
    application.add_handler(MessageHandler(filters.TEXT, note))
    application.add_handler(TypeHandler(Update, last), 5)
    return application, keeper, notes, go


ALL = ["first", "second", "third"]


def through(notes: list[Any], number: int) -> list[str]:
    return [note[0] for note in notes if len(note) == 2 and note[1] == number]


async def test_what_waits_goes_through_all_groups(telegram):
    application, keeper, notes, go = noted_bot(telegram)
    alice = telegram.user("Alice")
    async with polling(telegram, application):
        made = [alice.says(text) for text in ("one", "two", "three")]
        await telegram.drained()
        await until(lambda: len(notes) == 2)
        assert through(notes, made[0]["update_id"]) == ["first", "second"]
        go.set()
        heard = [(await alice.hears()).text for _ in range(3)]
    assert heard == ["heard one", "heard two", "heard three"]
    for update in made:
        assert through(notes, update["update_id"]) == ALL
    assert keeper.counts["queued"] >= 2


async def left_behind(store: MemoryStore, telegram: FakeTelegram, text: str, number: int = 77) -> None:
    """An update that a worker accepted before it died."""
    alice = telegram.user("Alice", id=7)
    update = {
        "update_id": number,
        "message": telegram.world.write(alice.chat, {"text": text}, sender=alice.user),
    }
    event = Event(f"tg:{number}", update_json(update))
    answer = await store.accept(
        Address("bot", "", (7, 7)), event, Queue(), "the dead", None, Terms(lease=1e-6)
    )
    assert answer.status == "granted"


@pytest.mark.parametrize("way", [polling, webhook])
async def test_what_a_crash_left_behind_goes_through_all_of_them_at_the_start(telegram, way):
    store = MemoryStore()
    await left_behind(store, telegram, "late")
    application, keeper, notes, go = noted_bot(telegram, store, sweep=600)
    go.set()
    async with way(telegram, application):
        await until(lambda: telegram.calls_of("sendMessage"))
        await keeper.idle()
    assert telegram.calls_of("sendMessage")[0]["text"] == "heard late"
    assert through(notes, 77) == ALL
    assert (await store.get_data("bot", (7, 7))) == {"texts": ["late"]}


async def test_redelivered_updates_are_handled_once(telegram):
    application, keeper, _notes, go = noted_bot(telegram)
    go.set()
    alice = telegram.user("Alice")
    telegram.mischief(duplicate=0.5, reorder=0.2, seed=3)
    async with polling(telegram, application):
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


@pytest.mark.parametrize("concurrent", [True, False])
async def test_one_at_a_time_unless_concurrent_updates_says_otherwise(telegram, concurrent):
    application, keeper, notes, go = noted_bot(telegram, concurrent=concurrent)
    people = [telegram.user(name) for name in ("Alice", "Bob", "Carol")]
    async with polling(telegram, application):
        for person in people:
            person.says("hello")
        await telegram.drained()
        began = lambda: len([note for note in notes if note[0] == "second"])  # noqa: E731
        await until(lambda: began() == (3 if concurrent else 1))
        await asyncio.sleep(0.02)
        assert began() == (3 if concurrent else 1)
        go.set()
        for person in people:
            assert (await person.hears()).text == "heard hello"
    assert keeper.counts["committed"] == 3


def failing_bot(
    telegram: FakeTelegram, fails: int = 10**9, **options: Any
) -> tuple[Application, Keeper, list]:
    """A handler that changes the turn and raises, so many times; and one in a later group."""
    application, keeper = attached(telegram, **options)
    tries: list[Any] = []

    async def fail(update: Update, context: Context) -> None:
        tries.append(context.turn.attempt)
        context.turn.update_data(attempt=context.turn.attempt)
        if len(tries) <= fails:
            raise ZeroDivisionError

    async def later(update: Update, context: Context) -> None:
        tries.append("later")

    application.add_handler(MessageHandler(filters.Regex("bad"), fail))
    application.add_handler(MessageHandler(filters.TEXT, later), 1)
    return application, keeper, tries


async def test_an_error_handler_that_stops_has_taken_care_of_it(telegram):
    application, keeper, tries = failing_bot(telegram)
    errors: list[Any] = []

    async def caught(update: Update, context: Context) -> None:
        errors.append((type(context.error), dict(context.turn.data)))
        context.turn.update_data(failed=True)
        raise ApplicationHandlerStop

    application.add_error_handler(caught)
    alice = telegram.user("Alice")
    async with polling(telegram, application):
        alice.says("bad")
        await until(lambda: keeper.counts["committed"])
        await keeper.idle()
        data = await keeper.store.get_data("bot", (alice.id, alice.id))
    assert errors == [(ZeroDivisionError, {})]
    assert data == {"failed": True}
    assert tries == [1]


async def test_an_error_that_is_only_noted_is_tried_again(telegram):
    application, keeper, tries = failing_bot(telegram, fails=2)
    errors: list[Any] = []

    async def noted(update: Update, context: Context) -> None:
        errors.append(type(context.error))

    application.add_error_handler(noted)
    alice = telegram.user("Alice")
    async with polling(telegram, application):
        alice.says("bad")
        await until(lambda: keeper.counts["committed"])
        await keeper.idle()
        data = await keeper.store.get_data("bot", (alice.id, alice.id))
    assert errors == [ZeroDivisionError, ZeroDivisionError]
    assert tries == [1, 2, 3, "later"]
    assert data == {"attempt": 3}


async def test_on_error_discard_ends_it(telegram, caplog):
    caplog.set_level(logging.CRITICAL)
    application, keeper, tries = failing_bot(telegram, on_error="discard")
    alice = telegram.user("Alice")
    async with polling(telegram, application):
        alice.says("bad")
        alice.says("good")
        await until(lambda: "later" in tries)
        await keeper.idle()
        document = await keeper.inspect((alice.id, alice.id))
    assert tries == [1, "later"]
    assert (document.inbox, document.record) == ((), None)


async def test_what_is_given_up_is_a_dead_letter_and_the_next_one_is_handled(telegram, caplog):
    caplog.set_level(logging.CRITICAL)
    application, keeper, tries = failing_bot(telegram, max_attempts=2)
    alice = telegram.user("Alice")
    async with polling(telegram, application):
        alice.says("bad")
        alice.says("good")
        await until(lambda: keeper.counts["dead"] and "later" in tries)
        (letter,) = await keeper.dead_letters((alice.id, alice.id))
    assert letter.error.endswith("builtins.ZeroDivisionError")


async def test_application_handler_stop_ends_the_update_and_commits(telegram):
    application, keeper = attached(telegram)
    ran: list[str] = []

    async def stop(update: Update, context: Context) -> None:
        context.turn.start(Order)
        raise ApplicationHandlerStop

    async def later(update: Update, context: Context) -> None:
        ran.append("later")

    application.add_handler(MessageHandler(filters.TEXT, stop))
    application.add_handler(MessageHandler(filters.TEXT, later), 1)
    async with application:
        await application.process_update(an_update(application.bot, 1))
        record = await keeper.store.get_state("bot", (1, 1))
    assert ran == []
    assert (record.flow, record.state) == ("order", "size")


@pytest.mark.parametrize("fails", [False, True])
async def test_handlers_that_do_not_block_belong_to_the_turn(telegram, fails, caplog):
    caplog.set_level(logging.CRITICAL)
    application, keeper = attached(telegram, on_error="discard")
    both, notes = asyncio.Event(), []

    async def slow(update: Update, context: Context) -> None:
        await both.wait()
        context.turn.update_data(slow=True)
        if fails:
            raise ZeroDivisionError

    async def quick(update: Update, context: Context) -> None:
        notes.append("quick")
        context.turn.update_data(quick=True)
        both.set()

    application.add_handler(MessageHandler(filters.TEXT, slow, block=False))
    application.add_handler(MessageHandler(filters.TEXT, quick), 1)
    async with application:
        await application.start()
        await application.process_update(an_update(application.bot, 1))
        data = await keeper.store.get_data("bot", (1, 1))
        await application.stop()
    assert notes == ["quick"]
    assert data == (None if fails else {"slow": True, "quick": True})


@pytest.mark.parametrize("late", [True, False])
async def test_tasks_of_the_application_do_not_belong_to_the_turn(telegram, late):
    """Whether they fail after it or in the middle of it."""
    application, keeper = attached(telegram)
    go, errors = asyncio.Event(), []

    async def background() -> None:
        if late:
            await go.wait()
        raise ZeroDivisionError

    async def handler(update: Update, context: Context) -> None:
        context.turn.start(Order)
        task = context.application.create_task(background(), update)
        if not late:
            await asyncio.wait([task])

    async def noted(update: Update, context: Any) -> None:
        errors.append(type(context.error))

    application.add_handler(MessageHandler(filters.TEXT, handler))
    application.add_error_handler(noted)
    async with application:
        await application.start()
        await application.process_update(an_update(application.bot, 1))
        assert keeper.counts["committed"] == 1
        assert (await keeper.store.get_state("bot", (1, 1))).flow == "order"
        go.set()
        await application.stop()
    assert errors == [ZeroDivisionError]


async def test_an_unhandled_update_is_done(telegram):
    application, keeper = attached(telegram)
    alice = telegram.user("Alice")
    async with polling(telegram, application):
        alice.says("unknown")
        await telegram.drained()
        await keeper.idle()
        document = await keeper.inspect((alice.id, alice.id))
    assert (document.inbox, document.record, keeper.counts["committed"]) == ((), None, 1)


async def test_a_burst_is_one_turn_with_the_newest_event(telegram):
    application, keeper = attached(telegram, overlap=Burst(0))
    go, seen = asyncio.Event(), []

    async def note(update: Update, context: Context) -> None:
        seen.append((update.message.text, [one.message.text for one in context.turn.skipped]))
        await go.wait()

    application.add_handler(MessageHandler(filters.TEXT, note))
    alice = telegram.user("Alice")
    async with polling(telegram, application):
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


async def test_polling_confirms_only_what_is_accepted(telegram):
    store = Slow()
    application, _keeper, _notes, go = noted_bot(telegram, store)
    go.set()
    alice, bob = telegram.user("Alice"), telegram.user("Bob")
    async with polling(telegram, application):
        alice.says("one")
        await until(lambda: store.asked)
        bob.says("two")
        asked = len(telegram.calls_of("getUpdates"))
        await asyncio.sleep(0.1)
        assert len(telegram.calls_of("getUpdates")) == asked
        assert telegram.confirmed == ()
        store.go.set()
        assert (await alice.hears()).text == "heard one"
        assert (await bob.hears()).text == "heard two"
        await telegram.drained()


async def test_what_was_not_accepted_when_the_bot_stops_is_not_confirmed(telegram, caplog):
    caplog.set_level(logging.CRITICAL)
    store = Slow()
    store.go.set()
    store.away = True
    application, _keeper, _notes, go = noted_bot(telegram, store, deadline=0.05)
    alice = telegram.user("Alice")
    async with polling(telegram, application):
        alice.says("one")
        await until(lambda: store.asked)
    assert telegram.confirmed == ()
    store.away = False
    application, _keeper, _notes, go = noted_bot(telegram, store)
    go.set()
    async with polling(telegram, application):
        assert (await alice.hears()).text == "heard one"
        await telegram.drained()


async def test_polling_asks_again_for_what_could_not_be_accepted(telegram, caplog):
    caplog.set_level(logging.CRITICAL)
    store = Slow()
    store.go.set()
    store.away = True
    application, _keeper, _notes, go = noted_bot(telegram, store, deadline=0.05)
    go.set()
    alice, bob = telegram.user("Alice"), telegram.user("Bob")
    async with polling(telegram, application):
        alice.says("one")
        bob.says("two")
        await until(lambda: len(telegram.calls_of("getUpdates")) > 3)
        assert telegram.confirmed == ()
        store.away = False
        assert (await alice.hears()).text == "heard one"
        assert (await bob.hears()).text == "heard two"
        await telegram.drained()
    assert len(alice.messages) == len(bob.messages) == 1


async def test_polling_asks_again_for_what_the_policy_refuses_and_others_go_on(telegram, caplog):
    caplog.set_level(logging.CRITICAL)
    application, keeper, notes, go = noted_bot(telegram, overlap=Reject())
    alice, bob = telegram.user("Alice"), telegram.user("Bob")
    async with polling(telegram, application):
        alice.says("one")
        alice.says("two")
        await until(lambda: keeper.counts["busy"] >= 2)
        other = bob.says("three")
        await until(lambda: through(notes, other["update_id"]))
        assert len(telegram.confirmed) == 1
        go.set()
        assert [(await alice.hears()).text for _ in range(2)] == ["heard one", "heard two"]
        assert (await bob.hears()).text == "heard three"
        await telegram.drained()


async def test_what_can_never_be_accepted_is_told_to_the_error_handlers_and_confirmed(telegram):
    application, keeper = attached(telegram, max_event_bytes=1000)
    errors: list[str] = []

    async def noted(update: Update, context: Any) -> None:
        errors.append(type(context.error).__name__)

    application.add_error_handler(noted)
    alice = telegram.user("Alice")
    async with polling(telegram, application):
        alice.says("x" * 2000)
        alice.says("y")
        await telegram.drained()
        await until(lambda: keeper.counts["committed"])
    assert errors == ["EventTooLarge"]


async def test_a_webhook_is_answered_only_when_the_event_is_kept(telegram):
    store = Slow()
    application, _keeper, _notes, go = noted_bot(telegram, store)
    alice = telegram.user("Alice")
    async with webhook(telegram, application):
        alice.says("one")
        await until(lambda: store.asked)
        await asyncio.sleep(0.05)
        assert telegram.attempts == ()
        store.go.set()
        await telegram.drained()
        assert [attempt.status for attempt in telegram.attempts] == [200]
        go.set()
        assert (await alice.hears()).text == "heard one"


async def test_a_webhook_that_cannot_be_accepted_is_500_and_comes_again(telegram, caplog):
    caplog.set_level(logging.CRITICAL)
    store = Slow()
    store.go.set()
    store.away = True
    application, _keeper, _notes, go = noted_bot(telegram, store, deadline=0.02)
    go.set()
    alice = telegram.user("Alice")
    async with webhook(telegram, application):
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
    application, _keeper, _notes, go = noted_bot(telegram, overlap=Reject())
    alice = telegram.user("Alice")
    async with webhook(telegram, application):
        alice.says("one")
        await telegram.drained()
        alice.says("two")
        await until(lambda: 500 in {attempt.status for attempt in telegram.attempts})
        go.set()
        assert [(await alice.hears()).text for _ in range(2)] == ["heard one", "heard two"]
        await telegram.drained()


# --------------------------------------------------------------------- fed by hand, and what is no update


async def test_process_update_is_the_whole_turn_without_a_start(telegram):
    """As in a function that is called for each webhook: initialized, never started."""
    store = MemoryStore()
    await left_behind(store, telegram, "late")
    application, keeper, _notes, go = noted_bot(telegram, store)
    go.set()
    async with application:
        update = an_update(application.bot, 1, 7)
        await application.process_update(update)
        await application.process_update(an_update(application.bot, 1, 7))
        await keeper.idle()
        assert keeper.counts["duplicate"] == 1
    assert (await store.get_data("bot", (7, 7))) == {"texts": ["late", "hello"]}


async def test_process_update_says_what_was_not_accepted_and_not_what_a_handler_raised(telegram, caplog):
    caplog.set_level(logging.CRITICAL)
    application, keeper, _tries = failing_bot(telegram, on_error="discard", overlap=Reject())
    async with application:
        await application.process_update(an_update(application.bot, 1, 7, "bad"))
        async with keeper.open((7, 7)):
            with pytest.raises(NotAccepted):
                await application.process_update(an_update(application.bot, 2, 7))


async def test_put_nowait_is_accepted_soon(telegram):
    telegram.user("Ann", id=1)
    application, keeper, notes, go = noted_bot(telegram)
    go.set()
    async with application:
        await application.start()
        application.update_queue.put_nowait(an_update(application.bot, 1))
        await until(lambda: keeper.counts["committed"])
        await application.stop()
    assert through(notes, 1) == ALL


async def test_put_nowait_that_is_not_accepted_is_told_to_the_error_handlers(telegram):
    application, keeper = attached(telegram, overlap=Reject())
    errors: list[str] = []

    async def noted(update: Update, context: Any) -> None:
        errors.append(type(context.error).__name__)

    application.add_error_handler(noted)
    async with application:
        await application.start()
        async with keeper.open((1, 1)):
            application.update_queue.put_nowait(an_update(application.bot, 1))
            await until(lambda: errors)
        await application.stop()
    assert errors == ["NotAccepted"]


async def test_what_is_accepted_before_the_start_runs_after_it(telegram):
    telegram.user("Ann", id=1)
    application, keeper, notes, go = noted_bot(telegram)
    go.set()
    async with application:
        await application.update_queue.put(an_update(application.bot, 1))
        await asyncio.sleep(0.02)
        assert notes == []
        await application.start()
        await until(lambda: keeper.counts["committed"])
        await application.stop()
    assert through(notes, 1) == ALL


async def test_what_is_no_update_goes_to_its_handlers_without_a_turn(telegram):
    application, _keeper = attached(telegram)
    seen: list[Any] = []

    async def note(text: str, context: Context) -> None:
        with pytest.raises(TypeError, match="without a turn"):
            _ = context.turn
        seen.append(text)

    application.add_handler(TypeHandler(str, note))
    application.add_handler(MessageHandler(InFlow(), note))
    application.add_handler(When(TypeHandler(object, note), NoFlow()), 1)
    async with application:
        await application.start()
        await application.update_queue.put("something else")
        await until(lambda: seen)
        await application.stop()
    assert seen == ["something else"]


# --------------------------------------------------------------------------------------- start and stop


async def test_a_keeper_of_ones_own_is_left_running(telegram):
    application, keeper, _notes, go = noted_bot(telegram)
    go.set()
    alice = telegram.user("Alice")
    async with keeper:
        for text in ("one", "two"):
            async with polling(telegram, application):
                alice.says(text)
                assert (await alice.hears()).text == f"heard {text}"
            assert keeper.running
    assert not keeper.running


async def test_what_runs_when_the_bot_stops_is_finished_first(telegram):
    application, keeper, notes, go = noted_bot(telegram)
    alice = telegram.user("Alice")
    async with polling(telegram, application):
        alice.says("slow")
        await until(lambda: notes)
        asyncio.get_running_loop().call_later(0.1, go.set)
    assert (await alice.hears()).text == "heard slow"
    assert keeper.counts["committed"] == 1


async def test_what_does_not_finish_is_run_by_the_next_process(telegram):
    store = MemoryStore()
    application, _keeper, notes, go = noted_bot(telegram, store, grace=0.05)
    alice = telegram.user("Alice")
    async with polling(telegram, application):
        alice.says("slow")
        await telegram.drained()
        await until(lambda: len(notes) == 2)
    application, _keeper, notes, go = noted_bot(telegram, store)
    go.set()
    async with polling(telegram, application):
        assert (await alice.hears()).text == "heard slow"
    assert await store.get_data("bot", (alice.id, alice.id)) == {"texts": ["slow"]}


async def test_a_store_that_cannot_be_opened_is_an_error_of_the_start(telegram, tmp_path):
    application, _ = attached(telegram, f"sqlite:///{tmp_path}/nowhere/bot.db")
    with pytest.raises(Exception, match="nowhere"):
        await application.initialize()
    await application.shutdown()


async def test_persistence_and_keeper_together(telegram, tmp_path):
    store = MemoryStore()
    persistence = HithertoPersistence(store, update_interval=0.01)
    application = a_builder(telegram).persistence(persistence).build()
    attach(application, a_keeper(store))

    async def note(update: Update, context: Context) -> None:
        context.user_data["seen"] = True
        context.turn.start(Order)

    application.add_handler(MessageHandler(filters.TEXT, note))
    async with application:
        await application.start()
        await application.process_update(an_update(application.bot, 1))
        await application.stop()
    assert await HithertoPersistence(store).get_user_data() == {1: {"seen": True}}
    assert (await store.get_state("bot", (1, 1))).flow == "order"


def test_an_application_has_one_keeper(telegram):
    application, _ = attached(telegram)
    with pytest.raises(ValueError, match="has a keeper already"):
        attach(application, Keeper("other"))


def test_buttons_with_objects_are_refused(telegram):
    application = a_builder(telegram).arbitrary_callback_data(True).build()
    with pytest.raises(ValueError, match="arbitrary_callback_data"):
        attach(application, Keeper("bot"))
