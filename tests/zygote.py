"""A process that imports the frameworks once and forks bots from itself: imports take seconds, forks none.

A bot is a function of a module; it runs in a process of its own, which can be killed like any other.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import socket
import subprocess
import sys
import traceback
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

MODULES = (
    "aiogram", "aiohttp.web", "fastapi", "httpx", "msgspec", "telegram.ext", "uvicorn",
    "hitherto.aiogram", "hitherto.asgi", "hitherto.ptb", "hitherto.stores.redis", "hitherto.stores.sqlite",
)  # fmt: skip


class Zygote:
    """The process, from the outside."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair()
        command = [sys.executable, "-W", "ignore", __file__]
        self._process = subprocess.Popen(command, stdin=theirs)
        theirs.close()
        self._ask()

    def fork(self, function: str, *given: Any, environment: dict[str, str] | None = None, fd: int = 0) -> int:
        """Start ``module:function`` in a process, and tell its id; *fd* is FD in its environment."""
        order = {"function": function, "given": given, "environment": environment or {}}
        return int(self._ask(order, [fd] if fd else []))

    def wait(self, pid: int) -> None:
        """Wait until a process that was forked has ended."""
        self._ask({"wait": pid})

    def kill(self, pid: int) -> None:
        """End a process at once, whatever it does."""
        os.kill(pid, signal.SIGKILL)
        self.wait(pid)

    def close(self) -> None:
        """End it; it takes with it whom it has forked."""
        self._socket.close()
        self._process.wait(30)

    def _ask(self, order: Any = None, fds: list[int] | None = None) -> Any:
        if order is not None:
            socket.send_fds(self._socket, [json.dumps(order).encode()], fds or [])
        return json.loads(self._socket.recv(65_536))


@pytest.fixture(scope="session")
def zygote() -> Iterator[Zygote]:
    """One for all tests of this process."""
    one = Zygote()
    yield one
    one.close()


def main() -> None:
    """Import, and fork on demand until nobody asks any more."""
    sys.path.insert(0, str(Path(__file__).parent))
    for name in MODULES:
        importlib.import_module(name)
    line = socket.socket(fileno=0)
    line.send(b"null")
    children: set[int] = set()
    while True:
        words, fds, _, _ = socket.recv_fds(line, 65_536, 1)
        if not words:
            break
        order = json.loads(words)
        answer = None
        if "wait" in order:
            os.waitpid(order["wait"], 0)
            children.discard(order["wait"])
        else:
            answer = fork(order, fds, line)
            children.add(answer)
        for fd in fds:
            os.close(fd)
        line.send(json.dumps(answer).encode())
    for pid in children:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def fork(order: dict[str, Any], fds: list[int], line: socket.socket) -> int:
    """In the parent the id of the child; the child does not come back."""
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        line.close()
        os.environ.update(order["environment"])
        if fds:
            os.environ["FD"] = str(fds[0])
        module, _, function = order["function"].partition(":")
        getattr(importlib.import_module(module), function)(*order["given"])
        status = 0
    except SystemExit:
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main()
