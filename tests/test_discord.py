"""discord.py on a keeper: real clients, bots, trees and views, fed with what a gateway sends."""

from __future__ import annotations

import asyncio
import logging
from contextlib import asynccontextmanager

import discord
import pytest
from discord import app_commands
from discord.ext import commands

from hitherto import Flow, Keeper, MemoryStore, Reject, State
from hitherto.addresses import Address
from hitherto.discord import DataIs, InFlow, NoFlow, attach, current_turn, when
from hitherto.document import Event, Terms
from hitherto.overlap import Queue
from hitherto.telegram import update_json

LONG = 60.0
ME, ANN, BOB = 1, 7, 8
GUILD, CHANNEL, THREAD, PRIVATE = 100, 200, 300, 400


class Signup(Flow):
    ask_name = State(to="ask_email", initial=True)
    ask_email = State(to="done")
    done = State(to=[])


def user(number=ANN):
    return {
        "id": str(number),
        "username": f"u{number}",
        "discriminator": "0",
        "avatar": None,
        "global_name": None,
    }


def says(number, text, who=ANN, channel=CHANNEL, guild=GUILD):
    """A MESSAGE_CREATE, as the gateway sends it."""
    data = {
        "id": str(number), "channel_id": str(channel), "author": user(who), "content": text, "type": 0,
        "timestamp": "2026-01-01T00:00:00+00:00", "edited_timestamp": None, "tts": False,
        "mention_everyone": False, "mentions": [], "mention_roles": [], "attachments": [], "embeds": [],
        "pinned": False,
    }  # fmt: skip
    return data if guild is None else {**data, "guild_id": str(guild)}


def interacts(number, kind, inner, who=ANN, channel=CHANNEL, channel_type=0, **more):
    """An INTERACTION_CREATE."""
    place = {"id": str(channel), "type": channel_type, "permissions": "0", "name": "x"}
    if channel_type == 11:
        place |= {
            "parent_id": str(CHANNEL),
            "thread_metadata": {
                "archived": False,
                "auto_archive_duration": 60,
                "archive_timestamp": "2026-01-01T00:00:00+00:00",
            },
        }
    member = {"user": user(who), "roles": [], "joined_at": None, "permissions": "0", "flags": 0}
    return {
        "id": str(number), "application_id": "5", "type": kind, "token": "t", "version": 1, "data": inner,
        "guild_id": str(GUILD), "channel_id": str(channel), "channel": place, "member": member,
        "entitlements": [], "authorizing_integration_owners": {}, "attachment_size_limit": 1, **more,
    }  # fmt: skip


GUILD_DATA = {
    "id": str(GUILD), "name": "g", "owner_id": str(ANN), "roles": [], "emojis": [], "features": [],
    "member_count": 2, "members": [], "stickers": [],
    "channels": [{"id": str(CHANNEL), "type": 0, "name": "c", "position": 0, "permission_overwrites": [],
                  "parent_id": None}],
    "threads": [{"id": str(THREAD), "type": 11, "name": "t", "parent_id": str(CHANNEL), "owner_id": str(ANN),
                 "guild_id": str(GUILD), "message_count": 1, "member_count": 1, "thread_metadata": {
                     "archived": False, "auto_archive_duration": 60,
                     "archive_timestamp": "2026-01-01T00:00:00+00:00"}}],
}  # fmt: skip


@asynccontextmanager
async def connected(make=lambda intents: discord.Client(intents=intents)):
    """A client that knows a guild with a channel and a thread, and is ready."""
    client = make(discord.Intents.all())
    async with client:
        state = client._connection
        state.user = discord.ClientUser(state=state, data=user(ME))
        state.application_id = 5
        state._add_guild_from_data(GUILD_DATA)
        client._ready.set()
        yield client


def feed(client, data):
    """As the gateway hands it over."""
    client._connection.parsers["INTERACTION_CREATE" if "token" in data else "MESSAGE_CREATE"](data)


async def settled(keeper, attached=None):
    for _ in range(20):
        await asyncio.sleep(0)
    assert await keeper.idle(LONG)


@pytest.fixture
async def keeper():
    async with Keeper("bot", flows=[Signup], backoff=lambda attempt: 0.0) as keeper:
        yield keeper


KEY = ("discord", CHANNEL, 0, ANN)


async def record(keeper, key=KEY):
    return await keeper.store.get_state("bot", key)


