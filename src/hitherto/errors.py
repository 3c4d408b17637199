"""Everything hitherto raises, and the warnings it gives.

::

    HithertoError                      catch this to catch them all
    ├── FlowError (ValueError)         a flow is declared wrongly; .problems has every one of them
    ├── InvalidTransition              the flow does not allow this step; .flow .from_ .to .allowed
    ├── UnknownFlow (LookupError)      no flow of that name is registered; .name .known
    ├── UnknownState (LookupError)     the flow has no such state; .flow .state .known
    ├── DataError (ValueError)         data cannot be stored, or what is stored does not fit; .path
    ├── BadKey (ValueError)            this cannot name a conversation
    ├── BadEvent (ValueError)          this cannot be accepted as an event
    │   └── EventTooLarge              it is over the limit; .size .limit
    ├── StoreError                     the store failed; .url (without secrets) .retryable
    │   ├── StoreUnavailable           not reachable, busy or out of space at this moment
    │   ├── StoreConflict              others kept changing the same conversation
    │   ├── StoreClosed                used before it was opened or after it was closed
    │   ├── StoreCorrupt               the stored bytes are damaged or not ours
    │   ├── SchemaError                made by a newer version, or not migrated
    │   └── BadStoreURL (ValueError)   unknown scheme or option
    ├── Fenced                         this worker lost the lease: its commit is refused; .epoch
    ├── NotStarted (RuntimeError)      the keeper was not started
    ├── KeeperClosed (RuntimeError)    the keeper was closed
    └── MissingExtra (ImportError)     an optional package is not installed; .extra

    HithertoWarning (UserWarning)
    ├── FlowWarning                    a flow is allowed but suspicious
    └── StoreWarning                   a store can lose or damage what it is given

Every message says what to do next and holds no message text, token or password.  Every error can be pickled
and copied, also those of subclasses with an ``__init__`` of their own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hitherto.flows import Flow, State

_SECRET = re.compile(
    r"""((?:^|[?&;\s])[^=?&;\s]*(?:pass|secret|token|key)[^=?&;\s]*\s*=\s*)('(?:[^'\\]|\\.)*'|[^&\s]*)""",
    re.IGNORECASE,
)
_SHOWN = 80


