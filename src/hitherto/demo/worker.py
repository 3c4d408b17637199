"""The playground's worker: the process that runs the keeper and the bot, and that the page kills.

It reads commands from standard input and says on standard output what happens, a JSON line each; it ends with
its input.  What it is told by commands (how slow, whether to raise, which overlap policy) the page tells it
again when it comes back: nothing of a conversation is lost with it.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
import warnings
from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec

from hitherto.addresses import decode
from hitherto.demo.pizza import Order, answer
from hitherto.errors import HithertoError, StoreWarning
from hitherto.keeper import Keeper
from hitherto.outcomes import Step
from hitherto.overlap import Burst, Concurrent, Debounce, Policy, Queue, Reject
from hitherto.turns import Turn

BOT: Final = "playground"
LEASE: Final = 2.0
ATTEMPTS: Final = 4
POLICIES: Final[dict[str, Policy]] = {
    "queue": Queue(limit=20),
    "reject": Reject(),
    "debounce": Debounce(window=1.0),
    "burst": Burst(window=1.0, gather=True),
    "concurrent": Concurrent(limit=10),
}


class Settings(msgspec.Struct, frozen=True):
    """What one person tries out."""

    slow: float = 0.4
    trouble: str = "no"
    overlap: str = "queue"

    def __post_init__(self) -> None:
        if not 0 <= self.slow <= 10:
            raise ValueError("slow: 0 to 10 seconds")
        if self.trouble not in ("no", "once", "always"):
            raise ValueError("trouble: no, once or always")
        if self.overlap not in POLICIES:
            raise ValueError(f"overlap: one of {', '.join(POLICIES)}")


class OvenOnFire(Exception):
    """What the handler raises when it is asked to."""


class Worker:
    """A keeper that is told what to do line by line."""

    def __init__(self, store: str, tell: Callable[[dict[str, Any]], object]) -> None:
        self._tell = tell
        self._settings: dict[str, Settings] = {}
        self._went: dict[str | None, dict[str, Any]] = {}
        self._keeper = Keeper(
            BOT, store, [Order], key=lambda event: (event["who"],), handler=self._handle, grace=1.0,
            overlap=lambda event: POLICIES[self._of(event).overlap], lease=LEASE, sweep=0.4,
            max_attempts=ATTEMPTS, backoff=lambda attempt: 0.6,
        )  # fmt: skip
        self._keeper.listen(self._step)
        self._verbs: dict[str, Callable[[dict[str, Any]], Awaitable[object]]] = {
            "accept": self._accept, "settings": self._set, "retry": self._retry, "drop": self._drop,
        }  # fmt: skip

    async def run(self, lines: asyncio.Queue[bytes]) -> None:
        """Obey until the lines end."""
        async with self._keeper:
            self._tell({"is": "up", "pid": os.getpid()})
            while line := await lines.get():
                command = msgspec.json.decode(line)
                await self._verbs[command["do"]](command)

    async def _accept(self, command: dict[str, Any]) -> None:
        try:
            outcome = await self._keeper.accept(command["event"], id=command["event"]["id"])
        except HithertoError as error:
            self._tell({"is": "outcome", "n": command["n"], "status": "failed", "error": str(error)})
        else:
            self._tell({"is": "outcome", "n": command["n"], "status": outcome.status})

    async def _set(self, command: dict[str, Any]) -> None:
        self._settings[command["who"]] = msgspec.convert(command["settings"], Settings)

    async def _retry(self, command: dict[str, Any]) -> None:
        await self._keeper.retry_dead((command["who"],), command["seq"])

    async def _drop(self, command: dict[str, Any]) -> None:
        await self._keeper.drop_dead((command["who"],), command["seq"])

    def _of(self, event: dict[str, Any]) -> Settings:
        return self._settings.get(event["who"], Settings())

    async def _handle(self, turn: Turn) -> None:
        """The bot, with what makes it worth watching around it."""
        settings, said, before = self._of(turn.event), list[str](), turn.place
        await asyncio.sleep(settings.slow)
        if turn.skipped:
            said.append(f"({len(turn.skipped) + 1} messages in one turn: I answer the last)")
        data = msgspec.json.encode(turn.data)
        await answer(turn, said.append)
        if settings.trouble == "always" or (settings.trouble == "once" and turn.attempt == 1):
            raise OvenOnFire("the oven is on fire")
        moved = before != turn.place or msgspec.json.encode(turn.data) != data
        self._went[turn.event_id] = {
            "from": before[1],
            "moved": moved,
            "folded": [event["id"] for event in turn.skipped],
        }
        self._tell({"is": "said", "who": turn.event["who"], "attempt": turn.attempt, "lines": said})

    def _step(self, step: Step) -> None:
        """Pass a step of the keeper on, with what the handler left about the way it went."""
        key = decode(step.conversation).key
        told = {
            "is": "step", "kind": step.kind, "who": key[0] if isinstance(key, tuple) else key,
            "id": step.event_id, "epoch": step.epoch, "attempt": step.attempt, "depth": step.depth,
            "detail": step.detail, "state": step.state,
        }  # fmt: skip
        if step.kind in ("committed", "failed", "fenced"):
            told |= self._went.pop(step.event_id, {})
        self._tell(told)


def _read(lines: asyncio.Queue[bytes], loop: asyncio.AbstractEventLoop) -> None:
    """Standard input, line by line, in a thread of its own; an empty line says that it has ended."""
    for line in sys.stdin.buffer:
        loop.call_soon_threadsafe(lines.put_nowait, line)
    loop.call_soon_threadsafe(lines.put_nowait, b"")


def _print(told: dict[str, Any]) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(told) + b"\n")
    sys.stdout.buffer.flush()


async def main(store: str) -> None:
    """Work until the input ends."""
    lines: asyncio.Queue[bytes] = asyncio.Queue()
    reading = threading.Thread(target=_read, args=(lines, asyncio.get_running_loop()), daemon=True)
    reading.start()
    await Worker(store, _print).run(lines)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the page, which then closes our input
    warnings.simplefilter("ignore", StoreWarning)
    asyncio.run(main(sys.argv[1]))