# -------------------------------------------------------------------------------------------------- messages


async def test_a_conversation_each_message_twice(keeper):
    async with connected() as client:
        attach(client, keeper)

        @client.event
        async def on_message(message, turn):
            if turn.flow is None:
                turn.start(Signup)
            elif turn.state == Signup.ask_name:
                turn.update_data(name=message.content, by=message.author.id, at=message.channel.id)
                turn.transition(Signup.ask_email)

        for number, text in enumerate(["start", "Ann"], 10):
            feed(client, says(number, text))
            feed(client, says(number, text))
        await settled(keeper)
        found = await record(keeper)
        assert (found.state, found.data) == ("ask_email", {"name": "Ann", "by": ANN, "at": CHANNEL})
        assert (keeper.counts["committed"], keeper.counts["duplicate"]) == (2, 2)


async def test_a_handler_may_do_without_the_turn(keeper):
    seen = []
    async with connected() as client:
        attach(client, keeper)

        @client.event
        async def on_message(message):
            current_turn().update_data(x=1)
            seen.append(message.content)

        feed(client, says(1, "hi"))
        await settled(keeper)
        assert seen == ["hi"]
        assert (await record(keeper)).data == {"x": 1}


async def test_messages_of_a_channel_stay_in_order(keeper):
    async with connected() as client:
        attach(client, keeper)

        @client.event
        async def on_message(message, turn):
            await asyncio.sleep(0)
            turn.update_data(seen=[*turn.data.get("seen", []), message.content])

        for number in range(50):
            feed(client, says(1000 + number, str(number), who=ANN if number % 2 else BOB))
        await settled(keeper)
        assert (await record(keeper)).data["seen"] == [str(number) for number in range(1, 50, 2)]
        bob = await record(keeper, ("discord", CHANNEL, 0, BOB))
        assert bob.data["seen"] == [str(number) for number in range(0, 50, 2)]


async def test_what_has_to_be_looked_up_is_not_overtaken(keeper):
    async with connected() as client:
        attach(client, keeper)
        asked, go = [], asyncio.Event()

        @client.event
        async def on_message(message, turn):
            turn.update_data(seen=[*turn.data.get("seen", []), message.content])

        async def fetch_channel(number):
            asked.append(number)
            if len(asked) == 1:
                await go.wait()
            return client.get_channel(THREAD)

        client.fetch_channel = fetch_channel
        for number in range(1, 4):
            feed(client, says(number, str(number), channel=999))
        for _ in range(50):
            await asyncio.sleep(0)
        go.set()
        for _ in range(50):
            await asyncio.sleep(0)
        await settled(keeper)
        assert (await record(keeper, ("discord", CHANNEL, 999, ANN))).data == {"seen": ["1", "2", "3"]}


async def test_places(keeper):
    """Channels, threads and private chats; a thread that the client does not know is asked for."""
    async with connected() as client:
        attach(client, keeper)

        @client.event
        async def on_message(message, turn):
            turn.update_data(place=message.content)

        async def fetch_channel(number):
            assert number == 999
            return client.get_channel(THREAD)

        client.fetch_channel = fetch_channel
        feed(client, says(1, "channel"))
        feed(client, says(2, "thread", channel=THREAD))
        feed(client, says(3, "private", channel=PRIVATE, guild=None))
        feed(client, says(4, "fetched", channel=999))
        await settled(keeper)
        assert await record(keeper) is not None
        for key, place in (
            (KEY, "channel"), (("discord", CHANNEL, THREAD, ANN), "thread"),
            (("discord", PRIVATE, 0, ANN), "private"), (("discord", CHANNEL, 999, ANN), "fetched"),
        ):  # fmt: skip
            assert (await record(keeper, key)).data == {"place": place}


async def test_what_the_bot_says_is_no_conversation(keeper):
    seen = []
    async with connected() as client:
        attach(client, keeper)

        @client.event
        async def on_message(message):
            seen.append(message.author.id)

        feed(client, says(1, "mine", who=ME))
        await asyncio.sleep(0.01)
        assert seen == [ME]
        assert keeper.counts == {}


