"""Addresses: the golden texts, no collision, exact round trip, and refusals that give their reason."""

from __future__ import annotations

import re
from enum import Enum, IntEnum, StrEnum
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hitherto.addresses import Address, check_key, decode, encode, key_text, parse_key
from hitherto.errors import BadKey
from soak_keys import identity

GOLDEN = [
    (Address("my_bot", "", (7, 7)), "my_bot//7/7"),
    (Address("my_bot", "", (-1001234567890, 42, 7)), "my_bot//-1001234567890/42/7"),
    (Address("my_bot", "", (0, 7)), "my_bot//0/7"),
    (Address("my_bot", "", ("guest", 7, 8)), "my_bot//.guest/7/8"),
    (Address("my_bot", "", ("business:a/b", 7, 8)), "my_bot//.business%3Aa%2Fb/7/8"),
    (Address("my_bot", "thread", "slack:C1:1.2"), "my_bot/thread/=.slack%3AC1%3A1.2"),
    (Address("my_bot", "", ()), "my_bot//()"),
    (Address("my_bot", "", ("",)), "my_bot//."),
    (Address("my_bot", "", ""), "my_bot//=."),
    (Address("my_bot", "", 1), "my_bot//=1"),
    (Address("my_bot", "", (1,)), "my_bot//1"),
    (Address("my_bot", "", ("1",)), "my_bot//.1"),
    (Address("my_bot", "", (True, False)), "my_bot//true/false"),
    (Address("my_bot", "", (None,)), "my_bot//null"),
    (Address("my_bot", "", None), "my_bot//=null"),
    (Address("my_bot", "", ("null", "true", "()")), "my_bot//.null/.true/.%28%29"),
    (Address("my_bot", "", (1.0, -0.0, 0.0, 1e16, 5e-324)), "my_bot//1.0/-0.0/0.0/1e+16/5e-324"),
    (Address("my_bot", "", (2**2048 - 1,)), f"my_bot//{2**2048 - 1}"),
    (Address("my_bot", "", (2**2048, -(2**2048))), f"my_bot//0x1{'0' * 512}/-0x1{'0' * 512}"),
    (Address("a/b", "c:d", (1,)), "a%2Fb/c%3Ad/1"),
    (Address("", "", (1,)), "//1"),
    (Address("бот", "", ("é", "e\u0301", "😀", "\x00\n %")),
     "%D0%B1%D0%BE%D1%82//.%C3%A9/.e%CC%81/.%F0%9F%98%80/.%00%0A%20%25"),
    (Address("b", "", ("A-z_0.9~", "{}*?[]@")), "b//.A-z_0.9~/.%7B%7D%2A%3F%5B%5D%40"),
]  # fmt: skip

HOSTILE = st.lists(
    st.sampled_from(
        [*":{}/%[]*?\n\x00\u202e._~='\"()", "1", "true", "%2F", "..", "é", "e\u0301", "\U0010ffff"]
    ),
    max_size=6,
).map("".join)
TEXT = HOSTILE | st.text(max_size=20) | st.sampled_from(["", "1", "1.0", "True", "x" * 10_000, "é/" * 5_000])
SCALAR = (
    TEXT
    | st.sampled_from([0, 1, True, False, 1.0, 0.0, -0.0, None, "1", 2**2048, -(2**5000)])
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
)
KEY = SCALAR | st.lists(SCALAR, max_size=4).map(tuple)
ADDRESS = st.builds(Address, TEXT, TEXT, KEY)


@pytest.mark.parametrize(("address", "text"), GOLDEN, ids=[text[:40] for _, text in GOLDEN])
def test_golden(address: Address, text: str) -> None:
    assert encode(address) == text
    assert identity(decode(text)) == identity(address)


@given(ADDRESS)
def test_every_address_decodes_back_exactly_types_included(address: Address) -> None:
    text = encode(address)
    assert identity(decode(text)) == identity(address)
    assert encode(decode(text)) == text
    assert identity(parse_key(key_text(address.key))) == identity(address.key)


@given(ADDRESS)
def test_the_text_is_safe_in_redis_keys_hash_tags_and_globs(address: Address) -> None:
    text = encode(address)
    assert re.fullmatch(r"[A-Za-z0-9_.~%/=()+-]+", text)
    assert text.count("/") == 1 + max(1, len(address.key) if isinstance(address.key, tuple) else 1)


@given(ADDRESS, ADDRESS)
def test_different_addresses_have_different_texts(one: Address, other: Address) -> None:
    assert (encode(one) == encode(other)) == (identity(one) == identity(other))


@given(st.lists(SCALAR, min_size=2, max_size=3))
def test_parts_cannot_be_moved_over_the_separator(parts: list[Any]) -> None:
    joined = "/".join(part if isinstance(part, str) else key_text((part,)) for part in parts)
    texts = {key_text(tuple(parts)), key_text((joined,)), key_text(joined), key_text((*parts, ""))}
    assert len(texts) == 4


def test_what_python_calls_equal_stays_apart() -> None:
    alike: list[Any] = [
        1,
        True,
        1.0,
        "1",
        (1,),
        (True,),
        (1.0,),
        ("1",),
        0,
        False,
        0.0,
        -0.0,
        "",
        (),
        None,
        ("",),
    ]
    assert len({encode(Address("b", "", key)) for key in alike}) == len(alike)
    assert (1,) == (True,) == (1.0,)


