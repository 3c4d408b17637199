"""discord.py on a keeper: handlers of messages and interactions get the turn, states are checks.

::

    client = commands.Bot("!", intents=...)          # or discord.Client, with or without a CommandTree
    attach(client, keeper)

    @client.event
    async def on_message(message, turn: Turn): ...

    @client.command()
    @commands.check(when(Signup.ask_name))           # app_commands.check(when(...)) for slash commands
    async def name(ctx, *, text):
        current_turn().update_data(name=text)

What Discord's gateway says goes to the keeper first, and through discord.py when it is its turn.
``on_message`` and ``on_interaction`` get the turn if they name it; commands, views and modals ask
`current_turn()`, and slash commands have it in ``interaction.extras["turn"]``, too. A handler that raises
changes nothing and is tried again; discord.py's error handlers hear of it as ever. What the bot itself says
belongs to no conversation.

The key is the keeper's strategy over channel, thread and user (see :mod:`hitherto.adapting`): a thread is one
in its parent channel. Messages and interactions are known by their id, so that what the gateway replays
after a reconnect is handled once. Discord keeps nothing for later: an event that the overlap policy refuses
is gone, and counted. An interaction wants its first answer within three seconds, waiting included.

The keeper is started and stopped by whoever made it, after ``login`` and before ``close``, best in
``setup_hook``; what was left behind is run when the client is ready.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

from hitherto.adapting import Condition, Place, all_of, key_of, recover
from hitherto.errors import KeeperClosed, MissingExtra, StoreError
from hitherto.filters import DataIs, InFlow, InState, NoFlow
from hitherto.flows import Flow, State
from hitherto.keeper import Keeper
from hitherto.turns import Turn

try:
    from discord import ChannelType, Client, DiscordException, Thread
    from discord.app_commands import AppCommandError, CommandInvokeError
except ImportError as missing:
    raise MissingExtra("hitherto.discord", "discord") from missing

__all__ = ["DataIs", "InFlow", "InState", "NoFlow", "attach", "current_turn", "when"]

_KINDS: Final = ("MESSAGE_CREATE", "INTERACTION_CREATE")
_REALM: Final = "discord"
_THREADS: Final = {
    ChannelType.news_thread.value, ChannelType.public_thread.value, ChannelType.private_thread.value
}  # fmt: skip
_log = logging.getLogger("hitherto")
_now: ContextVar[_Feed | None] = ContextVar("hitherto_discord", default=None)
"""The event that the running task belongs to."""


def attach(client: Client, keeper: Keeper) -> None:
    """Have messages and interactions of *client* handled by *keeper*: see the module's docstring."""
    if not isinstance(keeper, Keeper):
        raise TypeError("keeper: a discord.Client takes a hitherto.Keeper")
    if "_run_event" in vars(client):
        raise ValueError("this client has a keeper already")
    _Attached(client, keeper)


def current_turn() -> Turn:
    """The turn that the running handler is in."""
    feed = _now.get()
    if feed is None:
        raise LookupError("no turn runs here: attach(client, keeper), and ask inside of a handler")
    return feed.turn


def when(*conditions: Condition | State | type[Flow]) -> Callable[[Any], bool]:
    """A check for ``commands.check`` and ``app_commands.check``: every condition holds in the turn."""
    holds = all_of(conditions)

    def check(context: Any) -> bool:
        return holds(current_turn())

    return check


class _Feed:
    """One event that is run."""

    def __init__(self, turn: Turn) -> None:
        self.turn = turn
        self.error: BaseException | None = None

    def note(self, error: BaseException) -> None:
        """A handler raised this; the first one counts."""
        if self.error is None:
            self.error = error


def _note(error: BaseException) -> None:
    feed = _now.get()
    if feed is not None:
        feed.note(error)


