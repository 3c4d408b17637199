"""Server processes of the tests' own: on loopback ports, ended by process id, never outliving the tests.

Every server runs in a session of its own (Ctrl-C does not reach it), writes to a directory under `workdir()`,
and is watched by `guard.py` from outside. All calls here block: in a coroutine use `await
asyncio.to_thread(server.restart)` when the loop must go on meanwhile (`kill`, `pause` and `resume` of a Redis
take microseconds).
"""

from __future__ import annotations

import atexit
import contextlib
import os
import pwd
import random
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self

LOOPBACK = "127.0.0.1"


class ServerError(RuntimeError):
    """A server did not start, did not answer in time, or died."""


class ServerMissing(ServerError):
    """No program for this kind of server is on this machine."""


class _Session:
    """What one process of the tests has started: the guard, the directory, the live servers."""

    def __init__(self) -> None:
        self.owner = os.getpid()
        self.servers: list[ServerProcess] = []
        self.ports: set[int] = set()
        self.lock = threading.Lock()
        self.directory = Path(tempfile.mkdtemp(prefix="hitherto-servers-", dir=_parent_directory()))
        self.directory.chmod(0o711)
        self.guard = subprocess.Popen(
            [sys.executable, "-I", "-S", str(Path(__file__).with_name("guard.py"))],
            stdin=subprocess.PIPE,
            start_new_session=True,
            cwd="/",
        )
        self.order(f"d {self.directory}")
        atexit.register(self.close)
        os.register_at_fork(after_in_child=self.let_go)

    def order(self, line: str) -> None:
        """Tell the guard one thing."""
        assert self.guard.stdin is not None
        with self.lock, contextlib.suppress(BrokenPipeError):
            self.guard.stdin.write(line.encode() + b"\n")
            self.guard.stdin.flush()

    def let_go(self) -> None:
        """In a forked child: not to hold the guard's pipe open."""
        assert self.guard.stdin is not None
        self.guard.stdin.close()
        self.guard.returncode = 0

    def close(self) -> None:
        """End every server still running, remove the directory, and let the guard go."""
        if os.getpid() != self.owner:
            return
        for server in list(self.servers):
            server.close()
        shutil.rmtree(self.directory, ignore_errors=True)
        assert self.guard.stdin is not None
        self.guard.stdin.close()
        self.guard.wait()


_session: _Session | None = None
_session_lock = threading.Lock()


def session() -> _Session:
    """The session of this process, begun at first use."""
    global _session
    with _session_lock:
        if _session is None or _session.owner != os.getpid():
            _session = _Session()
        return _session


def _parent_directory() -> str | None:
    """Where temporary files go; another place when the usual one is closed to unprivileged users and we are
    root.
    """
    usual = tempfile.gettempdir()
    if os.geteuid() == 0 and not reachable(Path(usual)):
        return "/tmp"
    return usual


def workdir(name: str) -> Path:
    """A new directory `name-xxxx`, which unprivileged servers can pass through, removed with the session."""
    path = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=session().directory))
    path.chmod(0o711)
    return path


def reachable(path: Path) -> bool:
    """Whether any user may pass through every directory on the way to `path`, and read it."""
    resolved = path.resolve()
    way = all(parent.stat().st_mode & stat.S_IXOTH for parent in resolved.parents)
    return way and bool(resolved.stat().st_mode & stat.S_IXOTH)


def unprivileged() -> dict[str, Any]:
    """Arguments for `Popen` that make a program run as `nobody` when we are root."""
    if os.geteuid() != 0:
        return {}
    nobody = pwd.getpwnam("nobody")
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}


def free_port() -> int:
    """A loopback port that is free, as is the one 10 000 above it (a cluster node's second port).

    Both lie below the range from which the system takes outgoing ports. So a client that calls again and
    again while its server is down can neither take the port nor connect to itself.
    """
    taken = session().ports
    for _ in range(1000):
        port = random.SystemRandom().randrange(10_100, 22_000)
        if port not in taken and _bindable(port) and _bindable(port + 10_000):
            taken.add(port)
            return port
    raise ServerError("no free port found between 10100 and 22000")


