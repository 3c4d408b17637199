"""Cancelling at every ``await``: the places are found by watching where tasks are suspended, not by hand.

Every task of a loop is driven through :class:`_Watched`, which sees each suspension with the frames that are
waiting. One run counts them; each further run cancels the task that is suspended for the k-th time with a
frame of the package among those that wait: at once (``early``), or in the moment in which what it waits for
has come (``late``), when the answer is there and nobody takes it.
"""

from __future__ import annotations

import ast
import asyncio
import gc
import itertools
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Final, Literal, NamedTuple

import hitherto

HOUSE = Path(hitherto.__file__).parent
Time = Literal["early", "late"]
TIMES: Final[tuple[Time, ...]] = ("early", "late")
Place = tuple[str, int]

SPARED: Final = ("AdaptedStore._commit",)
"""The task that writes to somebody's own storage and then marks the turn as done cannot be atomic; it is one
of its own because of that, and only the end of the process ends it.
"""

_INSIDE = str(HOUSE) + "/"
_NOT_OURS = (str(HOUSE / "testing") + "/",)


def waiting_frames(awaited: Any) -> Iterator[FrameType]:
    """The frames of what a suspended coroutine waits for, from the outside in."""
    while awaited is not None:
        if hasattr(awaited, "cr_frame"):
            frame, inner = awaited.cr_frame, awaited.cr_await
        elif hasattr(awaited, "ag_frame"):
            frame, inner = awaited.ag_frame, awaited.ag_await
        elif hasattr(awaited, "gi_frame"):
            frame, inner = awaited.gi_frame, awaited.gi_yieldfrom
        else:  # what drives an async generator, or __await__ of a coroutine: it refers to it
            frame, inner = None, None
            for found in gc.get_referents(awaited):
                if any(hasattr(found, name) for name in ("cr_frame", "ag_frame", "gi_frame")):
                    inner = found
                    break
        if frame is not None:
            yield frame
        awaited = inner


class Watch:
    """Counts the suspensions inside the package, and cancels at the *target*-th."""

    def __init__(self, target: int = 0, time: Time = "early") -> None:
        self.target, self.time = target, time
        self.count = 0
        self.places: list[Place] = []
        self.who: asyncio.Task[Any] | None = None
        self.active = True

    def suspended(self, coroutine: Any, on: Any) -> None:
        """A task waits for *on*."""
        if not self.active or coroutine.__qualname__ in SPARED:
            return
        places = [
            (frame.f_code.co_filename[len(_INSIDE) :], frame.f_lineno)
            for frame in waiting_frames(coroutine)
            if frame.f_code.co_filename.startswith(_INSIDE)
            and not frame.f_code.co_filename.startswith(_NOT_OURS)
        ]
        if not places:
            return
        self.count += 1
        if self.count == self.target:
            self.places = places
            self.who = task = asyncio.current_task()
            assert task is not None
            if self.time == "late" and on is not None:
                on.add_done_callback(lambda _: task.cancel())
            else:
                task.cancel()


class _Watched(Coroutine[Any, Any, Any]):
    """A coroutine whose suspensions are seen."""

    def __init__(self, inner: Coroutine[Any, Any, Any], watch: Watch) -> None:
        self._inner, self._watch = inner, watch
        self.has_begun = False
        self.__name__ = getattr(inner, "__name__", "task")
        self.__qualname__ = getattr(inner, "__qualname__", "task")

    def send(self, value: Any) -> Any:
        self.has_begun = True
        return self._seen(self._inner.send(value))

    def throw(self, *error: Any) -> Any:
        return self._seen(self._inner.throw(*error))

    def close(self) -> None:
        self._inner.close()

    def __await__(self) -> Any:
        return self

    def _seen(self, on: Any) -> Any:
        self._watch.suspended(self._inner, on)
        return on


@contextmanager
def watched(watch: Watch) -> Iterator[Watch]:
    """All tasks made meanwhile are watched."""
    loop = asyncio.get_running_loop()
    before = loop.get_task_factory()
    loop.set_task_factory(
        lambda loop, coroutine, **options: asyncio.Task(_Watched(coroutine, watch), loop=loop, **options)
    )
    try:
        yield watch
    finally:
        loop.set_task_factory(before)


class Cancelled(NamedTuple):
    """What :func:`at_every_point` has done."""

    points: int
    places: frozenset[Place]


async def at_every_point(
    run: Callable[[Watch], Awaitable[None]], times: tuple[Time, ...] = TIMES
) -> Cancelled:
    """Let *run* go through with one more point cancelled each time; it checks everything itself."""
    places: set[Place] = set()
    points = 0
    for time in times:
        for target in itertools.count(1):
            watch = Watch(target, time)
            try:
                await run(watch)
            except Exception as error:
                way = " < ".join(f"{name}:{line}" for name, line in reversed(watch.places))
                who = watch.who and watch.who.get_coro().__qualname__
                raise AssertionError(f"cancelled {time} at {target}, {who} at {way}: {error}") from None
            if watch.count < target:
                break
            points += 1
            places.update(watch.places)
    return Cancelled(points, frozenset(places))


def awaits_of(module: str) -> dict[str, tuple[int, int]]:
    """Every place of a module that may suspend, by function and source: the lines it spans."""
    text = (HOUSE / module).read_text()
    found: dict[str, tuple[int, int]] = {}

    def visit(node: ast.AST, function: str) -> None:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            function = node.name
        if isinstance(node, ast.Await | ast.AsyncFor | ast.AsyncWith):
            is_block = not isinstance(node, ast.Await)
            end = node.body[0].lineno - 1 if is_block else node.end_lineno
            first = (ast.get_source_segment(text, node) or "").splitlines()[0]
            found[f"{module} {function}: {first}"] = (node.lineno, max(node.lineno, end or 0))
        for child in ast.iter_child_nodes(node):
            visit(child, function)

    visit(ast.parse(text), "")
    return found


def never_cancelled(module: str, places: Iterable[Place]) -> set[str]:
    """The awaits of a module at which nothing was ever cancelled."""
    lines = {line for name, line in places if name == module}
    return {
        what for what, (first, last) in awaits_of(module).items() if lines.isdisjoint(range(first, last + 1))
    }