async def test_a_handler_that_raises_is_tried_again_and_on_error_hears_of_it(keeper):
    heard, tried = [], []
    async with connected() as client:
        attach(client, keeper)

        @client.event
        async def on_message(message, turn):
            turn.update_data(n=turn.data.get("n", 0) + 1)
            tried.append(turn.attempt)
            if turn.attempt == 1:
                raise ValueError("once")

        @client.event
        async def on_error(name, *given):
            heard.append(name)

        feed(client, says(1, "hi"))
        for _ in range(500):
            await asyncio.sleep(0.01)
            if len(tried) == 2:
                break
        await settled(keeper)
        assert (tried, heard) == ([1, 2], ["on_message"])
        assert (await record(keeper)).data == {"n": 1}


async def test_what_is_refused_is_said(caplog):
    caplog.set_level(logging.WARNING, logger="hitherto")
    gate = asyncio.Event()
    async with Keeper("bot", overlap=Reject()) as keeper, connected() as client:
        attach(client, keeper)

        @client.event
        async def on_message(message):
            await gate.wait()

        feed(client, says(1, "a"))
        feed(client, says(2, "b"))
        for _ in range(100):
            await asyncio.sleep(0)
        gate.set()
        await settled(keeper)
        assert "discord.refused status=busy" in caplog.text


async def test_others_listen_as_ever(keeper):
    """wait_for, extra listeners and raw events are not disturbed."""
    async with connected(lambda intents: commands.Bot("!", intents=intents)) as client:
        attach(client, keeper)
        heard = []

        @client.listen("on_message")
        async def also(message, turn):
            heard.append(turn.key)

        waiting = asyncio.create_task(client.wait_for("message", timeout=LONG))
        await asyncio.sleep(0)
        feed(client, says(1, "hi"))
        assert (await waiting).content == "hi"
        await settled(keeper)
        assert heard == [KEY]


# -------------------------------------------------------------------------------------------------- commands


async def test_commands_with_states_as_checks(keeper):
    errors = []
    async with connected(lambda intents: commands.Bot("!", intents=intents)) as bot:
        attach(bot, keeper)

        @bot.command()
        @commands.check(when(NoFlow()))
        async def start(ctx):
            current_turn().start(Signup)

        @bot.command()
        @commands.check(when(Signup.ask_name))
        async def name(ctx, *, text):
            current_turn().update_data(name=text)
            current_turn().transition(Signup.ask_email)

        @bot.event
        async def on_command_error(ctx, error):
            errors.append(type(error).__name__)

        for number, text in enumerate(["!name too early", "!start", "!start", "!name Ann B", "!nothing"], 1):
            feed(bot, says(number, text))
        await settled(keeper)
        found = await record(keeper)
        assert (found.state, found.data) == ("ask_email", {"name": "Ann B"})
        assert errors == ["CheckFailure", "CheckFailure", "CommandNotFound"]
        assert keeper.counts["failed"] == 0


async def test_a_command_that_raises_is_tried_again(keeper):
    tried = []
    async with connected(lambda intents: commands.Bot("!", intents=intents)) as bot:
        attach(bot, keeper)

        @bot.command()
        async def go(ctx):
            turn = current_turn()
            turn.update_data(n=turn.data.get("n", 0) + 1)
            tried.append(turn.attempt)
            if turn.attempt == 1:
                raise ValueError("once")

        @bot.event
        async def on_command_error(ctx, error):
            pass

        feed(bot, says(1, "!go"))
        for _ in range(500):
            await asyncio.sleep(0.01)
            if len(tried) == 2:
                break
        await settled(keeper)
        assert tried == [1, 2]
        assert (await record(keeper)).data == {"n": 1}


# ---------------------------------------------------------------------------------------------- interactions


def slash(number, name, **more):
    return interacts(number, 2, {"id": "1", "name": name, "type": 1}, **more)


async def test_slash_commands(keeper):
    failed = []
    async with connected() as client:
        tree = app_commands.CommandTree(client)
        attach(client, keeper)

        @tree.command(description="x")
        @app_commands.check(when(NoFlow()))
        async def start(interaction):
            interaction.extras["turn"].start(Signup)

        @tree.command(description="x")
        @app_commands.check(when(InFlow(Signup)))
        async def again(interaction):
            turn = current_turn()
            turn.update_data(n=turn.data.get("n", 0) + 1)
            if turn.attempt == 1:
                raise ValueError("once")

        @tree.error
        async def on_error(interaction, error):
            failed.append(type(error).__name__)

        feed(client, slash(1, "start"))
        feed(client, slash(1, "start"))
        feed(client, slash(2, "start"))
        feed(client, slash(3, "again"))
        for _ in range(500):
            await asyncio.sleep(0.01)
            found = await record(keeper)
            if found is not None and found.data:
                break
        await settled(keeper)
        assert (found.state, found.data) == ("ask_name", {"n": 1})
        assert failed == ["CheckFailure", "CommandInvokeError"]


