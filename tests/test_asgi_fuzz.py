"""Hostile requests straight through the endpoints: never a 500, never a forgery accepted, memory flat.

HITHERTO_FUZZ=100000 pytest tests/test_asgi_fuzz.py -s
"""

from __future__ import annotations

import gc
import gzip
import json
import os
import random
import re
import time
import tracemalloc
from collections import Counter
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote_to_bytes, urlencode

import pytest

from asgi_client import SIGNING_SECRET, ask, signed
from hitherto import Keeper, asgi

REQUESTS = int(os.environ.get("HITHERTO_FUZZ", "5000"))
SECRET = "s3cret_token-0123456789"
TOKEN = "a bearer token"
LIMIT = 65_536
NOW = 1_800_000_000.0
EXPECTED = {200, 400, 401, 405, 413}
STRANGE: list[Any] = [
    None,
    True,
    False,
    0,
    -1,
    1.5,
    2**63,
    -(2**63),
    10**40,
    "",
    "x",
    "\x00",
    "\u202e",
    "😀" * 50,
    [],
    {},
    [[]],
    {"id": None},
    {"id": {}},
    {"id": []},
    {"id": 1e308},
    "__proto__",
    "${jndi:ldap://x}",
    "' OR 1=1 --",
]
RAW = [
    b"",
    b"{",
    b"}",
    b"null",
    b"[]",
    b'"x"',
    b"\xff\xfe",
    b"\xef\xbb\xbf{}",
    b"\x00" * 100,
    b"{}" * 100,
    b"[" * 5000,
    b'{"a":' * 3000 + b"1" + b"}" * 3000,
    b'{"update_id":1e400}',
    b'{"update_id":' + b"9" * 5000 + b"}",
    b'{"update_id":NaN}',
    b'{"id":"\\ud800"}',
    b'{"update_id":1,"update_id":"x"}',
    gzip.compress(b'{"update_id":1}'),
    b"payload=",
    b"payload=%FF%FE",
    b"payload={",
    b"&" * 5000,
    b"a=b&" * 3000,
    b"=%",
    b"id=1&id=2",
    b"<xml/>",
    b"--x\r\nContent-Disposition: form-data; name=a\r\n\r\n1\r\n--x--",
    b"GET / HTTP/1.1\r\n\r\n",
]


@dataclass
class Tally:
    """What was sent, what came back, and what a handler got to see."""

    statuses: Counter[int] = field(default_factory=Counter)
    genuine: set[str] = field(default_factory=set)
    handled: set[str] = field(default_factory=set)
    wrong: list[str] = field(default_factory=list)


