"""The playground's worker as its page holds it: a process that is started, fed, killed and started again."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable
from typing import Any, Final, Literal

import msgspec

_BACK_AFTER: Final = 1.5
_END_WITHIN: Final = 5.0
_LONGEST_LINE: Final = 2**20
_MODULE: Final = "hitherto.demo.worker"

Heard = Callable[[dict[str, Any]], object]


class Plug:
    """Keeps one worker alive on a store; *heard* gets what it says, and what becomes of it.

    ``pull`` kills it with SIGKILL, in the middle of whatever it does; after a moment it is started again.
    """

    def __init__(self, store: str, heard: Heard, *, back_after: float = _BACK_AFTER) -> None:
        self._store, self._heard, self._back_after = store, heard, back_after
        self._process: asyncio.subprocess.Process | None = None
        self._task: asyncio.Task[None] | None = None
        self._closing = False
        self.state: Literal["starting", "up", "dead"] = "starting"
        self.pid: int | None = None
        self.since = time.time()
        self.deaths = 0

    async def __aenter__(self) -> Plug:
        self._task = asyncio.create_task(self._keep_alive())
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the worker's input, so that it ends by itself; kill it when it does not."""
        self._closing = True
        process = self._process
        if process is not None and process.stdin is not None:
            process.stdin.close()
        assert self._task is not None  # noqa: S101 - it was entered
        try:
            async with asyncio.timeout(_END_WITHIN):
                await asyncio.shield(self._task)
        except TimeoutError:
            self._task.cancel()
            await asyncio.wait([self._task])
            if process is not None and process.returncode is None:
                process.kill()
                await process.wait()

    def pull(self) -> bool:
        """Kill the worker; whether there was one."""
        if self._process is None or self._process.returncode is not None:
            return False
        self._process.kill()
        return True

    def send(self, command: dict[str, Any]) -> bool:
        """Give the worker a command; whether one was there to take it."""
        process = self._process
        if self.state != "up" or process is None or process.stdin is None or process.stdin.is_closing():
            return False
        process.stdin.write(msgspec.json.encode(command) + b"\n")
        return True

    async def _keep_alive(self) -> None:
        while not self._closing:
            self._become("starting", None)
            code = await self._live()
            if not self._closing:
                self.deaths += 1
                self._become("dead", None, code=code)
                await asyncio.sleep(self._back_after)

    async def _live(self) -> int:
        """One life of the worker; how it ended."""
        self._process = process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", _MODULE, self._store, limit=_LONGEST_LINE,
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        assert process.stdout is not None  # noqa: S101 - it is a pipe
        while line := await process.stdout.readline():
            try:
                told = msgspec.json.decode(line)
            except msgspec.DecodeError:
                continue  # it was killed in the middle of a line
            if told["is"] == "up":
                self._become("up", told["pid"])
            else:
                self._heard(told)
        return await process.wait()

    def _become(self, state: Literal["starting", "up", "dead"], pid: int | None, **more: Any) -> None:
        self.state, self.pid, self.since = state, pid, time.time()
        self._heard({"is": "worker", "state": state, "pid": pid, **more})