class _Attached:
    """A client whose messages and interactions are handled by a keeper."""

    def __init__(self, client: Any, keeper: Keeper) -> None:
        self.client, self.keeper = client, keeper
        self._last: dict[str, asyncio.Future[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        state = client._connection
        self._parsers = {kind: state.parsers[kind] for kind in _KINDS}
        for kind in _KINDS:
            state.parsers[kind] = self._hook(kind)
        self._run_event, self._schedule = client._run_event, client._schedule_event
        client._run_event, client._schedule_event = self.run_event, self.schedule
        self._watch_views(state._view_store)
        recover(keeper, _is_ours, self._recovered)

    # ---------------------------------------------------------------------------------------- into the keeper

    def _hook(self, kind: str) -> Callable[[dict[str, Any]], None]:
        """What the gateway calls instead of discord.py's own parser."""

        def came(data: dict[str, Any]) -> None:
            user = self.client._connection.self_id
            if user is not None and _number(_author(data).get("id")) == user:
                self._parsers[kind](data)
                return
            task = asyncio.get_running_loop().create_task(self._come(kind, data))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

        return came

    @contextmanager
    def _line(self, data: dict[str, Any]) -> Iterator[asyncio.Future[None] | None]:
        """The events of a channel come to the store one after the other."""
        channel = str(data.get("channel_id"))
        mine: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        before, self._last[channel] = self._last.get(channel), mine
        try:
            yield before
        finally:
            mine.set_result(None)
            if self._last.get(channel) is mine:
                del self._last[channel]

    async def _come(self, kind: str, data: dict[str, Any]) -> None:
        with self._line(data) as before:  # tasks begin in the order in which they were made
            if before is not None:
                await asyncio.wait([before])
            event = {"t": kind, "d": data}
            try:
                key = key_of(self.keeper.strategy, event, await self._place(data))
                outcome = await self.keeper.accept(event, self._run, id=f"discord:{data['id']}", key=key)
            except (StoreError, OSError, KeeperClosed) as error:
                _log.error("discord.lost error=%s", type(error).__name__)
                return
            if not outcome.accepted:
                _log.warning("discord.refused status=%s", outcome.status)

    async def _place(self, data: dict[str, Any]) -> Place:
        """Channel, thread and user; the parent of a thread is looked up, if the event does not say it."""
        channel = _number(data.get("channel_id"))
        place = Place(_REALM, channel, None, _number(_author(data).get("id")))
        said = data.get("channel")
        if isinstance(said, dict) and "type" in said:
            parent = _number(said.get("parent_id")) if said["type"] in _THREADS else None
        else:
            parent = await self._parent(data, channel)
        return place if parent is None else place._replace(channel=parent, thread=channel)

    async def _parent(self, data: dict[str, Any], channel: int | None) -> int | None:
        if "guild_id" not in data or channel is None:
            return None
        found = self.client.get_channel(channel)
        if found is None:
            try:
                found = await self.client.fetch_channel(channel)
            except DiscordException:
                return None
        return found.parent_id if isinstance(found, Thread) else None

    # ----------------------------------------------------------------------------------------- in their turn

    async def _recovered(self, turn: Turn) -> None:
        """What another process had accepted: the client has to know its guilds first."""
        await self.client.wait_until_ready()
        await self._run(turn)

    async def _run(self, turn: Turn) -> None:
        """Let discord.py parse the event, and wait for every handler that it starts."""
        feed = _Feed(turn)
        token = _now.set(feed)
        self._watch_tree(self.client._connection._command_tree)
        try:
            with _started() as tasks:
                self._parsers[turn.event["t"]](turn.event["d"])
            for error in await asyncio.gather(*tasks, return_exceptions=True):
                if error is not None:
                    feed.note(error)
        finally:
            _now.reset(token)
        if feed.error is not None:
            raise feed.error

    async def run_event(
        self, handler: Callable[..., Coroutine[Any, Any, Any]], name: str, *given: Any, **named: Any
    ) -> None:
        """``_run_event``: handlers that name the turn get it, and the turn hears what they raise."""
        feed = _now.get()
        if feed is None or name not in ("on_message", "on_interaction"):
            await self._run_event(handler, name, *given, **named)
            return
        if name == "on_interaction":
            given[0].extras["turn"] = feed.turn
        more = {"turn": feed.turn} if "turn" in inspect.signature(handler).parameters else {}

        async def noting(*given: Any, **named: Any) -> Any:
            try:
                return await handler(*given, **named, **more)
            except Exception as error:
                _note(error)
                raise

        await self._run_event(noting, name, *given, **named)

    def schedule(self, handler: Any, name: str, *given: Any, **named: Any) -> Any:
        """``_schedule_event``: a command that failed is told to the turn as well."""
        original = getattr(given[1], "original", None) if name == "on_command_error" else None
        if original is not None:
            _note(original)
        return self._schedule(handler, name, *given, **named)

    def _watch_tree(self, tree: Any) -> None:
        """Slash commands and context menus: what they raise is told to the turn."""
        if tree is None or "_call" in vars(tree):
            return
        call = tree._call

        async def noting(interaction: Any) -> None:
            feed = _now.get()
            if feed is not None:
                interaction.extras["turn"] = feed.turn
            try:
                await call(interaction)
            except AppCommandError as error:
                if isinstance(error, CommandInvokeError):
                    _note(error.original)
                raise

        tree._call = noting

    def _watch_views(self, store: Any) -> None:
        """Views and modals: the same, from the moment that they are sent or added."""
        add, views = store.add_view, {id(view): view for view in store.persistent_views}

        def watch(view: Any) -> None:
            if "on_error" in vars(view):
                return
            on_error = view.on_error

            async def noting(interaction: Any, error: Exception, *item: Any) -> None:
                _note(error)
                await on_error(interaction, error, *item)

            view.on_error = noting

        def added(view: Any, message_id: int | None = None) -> None:
            watch(view)
            add(view, message_id)

        for view in (*views.values(), *store._synced_message_views.values()):
            watch(view)
        store.add_view = added


@contextmanager
def _started() -> Iterator[list[asyncio.Future[Any]]]:
    """The tasks that are made in this block, which awaits nothing."""
    loop = asyncio.get_running_loop()
    made: list[asyncio.Future[Any]] = []
    before = loop.get_task_factory()

    def make(loop: asyncio.AbstractEventLoop, work: Any, **named: Any) -> Any:
        task = asyncio.Task(work, loop=loop, **named) if before is None else before(loop, work, **named)
        made.append(task)
        return task

    loop.set_task_factory(make)
    try:
        yield made
    finally:
        loop.set_task_factory(before)


def _author(data: dict[str, Any]) -> dict[str, Any]:
    """The user of a message, or of an interaction in a guild or in private."""
    member: dict[str, Any] = data.get("member") or {}
    found: dict[str, Any] = data.get("author") or data.get("user") or member.get("user") or {}
    return found


def _number(text: Any) -> int | None:
    return None if text is None else int(text)


def _is_ours(event: Any) -> bool:
    return isinstance(event, dict) and event.get("t") in _KINDS and "d" in event