def test_an_address_cannot_be_read_as_another_bot_or_realm() -> None:
    keys: tuple[Any, ...] = ((1, 2), ("1", 2), ("r", 1), ("/r", 1))
    texts = {
        encode(Address(bot, realm, key))
        for bot in ("a", "a/r", "a/", "")
        for realm in ("", "r", "/r")
        for key in keys
    }
    assert len(texts) == 4 * 3 * 4


class _Colour(StrEnum):
    RED = "red"


class _Number(IntEnum):
    ONE = 1


class _Plain(Enum):
    ONE = 1


class _Room(str):
    __slots__ = ()

    def __str__(self) -> str:
        return "another"


class _Count(int):
    def __repr__(self) -> str:
        return "another"


class _Ratio(float):
    def __repr__(self) -> str:
        return "another"


class _Place(NamedTuple):
    chat: int
    user: int


@pytest.mark.parametrize(
    ("key", "reason"),
    [
        (float("nan"), "key: nan is not a finite number"),
        ((1, float("inf")), "key[1]: inf is not a finite number"),
        ((1, 2, float("-inf")), "key[2]: -inf is not a finite number"),
        ([1, 2], "key: a list cannot be a key; use a tuple"),
        ((1, (2,)), "key[1]: tuple cannot be in a key"),
        ((1, [2]), "key[1]: list cannot be in a key"),
        ({"a": 1}, "key: dict cannot be in a key"),
        ((1, {"a": {}}), "key[1]: dict cannot be in a key"),
        (({1},), "key[0]: set cannot be in a key"),
        (b"7", "key: bytes cannot be in a key"),
        ((object(),), "key[0]: object cannot be in a key"),
        ((1j,), "key[0]: complex cannot be in a key"),
        ((n for n in (1, 2)), "key: generator cannot be in a key"),
        (("a\ud800",), "key[0]: text with a lone surrogate at position 1"),
        ("\udfff", "key: text with a lone surrogate at position 0"),
        ((_Colour.RED,), "key[0]: _Colour is an Enum; use its .value"),
        (_Number.ONE, "key: _Number is an Enum; use its .value"),
        ((7, _Plain.ONE), "key[1]: _Plain is an Enum; use its .value"),
    ],
)
def test_what_cannot_be_a_key_is_refused_with_the_reason_and_the_path(key: Any, reason: str) -> None:
    for refuse in (check_key, key_text, lambda key: encode(Address("b", "", key))):
        with pytest.raises(BadKey, match=f"^{re.escape(reason)}"):
            refuse(key)


def test_subclasses_become_the_plain_value_they_equal() -> None:
    key: Any = (_Room("kitchen"), _Count(7), _Ratio(0.5))
    assert identity(check_key(key)) == identity(("kitchen", 7, 0.5))
    assert key_text(key) == ".kitchen/7/0.5"
    assert identity(check_key(_Place(1, 2))) == identity((1, 2))
    assert key_text(_Place(1, 2)) == "1/2"
    assert key_text(_Room("kitchen")) == "=.kitchen"


@pytest.mark.parametrize(
    ("bot", "realm"), [(7, ""), (None, ""), ("b", None), (b"b", ""), ("\ud800", ""), ("b", "\ud800")]
)
def test_bot_and_realm_are_text(bot: Any, realm: Any) -> None:
    with pytest.raises(BadKey, match=r"^(bot|realm): (must be text|text with a lone surrogate)"):
        encode(Address(bot, realm, (1,)))


NOT_CANONICAL = [
    "", "b", "b/", "b//", "b///", "b//7/", "b///7", "b//support", "b//007", "b//-0", "b//+7", "b//1_0",
    "b// 7", "b//７", "b//1.", "b//.5/x", "b//1e16", "b//1.00", "b//1E+16", "b//nan",
    "b//inf", "b//-inf", "b//1e+999",
    "b//0x10", "b//0x", f"b//{2**2048}", "b//" + "9" * 5000, "b//True", "b//None", "b//=()", "b//==1", "b//=",
    "b//=1/2", "b//1/=2", "b//1/()", "b//.a b", "b//.a:b", "b//.%41", "b//.%3a", "b//.%", "b//.%2", "b//.%ff",
    "b//.%ED%A0%80", "b//.é", "b//.\ud800", "b//.\n", "b//7\n", "é//7", "%41//7", "b/%/7",
    "b:c//7", "b/r s/7",
]  # fmt: skip


@pytest.mark.parametrize("text", NOT_CANONICAL, ids=lambda text: ascii(text[:20]))
def test_decode_refuses_what_encode_would_not_have_written(text: str) -> None:
    with pytest.raises(BadKey):
        decode(text)
    if text.startswith("b//"):
        with pytest.raises(BadKey):
            parse_key(text[3:])


@given(TEXT | st.text(alphabet="0123456789.-+=/()%7Aex_tru", max_size=12))
def test_whatever_decode_accepts_is_what_encode_writes(text: str) -> None:
    for candidate in (text, f"b//{text}"):
        try:
            address = decode(candidate)
        except BadKey:
            continue
        assert encode(address) == candidate


def test_a_key_typed_without_its_dot_is_told_about_it() -> None:
    with pytest.raises(BadKey, match="text starts with a dot"):
        parse_key("support/7")
    assert parse_key(".support/7") == ("support", 7)