async def test_an_interaction_in_a_thread_and_the_raw_event(keeper):
    seen = []
    async with connected() as client:
        attach(client, keeper)

        @client.event
        async def on_interaction(interaction, turn):
            seen.append((turn.key, interaction.extras["turn"] is turn))

        feed(client, slash(1, "any", channel=THREAD, channel_type=11))
        await settled(keeper)
        assert seen == [(("discord", CHANNEL, THREAD, ANN), True)]


async def test_buttons_and_modals(keeper):
    tried, heard = [], []

    class Buttons(discord.ui.View):
        def __init__(self):
            super().__init__(timeout=None)

        @discord.ui.button(label="go", custom_id="go")
        async def go(self, interaction, button):
            turn = current_turn()
            turn.update_data(pressed=turn.data.get("pressed", 0) + 1)
            tried.append(turn.attempt)
            if turn.attempt == 1:
                raise ValueError("once")

        async def on_error(self, interaction, error, item):
            heard.append(type(error).__name__)

    class Ask(discord.ui.Modal, title="ask"):
        name = discord.ui.TextInput(label="name", custom_id="name")

        async def on_submit(self, interaction):
            current_turn().update_data(name=self.name.value)

    async with connected() as client:
        client.add_view(Buttons())  # there before the keeper is
        attach(client, keeper)
        client._connection._view_store.add_view(Ask(custom_id="ask"))
        message = says(50, "press")
        press = interacts(1, 3, {"custom_id": "go", "component_type": 2}, message=message)
        feed(client, press)
        for _ in range(500):
            await asyncio.sleep(0.01)
            if len(tried) == 2:
                break
        rows = [
            {"type": 1, "id": 1, "components": [{"type": 4, "id": 2, "custom_id": "name", "value": "Ann"}]}
        ]
        feed(client, interacts(2, 5, {"custom_id": "ask", "components": rows}))
        await settled(keeper)
        assert (tried, heard) == ([1, 2], ["ValueError"])
        assert (await record(keeper)).data == {"pressed": 1, "name": "Ann"}


# ----------------------------------------------------------------------------------------------- and the rest


async def test_what_a_crash_left_behind_goes_through_the_client():
    store, said = MemoryStore(), []
    async with store:
        event = update_json({"t": "MESSAGE_CREATE", "d": says(1, "left")})
        address = Address("bot", "", KEY)
        await store.accept(address, Event("discord:1", event), Queue(), "dead", None, Terms(lease=0.01))
        async with connected() as client, Keeper("bot", store, sweep=0.05) as keeper:
            client._ready.clear()
            attach(client, keeper)

            @client.event
            async def on_message(message, turn):
                said.append((message.content, turn.attempt))

            await asyncio.sleep(0.2)
            assert said == []
            client._ready.set()
            for _ in range(500):
                await asyncio.sleep(0.01)
                if said:
                    break
            await settled(keeper)
    assert [text for text, _ in said] == ["left"]


async def test_conditions_of_every_kind(keeper):
    async with connected() as client:
        attach(client, keeper)
        found = []

        @client.event
        async def on_message(message, turn):
            turn.force(Signup, Signup.ask_email)
            turn.update_data(size="large")
            asked = (Signup.ask_email, Signup, InFlow(), DataIs(size="large"), lambda turn: True, NoFlow())
            found.extend(when(one)(message) for one in asked)

        feed(client, says(1, "hi"))
        await settled(keeper)
        assert found == [True, True, True, True, True, False]


async def test_wrong_use_is_refused_with_the_way_out(keeper):
    with pytest.raises(LookupError, match="attach"):
        current_turn()
    with pytest.raises(LookupError, match="attach"):
        when(NoFlow())(None)
    async with connected() as client:
        with pytest.raises(TypeError, match="Keeper"):
            attach(client, object())
        attach(client, keeper)
        with pytest.raises(ValueError, match="already"):
            attach(client, keeper)
