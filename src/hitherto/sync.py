"""The keeper for programs without asyncio: Flask, Django, scripts.

::

    keeper = Keeper("my_bot", "sqlite:///my_bot.db", [Signup])

    @app.post("/webhook")
    def webhook():
        keeper.handle(request.get_json(), handler)      # def handler(turn: Turn): ...
        return "", 200

The verbs, options and promises of :class:`hitherto.Keeper`, which runs in one background thread; any number
of threads may call. Handlers are plain functions:

* ``handle`` runs the handler in the thread that called it and returns when the event is settled; what the
  handler raises is raised there. An event that has to wait is ``queued``, and ``handle`` returns.
* What nobody waits for (queued, recovered and retried events, those of ``accept``) runs in *workers* threads.
* A handler that outlives the grace of ``stop`` is ``fenced``: its event is run by whoever takes over.
* Functions given for *key*, *overlap*, *on_error* and ``listen`` run in the background thread: they are
  short, and call no verb of the keeper.

A handler may call the keeper for other conversations. A thread cannot be interrupted: after a
``handler_timeout``, a lost lease with ``on_lost="cancel"`` or the end of the grace its handler runs on,
``turn.lost`` is true, and nothing of it is committed. When KeyboardInterrupt or SystemExit end a handler the
event counts as not handled, and is tried again.

Threads do not survive a fork. A keeper may be built before one and is started after it, in each process
(gunicorn: in ``post_fork``, or without ``preload_app``); ``start`` may be called as often as one likes. One
that was started before says so. When the program ends, what runs is drained as by ``stop``.
"""

from __future__ import annotations

import asyncio
import concurrent.futures as futures
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import contextmanager
from queue import SimpleQueue
from typing import Any, Final, Self, TypeAlias

from hitherto import keeper
from hitherto.adapting import Mine, recover
from hitherto.addresses import Key, key_text
from hitherto.document import Dead, Document
from hitherto.flows import Flow
from hitherto.keys import Strategy
from hitherto.outcomes import Outcome, Step
from hitherto.pump import Health
from hitherto.stores import Store
from hitherto.threads import Background, Handler, Job, Workers, checked, end, held, helped, holding, result
from hitherto.turns import Turn

__all__ = ["Keeper"]

_Run: TypeAlias = Callable[[Turn], Coroutine[Any, Any, None]]
_LAST_WAIT: Final = 5.0


