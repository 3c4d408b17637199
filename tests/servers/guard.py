"""Stands outside the tests' process and, when that is gone (however it went), ends the servers it left.

Run as a script with a pipe as its standard input, one order a line: `+ PID SIGNAL` watch, `- PID` forget, `d
PATH` remove this directory at the end. The end of the pipe is the end of the tests.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import sys
import time

PATIENCE = 5.0


class Watched:
    """One process to end; held by a pidfd where there is one, so that a number used again is never hit."""

    def __init__(self, pid: int, number: int) -> None:
        self.pid = pid
        self.number = number
        try:
            self.handle = os.pidfd_open(pid) if hasattr(os, "pidfd_open") else None
        except OSError:
            self.handle = None

    def send(self, number: int) -> bool:
        """Send a signal; False when the process is no more."""
        try:
            if self.handle is None:
                os.kill(self.pid, number)
            else:
                signal.pidfd_send_signal(self.handle, number)
        except OSError:
            return False
        return True

    def ended(self) -> bool:
        """Whether it has ended, be it that nobody has waited for it yet."""
        if self.handle is None:
            return not self.send(0)
        return bool(select.select([self.handle], [], [], 0)[0])


def read_orders() -> tuple[list[Watched], list[str]]:
    """Follow the orders until the pipe ends; what is left to do then."""
    watched: dict[int, Watched] = {}
    directories: list[str] = []
    for line in sys.stdin:
        order, _, rest = line.rstrip("\n").partition(" ")
        if order == "+":
            pid, number = map(int, rest.split())
            watched[pid] = Watched(pid, number)
        elif order == "-":
            watched.pop(int(rest), None)
        elif order == "d":
            directories.append(rest)
    return list(watched.values()), directories


def end(watched: list[Watched]) -> None:
    """The signal each was registered with, then SIGKILL for those still there after a while."""
    for one in watched:
        one.send(one.number)
        one.send(signal.SIGCONT)
    deadline = time.monotonic() + PATIENCE
    while watched and time.monotonic() < deadline:
        watched = [one for one in watched if not one.ended()]
        time.sleep(0.02)
    for one in watched:
        one.send(signal.SIGKILL)


def main() -> None:
    """Wait for the end of the tests, then clear up."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    watched, directories = read_orders()
    end(watched)
    for directory in directories:
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main()
