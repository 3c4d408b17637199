"""The errors: one tree, drawn in the docstring; they survive pickle and copy and keep secrets."""

from __future__ import annotations

import copy
import inspect
import pickle
import re

import pytest

from hitherto import errors
from hitherto.errors import (
    BadKey,
    BadStoreURL,
    DataError,
    EventTooLarge,
    Fenced,
    FlowError,
    HithertoError,
    HithertoWarning,
    InvalidTransition,
    KeeperClosed,
    MissingExtra,
    NotStarted,
    StoreError,
    StoreUnavailable,
    UnknownFlow,
    UnknownState,
    did_you_mean,
    nearest,
    redact,
    shown,
)

EXAMPLES = [
    HithertoError("plain"),
    FlowError("flow X is declared wrongly:", ["one", "two"]),
    InvalidTransition(None, None, None),
    UnknownFlow("singup", ["signup"]),
    UnknownState("signup", "ask_nmae", ["ask_name"]),
    DataError("x", path='data["a"]'),
    BadKey("x"),
    errors.BadEvent("x"),
    EventTooLarge(5, 4),
    StoreError("x", url="redis://:secret@host/0", retryable=True),
    StoreUnavailable("x"),
    errors.StoreConflict("x"),
    errors.StoreClosed("x"),
    errors.StoreCorrupt("x"),
    errors.SchemaError("x"),
    BadStoreURL("x"),
    Fenced(epoch=7),
    NotStarted(),
    KeeperClosed(),
    MissingExtra("RedisStore", "redis"),
]


class Odd(HithertoError):
    """A user's own error whose __init__ does not take what it passes on."""

    def __init__(self, one, *, two):
        self.pair = (one, two)
        super().__init__(f"{one} and {two}")


def test_every_error_has_an_example():
    kinds = {
        kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, HithertoError)
    }
    assert kinds == {type(error) for error in EXAMPLES}


@pytest.mark.parametrize("error", [*EXAMPLES, Odd(1, two=2)], ids=lambda error: type(error).__name__)
def test_errors_survive_pickle_and_copy(error):
    error.add_note("noted")
    twins = [pickle.loads(pickle.dumps(error, protocol)) for protocol in range(pickle.HIGHEST_PROTOCOL + 1)]
    for twin in [*twins, copy.copy(error), copy.deepcopy(error)]:
        assert type(twin) is type(error)
        assert twin is not error
        assert str(twin) == str(error)
        assert twin.args == error.args
        assert twin.__dict__ == error.__dict__
        assert "noted" in twin.__notes__


def test_the_tree_in_the_docstring_is_the_tree():
    drawn, path = {}, []
    for line in re.findall(
        r"^    ((?:[│ ]   )*(?:[├└]── )?)(\w+)(?: \((\w+)\))?(?:  +|$)", errors.__doc__, re.MULTILINE
    ):
        depth = len(line[0]) // 4
        path[depth:] = [line[1]]
        drawn[line[1]] = (path[depth - 1] if depth else None, line[2] or None)
    real = {}
    for name, kind in inspect.getmembers(errors, inspect.isclass):
        if issubclass(kind, HithertoError | HithertoWarning):
            first, *others = [base.__name__ for base in kind.__bases__]
            ours = hasattr(errors, first)
            builtin = others[0] if others else None
            real[name] = (first, builtin) if ours else (None, None if first == "Exception" else first)
    assert drawn == real


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (
            UnknownFlow("singup", ["signup"]),
            ["'singup'", "did you mean 'signup'", "flows: 'signup'", "Keeper(flows="],
        ),
        (UnknownFlow("x", []), ["there are no flows"]),
        (
            UnknownState("f", "ask_nmae", ["ask_name"]),
            ["'f'", "'ask_nmae'", "did you mean 'ask_name'", "name="],
        ),
        (EventTooLarge(5, 4), ["5 bytes", "limit is 4", "raise the limit"]),
        (Fenced(epoch=7), ["epoch 7", "nothing was changed"]),
        (Fenced("gone"), ["gone"]),
        (NotStarted(), ["async with keeper"]),
        (KeeperClosed(), ["no more events"]),
        (MissingExtra("RedisStore", "redis"), ["RedisStore", 'pip install "hitherto[redis]"']),
        (FlowError("wrong:", ["one", "two"]), ["wrong:", "- one", "- two"]),
    ],
    ids=lambda value: type(value).__name__,
)
def test_messages_say_what_and_what_to_do(error, words):
    for word in words:
        assert word in str(error)


def test_attributes():
    assert FlowError("alone").problems == ("alone",)
    assert FlowError("all", ["a", "b"]).problems == ("a", "b")
    assert DataError("x", path="p").path == "p"
    assert (EventTooLarge(5, 4).size, EventTooLarge(5, 4).limit) == (5, 4)
    assert Fenced(epoch=7).epoch == 7
    assert MissingExtra("X", "redis").extra == "redis"
    assert (StoreError("x").retryable, StoreUnavailable("x").retryable) == (False, True)
    assert not StoreUnavailable("x", retryable=False).retryable
    assert StoreError("x").url is None


@pytest.mark.parametrize(
    ("kind", "builtin"),
    [
        (FlowError, ValueError),
        (DataError, ValueError),
        (BadKey, ValueError),
        (UnknownFlow, LookupError),
        (UnknownState, LookupError),
        (MissingExtra, ImportError),
        (NotStarted, RuntimeError),
    ],
)
def test_errors_are_also_what_python_would_raise(kind, builtin):
    assert issubclass(kind, builtin)


@pytest.mark.parametrize(
    ("url", "shown_as"),
    [
        ("sqlite:///bot.db", "sqlite:///bot.db"),
        ("sqlite:////home/a@b/bot.db", "sqlite:////home/a@b/bot.db"),
        ("sqlite://:memory:", "sqlite://:memory:"),
        ("redis://host:6379/0?db=1", "redis://host:6379/0?db=1"),
        ("redis://:s3cret@host/0", "redis://***@host/0"),
        ("redis://me:s3/cr@et?@host/0", "redis://***@host/0"),
        ("postgresql://me:s3cret@host/db?sslmode=require", "postgresql://***@host/db?sslmode=require"),
        ("postgresql://host/db?password=s3cret&x=1", "postgresql://host/db?password=***&x=1"),
        ("redis://host/0?auth_TOKEN=s3cret", "redis://host/0?auth_TOKEN=***"),
        ("host=h password=s3cret dbname=d", "host=h password=*** dbname=d"),
        ("password='s3 cr\\'et' host=h", "password=*** host=h"),
    ],
)
def test_urls_lose_their_secrets(url, shown_as):
    assert redact(url) == shown_as
    error = StoreError("failed", url=url)
    assert error.url == shown_as
    assert "s3" not in str(error) + repr(error) + repr(error.__dict__)


def test_the_nearest_name_ignores_case_and_needs_likeness():
    assert nearest("SIGNUP", ["other", "signup"]) == "signup"
    assert nearest("signup", ["OTHER", "SIGNUP"]) == "SIGNUP"
    assert nearest("zzz", ["other", "signup"]) is None
    assert nearest("x", []) is None
    assert did_you_mean("zzz", ["signup"]) == ""


def test_names_are_shown_short_and_without_control_characters():
    assert shown("a\n\x1b") == "'a\\n\\x1b'"
    assert len(shown("x" * 10_000)) < 100
    assert len(str(UnknownState("f", "x" * 10_000, [f"s{n}" for n in range(1000)]))) < 700