class HithertoError(Exception):
    """The root of every error that this library raises on purpose."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.args, self.__dict__)


def _rebuild(kind: type[HithertoError], args: tuple[Any, ...], state: dict[str, Any]) -> HithertoError:
    error = kind.__new__(kind, *args)
    error.__dict__.update(state)
    return error


class HithertoWarning(UserWarning):
    """The root of every warning that this library gives."""


class FlowWarning(HithertoWarning):
    """A flow is allowed but suspicious; ``strict=True`` makes it an error."""


class StoreWarning(HithertoWarning):
    """A store works but can lose or damage what it is given, as it is set up now."""


class FlowError(HithertoError, ValueError):
    """A flow is declared wrongly; the message lists every problem, as does ``problems``."""

    problems: tuple[str, ...]

    def __init__(self, message: str, problems: Iterable[str] = ()) -> None:
        self.problems = tuple(problems) or (message,)
        listed = "".join(f"\n  - {problem}" for problem in self.problems) if problems else ""
        super().__init__(message + listed)


class InvalidTransition(HithertoError):
    """The declared edges do not allow this step.

    ``flow`` is the active flow or None; ``from_`` and ``to`` are the states, or both are flows when another
    flow was to be started over the active one; ``allowed`` are the states that were possible.
    """

    def __init__(
        self,
        flow: type[Flow] | None,
        from_: State | type[Flow] | None,
        to: State | type[Flow] | None,
        allowed: Iterable[State] = (),
    ) -> None:
        self.flow, self.from_, self.to = flow, from_, to
        self.allowed = tuple(allowed)
        super().__init__(_why_invalid(flow, from_, to, self.allowed))


class UnknownFlow(HithertoError, LookupError):
    """No flow of that name is registered."""

    def __init__(self, name: str, known: Iterable[str] = ()) -> None:
        self.name, self.known = name, tuple(known)
        super().__init__(
            f"unknown flow {shown(name)}{did_you_mean(name, self.known)}; {_listing('flows', self.known)}; "
            "add the class to Keeper(flows=[...]), or keep its name= when you rename it"
        )


class UnknownState(HithertoError, LookupError):
    """The flow has no state of that name; all three attributes are names."""

    def __init__(self, flow: str, state: str, known: Iterable[str] = ()) -> None:
        self.flow, self.state, self.known = flow, state, tuple(known)
        super().__init__(
            f"flow {shown(flow)} has no state {shown(state)}{did_you_mean(state, self.known)}; "
            f"{_listing('states', self.known)}; declare it, or give the renamed state its old text with "
            "State(name=...)"
        )


class DataError(HithertoError, ValueError):
    """Data cannot be stored as it is, or what is stored does not fit the data class; ``path`` says where."""

    def __init__(self, message: str, *, path: str = "") -> None:
        self.path = path
        super().__init__(message)


class BadKey(HithertoError, ValueError):
    """This cannot name a conversation; the message says which part and why."""


class BadEvent(HithertoError, ValueError):
    """This cannot be accepted as an event; the message says why."""


class EventTooLarge(BadEvent):
    """The event is larger than the keeper accepts; both attributes are bytes."""

    def __init__(self, size: int, limit: int) -> None:
        self.size, self.limit = size, limit
        super().__init__(
            f"the event takes {size} bytes and the limit is {limit}; store large content elsewhere and put a "
            "reference in the event, or raise the limit"
        )


class StoreError(HithertoError):
    """The store failed; never swallowed.

    ``url`` names the store without its secrets, or is None; ``retryable`` says whether the same call may
    succeed when it is made again a little later.
    """

    retryable: bool = False

    def __init__(self, message: str, *, url: str | None = None, retryable: bool | None = None) -> None:
        self.url = None if url is None else redact(url)
        if retryable is not None:
            self.retryable = retryable
        super().__init__(message if self.url is None else f"{message} [{self.url}]")


class StoreUnavailable(StoreError):
    """The store cannot be reached, is busy or out of space at this moment."""

    retryable = True


class StoreConflict(StoreError):
    """Others kept changing the same conversation until the attempts were used up."""

    retryable = True


class StoreClosed(StoreError):
    """The store was used before it was opened or after it was closed."""


class StoreCorrupt(StoreError):
    """What is stored is damaged, or was never written by this library."""


class SchemaError(StoreError):
    """The store was made by a newer version of this library, or waits for its migration."""


class BadStoreURL(StoreError, ValueError):
    """The URL of a store has an unknown scheme or option; the message lists what exists."""


class Fenced(HithertoError):
    """This worker lost the lease and somebody newer has it: nothing was changed."""

    def __init__(self, message: str = "", *, epoch: int | None = None) -> None:
        self.epoch = epoch
        super().__init__(
            message
            or f"the lease{'' if epoch is None else f' of epoch {epoch}'} was lost and nothing was changed; "
            "the event is handled by the worker that has it now: stop, and do not repeat the commit"
        )


class NotStarted(HithertoError, RuntimeError):
    """The keeper was not started."""

    def __init__(self, message: str = "") -> None:
        super().__init__(
            message or "the keeper is not started; use `async with keeper:` or `await keeper.start()` first"
        )


class KeeperClosed(HithertoError, RuntimeError):
    """The keeper was closed and takes no more events."""

    def __init__(self, message: str = "") -> None:
        super().__init__(
            message or "the keeper is closed and takes no more events; make a new one, or start it again"
        )


class MissingExtra(HithertoError, ImportError):
    """An optional package is not installed; ``extra`` is the name to install it by."""

    def __init__(self, what: str, extra: str) -> None:
        self.extra = extra
        super().__init__(f'{what} needs a package that is not installed: pip install "hitherto[{extra}]"')


def redact(url: str) -> str:
    """The URL or connection string with ``***`` for everything secret, rather too much than too little."""
    scheme, mark, rest = url.partition("://")
    if mark and "@" in rest and not rest.startswith("/"):
        rest = "***@" + rest.rpartition("@")[2]
    return _SECRET.sub(r"\1***", scheme + mark + rest)


def shown(name: object) -> str:
    """A name as a message shows it: quoted, without control characters, of bounded length."""
    text = str(name)
    return repr(text if len(text) <= _SHOWN else text[:_SHOWN] + "...")


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that was probably meant, or None."""
    import difflib

    by_folded = {one.casefold(): one for one in known}
    close = difflib.get_close_matches(str(name)[:200].casefold(), list(by_folded), 1)
    return by_folded[close[0]] if close else None


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The question to put behind an unknown name, or nothing."""
    guess = nearest(name, known)
    return "" if guess is None else f" (did you mean {shown(guess)}?)"


def _listing(what: str, known: Sequence[str]) -> str:
    if not known:
        return f"there are no {what}"
    more = f" and {len(known) - 20} more" if len(known) > 20 else ""
    return f"{what}: " + ", ".join(shown(name) for name in known[:20]) + more


def _why_invalid(flow: Any, from_: Any, to: Any, allowed: Sequence[State]) -> str:
    if flow is None:
        return (
            f"no flow is active, so there is no way to {_named(to)}; call turn.start(...) with its flow first"
        )
    if isinstance(to, type):
        return (
            f"flow {_named(flow)} is active, so {_named(to)} cannot start; call turn.clear() first, or "
            "turn.force(...) to switch"
        )
    ways = ", ".join(shown(state.name) for state in allowed)
    return (
        f"flow {_named(flow)}: {_named(from_)} -> {_named(to)} is not declared; from {_named(from_)} "
        f"{f'it may go to {ways}' if ways else 'it may go nowhere'}; add the edge to its State(to=...), or "
        "use turn.set_state(...), which skips this check"
    )


def _named(thing: Any) -> str:
    if thing is None:
        return "the start (state None)"
    spec = getattr(thing, "__hitherto__", None)
    return shown(getattr(thing, "name", thing) if spec is None else spec.name)