class Keeper:
    """Keeps the conversations of one bot in one store, for code that blocks; see the module's docstring.

    Apart from *workers* and *handler*, a plain function, everything is as in :class:`hitherto.Keeper`.
    """

    def __init__(
        self,
        bot: str,
        store: str | Store | Any = "memory://",
        flows: Iterable[type[Flow]] = (),
        *,
        handler: Handler | None = None,
        workers: int = 8,
        **options: Any,
    ) -> None:
        if workers < 1:
            raise ValueError(f"workers={workers!r}: one or more")
        self._handler = checked(handler)
        self._core = keeper.Keeper(bot, store, flows, handler=self._by_worker(handler), **options)
        self._workers = Workers(workers)
        self._leaving = asyncio.Event()
        self._background = Background("the keeper", self._core.start, self._leave)
        self._wait = self._background.wait

    def __repr__(self) -> str:
        return f"sync.{self._core!r}"

    # ------------------------------------------------------------------------------------ start and stop

    def start(self) -> None:
        """Start the background thread, open the store, begin to renew and to sweep; idempotent."""
        self._background.start()

    def stop(self, grace: float | None = None) -> None:
        """Let running turns finish for *grace* seconds, hand nothing out, release the rest, close."""
        if held():
            raise RuntimeError("a handler cannot wait for its own end: stop the keeper in another thread")
        if self._background.stop(grace):
            self._workers.close(_LAST_WAIT)

    async def _leave(self, grace: float | None) -> None:
        self._leaving.set()
        await self._core.stop(grace)

    @property
    def running(self) -> bool:
        """Whether it was started, in this process, and not stopped."""
        return self._core.running and self._background.here

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    # --------------------------------------------------------------------------------------------- events

    def handle(
        self, event: Any, handler: Handler | None = None, *, id: str | int | None = None, key: Key = None
    ) -> Outcome:
        """The whole turn of one event: accept it, run the handler on its Turn in this thread, commit."""
        jobs: SimpleQueue[Job | None] = SimpleQueue()
        caller: list[asyncio.Task[Any] | None] = []
        chosen = checked(handler) or self._handler

        def put(job: Job) -> None:
            (jobs if asyncio.current_task() in caller else self._workers).put(job)

        async def work() -> Outcome:
            caller.append(asyncio.current_task())
            run = None if chosen is None else self._ran(chosen, put)
            return await self._core.handle(event, run, id=id, key=key)

        with helped():
            future = self._background.submit(work)
            future.add_done_callback(lambda _: jobs.put(None))
            try:
                while (job := jobs.get()) is not None:
                    job()
                    if job.error is not None and not isinstance(job.error, Exception):
                        break
            except BaseException:
                future.cancel()
                raise
            if job is not None and job.error is not None:
                raise job.error
            return result(future)

    def accept(
        self, event: Any, handler: Handler | None = None, *, id: str | int | None = None, key: Key = None
    ) -> Outcome:
        """``handle`` that returns as soon as the event is kept: its turn is run by a worker."""
        run = self._by_worker(checked(handler))
        return self._wait(lambda: self._core.accept(event, run, id=id, key=key))

    @contextmanager
    def open(self, key: Key, *, timeout: float | None = None) -> Iterator[Turn]:
        """The same lock and commit without an event; waits until the conversation is free.

        Leaving the block commits; raising in it commits nothing. ``Fenced`` is raised when the lease was
        lost meanwhile.
        """
        if key_text(key) in held():
            raise RuntimeError(
                "this thread holds the conversation already and would wait for itself; use the turn it has"
            )
        given: SimpleQueue[tuple[Turn, asyncio.Future[None]] | None] = SimpleQueue()

        async def hold() -> None:
            async with self._core.open(key, timeout=timeout) as turn:
                ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                given.put((turn, ended))
                await ended

        future = self._background.submit(hold)
        future.add_done_callback(lambda _: given.put(None))
        try:
            with helped():
                got = given.get()
        except BaseException:
            future.cancel()
            raise
        if got is None:
            result(future)
            return
        turn, ended = got
        try:
            with holding(key):
                yield turn
        except BaseException:
            future.cancel()
            futures.wait([future], _LAST_WAIT)
            raise
        ended.get_loop().call_soon_threadsafe(end, ended)
        result(future)

    # ---------------------------------------------------------------------------------- looking after it

    @property
    def bot(self) -> str:
        """The name of the bot."""
        return self._core.bot

    @property
    def strategy(self) -> Strategy:
        """Which conversation an event belongs to."""
        return self._core.strategy

    @property
    def store(self) -> Store:
        """The store; its methods are for the background thread."""
        return self._core.store

    @property
    def counts(self) -> Mapping[str, int]:
        """How often each outcome came up since the start."""
        return self._core.counts

    def listen(self, callback: Callable[[Step], object]) -> Callable[[], None]:
        """Give every step to *callback*, in the background thread; call the answer to stop listening."""
        return self._core.listen(callback)

    def health(self) -> Health:
        """Whether the background task does its work, and how many turns run."""

        async def look() -> Health:
            return self._core.health()

        return self._wait(look)

    def sweep(self) -> None:
        """Renew, and take over what was left behind, now."""
        self._wait(self._core.sweep)

    def idle(self, seconds: float = 60.0) -> bool:
        """Wait until nothing runs in this process, at most so long; whether that is so."""
        return self._wait(lambda: self._core.idle(seconds))

    def inspect(self, key: Key) -> Document:
        """Everything that is kept about one conversation."""
        return self._wait(lambda: self._core.inspect(key))

    def dead_letters(self, key: Key) -> tuple[Dead, ...]:
        """The events of a conversation that were given up after their last attempt."""
        return self._wait(lambda: self._core.dead_letters(key))

    def dead_keys(self) -> list[Key]:
        """The conversations that have dead letters."""

        async def collect() -> list[Key]:
            return [key async for key in self._core.dead_keys()]

        return self._wait(collect)

    def retry_dead(self, key: Key, seq: int) -> bool:
        """Put a dead letter back in line, with its attempts forgotten; whether it was there."""
        return self._wait(lambda: self._core.retry_dead(key, seq))

    def drop_dead(self, key: Key, seq: int) -> bool:
        """Throw a dead letter away; whether it was there."""
        return self._wait(lambda: self._core.drop_dead(key, seq))

    def force_release(self, key: Key) -> bool:
        """Free a stuck conversation: whoever runs it can commit nothing more, its events wait again."""
        return self._wait(lambda: self._core.force_release(key))

    def forget(self, key: Key) -> None:
        """Erase everything about a conversation; whoever runs it now cannot bring it back."""
        self._wait(lambda: self._core.forget(key))

    # ------------------------------------------------------------------------------------------- pieces

    def _by_worker(self, handler: Handler | None) -> _Run | None:
        return None if handler is None else self._ran(handler, lambda job: self._workers.put(job))

    def recover(self, mine: Mine, handler: Handler) -> None:
        """For adapters: have *handler* run what was left behind of the events that *mine* knows."""
        recover(self._core, mine, self._ran(handler, self._workers.put))

    def _ran(self, handler: Handler, put: Callable[[Job], object]) -> _Run:
        """A handler as the core takes it: *put* where a thread will find it."""

        async def run(turn: Turn) -> None:
            job = Job(handler, turn, self._leaving)
            put(job)
            await job.result()

        return run