def _bindable(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True


def wait_until(check: Callable[[], object], what: str, timeout: float = 20.0, every: float = 0.01) -> None:
    """Look until `check()` is true; `ServerError` naming `what` after `timeout` seconds. Lost connections are
    a no.
    """
    deadline = time.monotonic() + timeout
    while True:
        try:
            if check():
                return
        except OSError:
            pass
        if time.monotonic() > deadline:
            raise ServerError(f"waited {timeout:g} s in vain: {what}")
        time.sleep(every)


def children(pid: int) -> list[int]:
    """The processes that `pid` started itself."""
    return [child for child, parent in _parents() if parent == pid]


def _parents() -> Iterator[tuple[int, int]]:
    """(process, its parent), for all processes there are."""
    if not Path("/proc/self/stat").exists():
        table = subprocess.run(
            ["ps", "-axo", "pid=,ppid="], capture_output=True, text=True, check=True
        ).stdout
        yield from ((int(pid), int(parent)) for pid, parent in map(str.split, table.splitlines()))
        return
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                fields = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            yield int(name), int(fields[1])


def running(pid: int) -> bool:
    """Whether there is such a process, one that has ended but was not yet waited for aside."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return not Path("/proc/self/stat").exists()
    except OSError:
        return False


def send(pid: int, number: int) -> None:
    """Send a signal; nothing happens if the process is gone already."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


class ServerProcess:
    """A server with a directory and a port of its own. It keeps both through `kill()`, `stop()` and
    `restart()`.

    A subclass says how it is started (`arguments`) and when it answers (`answers`).
    """

    kind = "server"
    gentle = signal.SIGTERM
    final = signal.SIGKILL
    drops_root = False

    def __init__(self, directory: Path | None = None, port: int | None = None) -> None:
        self.directory = directory or workdir(self.kind)
        self.port = port or free_port()
        self.host = LOOPBACK
        self._process: subprocess.Popen[bytes] | None = None
        self._paused = False

    def arguments(self) -> list[str]:
        """The command line."""
        raise NotImplementedError

    def answers(self) -> bool:
        """Whether the server takes commands now."""
        raise NotImplementedError

    @property
    def pid(self) -> int:
        """The process id of the running server."""
        if self._process is None:
            raise ServerError(f"{self.kind} on port {self.port} was not started")
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether the process runs (a paused one does)."""
        return self._process is not None and self._process.poll() is None

    @property
    def paused(self) -> bool:
        """Whether it was paused and not resumed since."""
        return self._paused

    @property
    def log(self) -> str:
        """All the server has said so far."""
        path = self.directory / "log"
        return path.read_text(errors="replace") if path.exists() else ""

    def start(self, timeout: float = 30.0) -> Self:
        """Start and wait until it answers."""
        self.spawn()
        self.wait_ready(timeout)
        return self

    def spawn(self) -> None:
        """Start without waiting; `wait_ready` waits."""
        if self.alive:
            raise ServerError(f"{self.kind} on port {self.port} runs already")
        own = unprivileged() if self.drops_root else {}
        with (self.directory / "log").open("ab") as log:
            process = subprocess.Popen(
                self.arguments(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.directory,
                start_new_session=True,
                env={"PATH": os.environ.get("PATH", ""), "LC_ALL": "C", "TZ": "UTC"},
                user=own.get("user"),
                group=own.get("group"),
                extra_groups=own.get("extra_groups"),
            )
        self._process = process
        session().order(f"+ {process.pid} {int(self.final)}")
        if self not in session().servers:
            session().servers.append(self)

    def wait_ready(self, timeout: float = 30.0) -> None:
        """Wait until the server answers; `ServerError` with the end of its log when it died instead."""

        def ready() -> bool:
            if not self.alive:
                raise ServerError(f"{self.kind} on port {self.port} ended:\n{self.log[-2000:]}")
            return self.answers()

        wait_until(ready, f"{self.kind} on port {self.port} answers", timeout, every=0.005)

    def stop(self, timeout: float = 10.0) -> None:
        """End it as an administrator would; SIGKILL if it takes longer than `timeout`."""
        self._end(self.gentle, timeout)

    def kill(self) -> None:
        """SIGKILL, as a crash would."""
        self._end(signal.SIGKILL, 10.0)

    def restart(self) -> None:
        """Stop it if it runs, then start it on the same port with the same directory."""
        self.stop()
        self.start()

    def pause(self) -> None:
        """SIGSTOP: the process keeps its connections and says nothing."""
        for pid in self.members():
            session().order(f"+ {pid} {int(signal.SIGKILL if pid != self.pid else self.final)}")
            send(pid, signal.SIGSTOP)
        self._paused = True

    def resume(self) -> None:
        """SIGCONT."""
        if not self._paused:
            return
        for pid in self.members():
            send(pid, signal.SIGCONT)
            if pid != self.pid:
                session().order(f"- {pid}")
        self._paused = False

    def members(self) -> list[int]:
        """All processes of this server, the main one first."""
        return [self.pid]

    def close(self) -> None:
        """End it at once and remove its directory."""
        self._end(self.final, 5.0)
        shutil.rmtree(self.directory, ignore_errors=True)
        if self in session().servers:
            session().servers.remove(self)

    def _end(self, number: signal.Signals, timeout: float) -> None:
        process = self._process
        if process is None or process.poll() is not None:
            return
        if number != signal.SIGKILL:
            self.resume()
        members = self.members()
        send(process.pid, number)
        try:
            process.wait(timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        self._wait_gone(members[1:])
        session().order(f"- {process.pid}")

    def _wait_gone(self, others: list[int]) -> None:
        """The other processes of the server leave by themselves, once they may run."""
        if self._paused:
            for pid in others:
                send(pid, signal.SIGCONT)
            self._paused = False
        wait_until(lambda: not any(map(running, others)), f"{self.kind} leaves with all its processes", 15)

    def __enter__(self) -> Self:
        return self if self.alive else self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} port={self.port} {'alive' if self.alive else 'down'}>"