class Hostile:
    """Requests by a seed: most are wrong in some way, some are genuine."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.number = 0

    def event(self, platform: str) -> dict[str, Any]:
        """A genuine event; its number is in it, so that a handler can tell which one it was."""
        self.number += 1
        chat = self.random.randrange(20)
        if platform == "telegram":
            who = {"chat": {"id": chat + 1, "type": "private"}, "from": {"id": chat + 1}}
            return {"update_id": self.number, "message": {"text": f"n{self.number}", **who}}
        if platform == "json":
            return {"id": self.number, "chat": chat, "user": chat, "text": f"n{self.number}"}
        event = {"type": "message", "channel": f"C{chat}", "user": "U1", "text": f"n{self.number}"}
        if self.random.random() < 0.3:
            return {
                "type": "block_actions",
                "trigger_id": f"{self.number}.1",
                "text": event["text"],
                "channel": {"id": f"C{chat}"},
                "user": {"id": "U1"},
            }
        return {"type": "event_callback", "event_id": f"Ev{self.number}", "team_id": "T", "event": event}

    def body(self, platform: str) -> tuple[bytes, bool]:
        """A body, and whether it is a genuine event as it stands."""
        dice = self.random.random()
        event = self.event(platform)
        if dice < 0.35:
            return self.encoded(event), True
        if dice < 0.5:
            self.spoil(event)
            return self.encoded(event), False
        if dice < 0.75:
            return self.scramble(self.encoded(event)), False
        if dice < 0.95:
            return self.random.choice(RAW), False
        return self.random.randbytes(self.random.randrange(300)), False

    def encoded(self, event: dict[str, Any]) -> bytes:
        """As JSON; actions of Slack's as a form."""
        if event.get("type") == "block_actions":
            return urlencode({"payload": json.dumps(event)}).encode()
        return json.dumps(event, ensure_ascii=self.random.random() < 0.5).encode()

    def spoil(self, event: dict[str, Any]) -> None:
        """Something strange somewhere in it."""
        node: Any = event
        while True:
            name = self.random.choice(list(node))
            if isinstance(node[name], dict) and node[name] and self.random.random() < 0.7:
                node = node[name]
                continue
            if self.random.random() < 0.2:
                del node[name]
            else:
                node[name] = self.random.choice(STRANGE)
            return

    def scramble(self, body: bytes) -> bytes:
        """Bytes flipped, cut, doubled or put in."""
        at = self.random.randrange(len(body))
        way = self.random.randrange(4)
        if way == 0:
            return body[:at] + bytes([body[at] ^ (1 << self.random.randrange(8))]) + body[at + 1 :]
        if way == 1:
            return body[:at]
        if way == 2:
            return body[:at] + self.random.randbytes(self.random.randrange(1, 9)) + body[at:]
        return body * self.random.randrange(2, 4)

    def headers(self, platform: str, body: bytes) -> tuple[list[tuple[bytes, bytes]], bool]:
        """Headers, and whether they prove this body."""
        proof = self.proof(platform, body)
        dice = self.random.random()
        if dice < 0.5:
            return proof, True
        if dice < 0.6:
            return [], False
        if dice < 0.7:
            return [*proof, self.random.choice(proof)], False
        if dice < 0.8 and platform == "slack":
            return self.forged_slack(body), False
        at = self.random.randrange(len(proof))
        name, value = proof[at]
        strange = self.random.choice(
            [
                b"",
                b"\xff" * 20,
                "é".encode() * 9,
                value[:-1],
                value + b" ",
                b" " + value,
                value[::-1],
                value.swapcase(),
                b"A" * 20_000,
                b"null",
                b"v0=" * 30,
            ]
        )
        return [*proof[:at], (name, strange), *proof[at + 1 :]], strange == value

    def proof(self, platform: str, body: bytes) -> list[tuple[bytes, bytes]]:
        """What a genuine sender would send."""
        if platform == "telegram":
            return [(b"x-telegram-bot-api-secret-token", SECRET.encode())]
        if platform == "json":
            return [(b"authorization", b"Bearer " + TOKEN.encode())]
        return signed(body, NOW + self.random.randrange(-300, 301))

    def forged_slack(self, body: bytes) -> list[tuple[bytes, bytes]]:
        """Signatures that would be right for another body, time or secret."""
        way = self.random.randrange(4)
        if way == 0:
            return signed(body + b" ", NOW)
        if way == 1:
            return signed(body, NOW, "another secret")
        if way == 2:
            return signed(body, NOW + self.random.choice([-1, 1]) * self.random.randrange(301, 10**6))
        stamp, signature = signed(body, NOW)
        return [(stamp[0], b"%d" % (NOW + 1)), signature]

    def clutter(self) -> list[tuple[bytes, bytes]]:
        """Other headers, which prove nothing and must do no harm."""
        some = [
            (b"content-type", b"application/json"),
            (b"content-type", b"\xff/\x00"),
            (b"content-encoding", b"gzip"),
            (b"x-slack-retry-num", b"-1"),
            (b"transfer-encoding", b"chunked"),
            (b"cookie", b"x" * 9000),
            (b"x-forwarded-for", b"127.0.0.1"),
            (b"expect", b"100-continue"),
            (b"", b""),
        ]
        return self.random.sample(some, self.random.randrange(4))


