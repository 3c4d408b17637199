"""What to do about a handler that raised: try again, give up, or keep it as a dead letter."""

from __future__ import annotations

import logging
import os
import traceback
from collections.abc import Callable
from typing import Any, Final, Literal, TypeAlias

from hitherto.errors import HithertoError
from hitherto.protocol import Verdict
from hitherto.turns import Turn

Choice: TypeAlias = Literal["retry", "discard", "dead"]
OnError: TypeAlias = Literal["retry", "discard"] | Callable[[Turn, BaseException], Any]

VERDICTS: Final[dict[str, Verdict]] = {"retry": "retry", "discard": "done", "dead": "dead"}
_FRAMES = 12
_log = logging.getLogger("hitherto")


def doubling(attempt: int) -> float:
    """The default back-off: 1, 2, 4, ... seconds, at most a minute."""
    return float(min(60, 2 ** (min(attempt, 7) - 1)))


def check_policy(on_error: OnError) -> OnError:
    """Refuse what is no policy, where it is given."""
    if on_error not in ("retry", "discard") and not callable(on_error):
        raise ValueError(f"on_error={on_error!r}: 'retry', 'discard' or a function of the turn and the error")
    return on_error


async def verdict(on_error: OnError, turn: Turn | None, error: BaseException) -> Verdict:
    """What becomes of the turn's event; only an Exception can be given up, a cancelled turn is always
    retried. A function is not asked when the stored record was so wrong that there is no turn.
    """
    if not isinstance(error, Exception):
        return "retry"
    choice: Any = on_error
    if callable(on_error):
        if turn is None:
            return "retry"
        choice = on_error(turn, error)
        if hasattr(choice, "__await__"):
            choice = await choice
    try:
        return VERDICTS[choice]
    except (KeyError, TypeError):
        raise ValueError(
            f"on_error answered {type(choice).__name__}; it answers 'retry', 'discard' or 'dead'"
        ) from error


def redacted(error: BaseException) -> str:
    """The traceback without messages, source lines or values: they may quote what people wrote."""
    frames = traceback.extract_tb(error.__traceback__)[-_FRAMES:]
    lines = [f"{frame.filename}:{frame.lineno} in {frame.name}" for frame in frames]
    kind = type(error)
    message = f": {error}" if isinstance(error, HithertoError) else ""
    return "\n".join([*lines, f"{kind.__module__}.{kind.__qualname__}{message}"])


def where(error: BaseException) -> str:
    """The line that raised, as file:line."""
    frames = traceback.extract_tb(error.__traceback__)
    return f"{os.path.basename(frames[-1].filename)}:{frames[-1].lineno}" if frames else "?"


def log(name: str, error: BaseException) -> None:
    """Say that something went wrong, without the words of the error, which may quote what people wrote."""
    _log.error("%s error=%s where=%s", name, type(error).__name__, where(error))
    _log.debug(name, exc_info=error)
