"""What is seen while a run goes on: commits, recoveries after kills, and conversations that are looked at.

A conversation is *waiting* from the SIGKILL of the worker that ran a turn of it until the next commit. The
clock starts again when whoever took it over is killed or paused as well, and when a fault of the store or the
network that fell into that time is over.
"""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

from hitherto.document import Document
from hitherto.protocol import Terms
from hitherto.testing.chaos.report import SHOWN, Report, Span

_COUNTED = {"fenced": "fenced", "recovered": "recovered", "committed": "commits"}


class Watch:
    """Notes what workers tell, and what the harness does to them."""

    def __init__(self, report: Report, bound: float, queue: int, lossy: bool) -> None:
        self.report = report
        self.bound = bound
        self.lossy = lossy
        self.began = time.monotonic()
        self._queue = queue
        self._waiting: dict[int, float] = {}
        self._last: dict[int, float] = {}
        self._effects: Counter[str] = Counter()
        self._steps: Counter[str] = Counter()
        self._kinds: Counter[str] = Counter()
        self._seen: dict[int, tuple[int, int, list[str]]] = {}
        self._faults = 0
        self._excused = 0.0

    def violation(self, kind: str, text: str) -> None:
        """Note what is wrong; of each kind as many as anybody wants to read."""
        self._kinds[kind] += 1
        if self._kinds[kind] <= SHOWN:
            self.report.violations.append(text)

    # ------------------------------------------------------------------------------------------ workers

    def step(self, running: dict[int, None], message: dict[str, Any]) -> None:
        """A worker told a step of its keeper; *running* has the conversations it runs turns of."""
        kind, key = message["step"], message["key"]
        self._steps[kind] += 1
        if kind in _COUNTED:
            name = _COUNTED[kind]
            setattr(self.report, name, getattr(self.report, name) + 1)
        if kind == "started":
            running[key] = None
        elif kind in ("committed", "fenced", "failed", "released"):
            running.pop(key, None)
        if kind == "committed":
            self._committed(key, message["id"])

    def _committed(self, key: int, event: str | None) -> None:
        now = time.monotonic()
        second = int(now - self.began)
        throughput = self.report.throughput
        throughput.extend([0] * (second + 1 - len(throughput)))
        throughput[second] += 1
        self._last[key] = now
        if event is not None:
            self._effects[event] += 1
            if self._effects[event] == 2 and not self.lossy:
                self.violation("twice", f"key {key}: event {event} was committed twice")
        since = self._waiting.pop(key, None)
        if since is not None:
            self._recovered(key, since, now)

    def _recovered(self, key: int, since: float, now: float) -> None:
        if self._faults or since > now:
            return  # nothing is measured while something else is wrong
        took = now - since
        self.report.recoveries.append((round(now - self.began, 3), round(took, 3)))
        self.report.slowest_recovery = max(self.report.slowest_recovery, took)
        if took > self.bound:
            self.violation("late", f"key {key}: recovered {took:.2f} s after the kill of its owner, late")

    def killed(self, running: dict[int, None], when: float) -> None:
        """A worker is gone, and all it has told was read."""
        when = max(when, self._excused)
        for key in running:
            last = self._last.get(key, 0.0)
            if last > when:
                self._recovered(key, when, last)
            else:
                self._waiting[key] = when

    def paused(self, running: dict[int, None]) -> None:
        """A worker was stopped; what it had taken over must be taken over once more."""
        for key in running:
            if key in self._waiting:
                self._waiting[key] = time.monotonic()

    def fault_begins(self) -> float:
        """Something is done to the store or to the way there."""
        self._faults += 1
        return time.monotonic()

    def fault_ends(self, name: str, begun: float, grace: float) -> None:
        """It is undone; for *grace* seconds more nobody need have noticed."""
        self._faults -= 1
        now = time.monotonic()
        self.report.faults += 1
        self.report.named_faults[name] = self.report.named_faults.get(name, 0) + 1
        self.report.spans.append(Span(name, round(begun - self.began, 3), round(now - self.began, 3)))
        self._excused = max(self._excused, now + grace)
        for key, since in self._waiting.items():
            self._waiting[key] = max(since, self._excused)

    # ------------------------------------------------------------------------------------ conversations

    def looked(self, key: int, document: Document, log: list[str]) -> None:
        """Somebody looked at a conversation in the middle: it is within its limits and never goes back."""
        self.report.looks += 1
        terms = Terms()
        sizes = {
            # an event that finds a dead lease joins what was left, whatever the limit: one for each death
            "inbox": (len(document.inbox), 2 * self._queue + 1),
            "seen": (len(document.seen), terms.seen_limit),
            "operations": (len(document.ops), 3 * terms.ops_limit),  # a store may tidy up in batches
            "dead letters": (len(document.dead), terms.dead_limit),
        }
        for name, (size, cap) in sizes.items():
            if size > cap:
                self.violation(name, f"key {key}: {size} {name}, over the cap of {cap}")
        version, epoch, before = self._seen.get(key, (0, 0, []))
        if not self.lossy:
            if document.version < version or document.epoch < epoch:
                self.violation(
                    "back",
                    f"key {key}: version {document.version} epoch {document.epoch} after {version}, {epoch}",
                )
            if log[: len(before)] != before:
                self.violation(
                    "prefix", f"key {key}: what was committed before is no prefix of what is there now"
                )
        self._seen[key] = (document.version, document.epoch, log)

    def over(self) -> None:
        """The run is over."""
        self.report.steps = dict(self._steps)