async def one(hostile: Hostile, apps: dict[str, Any], tally: Tally) -> None:
    """Send one request and judge the answer."""
    chance = hostile.random
    platform = chance.choice(list(apps))
    body, valid = hostile.body(platform)
    headers, proven = hostile.headers(platform, body)
    headers += hostile.clutter()
    method = "POST" if chance.random() < 0.95 else chance.choice(["GET", "HEAD", "PUT", "BREW", ""])
    large = chance.random() < 0.02
    sent: Any = body
    if large:
        sent = (body + b" " * 8192 for _ in range(chance.choice([9, 1000])))
    elif chance.random() < 0.2:
        sent = [body[at : at + 7] for at in range(0, len(body), 7)]
    if chance.random() < 0.05:
        headers.append((b"content-length", chance.choice([b"-1", b"x", b"9" * 25, b"65537", b"\xff"])))
        valid = False
    acceptable = proven and method == "POST" and not large
    if acceptable:
        tally.genuine |= numbers_in(body)
    response = await ask(apps[platform], sent, headers, method)
    status = 0 if response is None else response.status
    tally.statuses[status] += 1
    if status not in EXPECTED:
        tally.wrong.append(f"{status} for {platform} {method} {headers!r} {body[:200]!r}")
    if status == 200 and not acceptable:
        tally.wrong.append(f"a forgery was accepted: {platform} {method} {headers!r} {body[:200]!r}")
    if acceptable and valid and status != 200:
        tally.wrong.append(f"a genuine event was answered {status}: {platform} {headers!r} {body[:200]!r}")


def numbers_in(body: bytes) -> set[str]:
    """The numbers that whoever handles this body may see; a spoilt one may hold another than it had."""
    return set(re.findall(r"n\d+", unquote_to_bytes(body).decode(errors="replace")))


def text_of(event: Any) -> str | None:
    """The number in a genuine event, wherever it is."""
    inner = event.get("message") or event.get("event") or event
    found = inner.get("text") if isinstance(inner, dict) else None
    return found if isinstance(found, str) and found.startswith("n") and found[1:].isdecimal() else None


@pytest.mark.timeout(3600)
async def test_hostile_requests_get_nothing_but_refusals(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("CRITICAL", logger="hitherto")
    tally, hostile = Tally(), Hostile(seed=5)

    async def handler(turn: Any) -> None:
        if (text := text_of(turn.event)) is not None:
            tally.handled.add(text)

    sizes: list[int] = []
    tracemalloc.start()
    began = time.perf_counter()
    try:
        async with Keeper("bot", seen_limit=20, max_attempts=1) as keeper:
            options = {"max_body": LIMIT}
            apps = {
                "telegram": asgi.telegram(keeper, handler, secret=SECRET, **options),
                "slack": asgi.slack(
                    keeper, handler, signing_secret=SIGNING_SECRET, clock=lambda: NOW, **options
                ),
                "json": asgi.json(keeper, handler, token=TOKEN, **options),
            }
            for number in range(REQUESTS):
                await one(hostile, apps, tally)
                if number % 50 == 49:
                    await keeper.idle(10)  # no socket lets the turns run here
                if number % (REQUESTS // 5) == REQUESTS // 5 - 1:
                    await keeper.idle(10)
                    tally.handled, unseen = set(), tally.handled - tally.genuine
                    assert unseen == set(), "a handler ran for what nobody proved"
                    tally.genuine.clear()
                    gc.collect()
                    sizes.append(tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
    assert tally.wrong == []
    assert set(tally.statuses) == EXPECTED
    assert tally.statuses[200] > REQUESTS / 20
    grown = [size / 1_048_576 for size in sizes]
    seconds, held = time.perf_counter() - began, ", ".join(f"{size:.2f}" for size in grown)
    print(
        f"\n{REQUESTS} requests in {seconds:.0f} s: {dict(sorted(tally.statuses.items()))}, MiB held: {held}"
    )
    assert grown[-1] < grown[0] + 1.0
