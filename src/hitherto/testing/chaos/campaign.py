"""A whole run for whoever asks from a terminal: faults by the URL, a proxy where there can be one, a report.

``make chaos`` and ``hitherto chaos`` are both this; the former brings servers to kill.
"""

from __future__ import annotations

import random
import secrets
import warnings
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import msgspec

from hitherto.addresses import Address
from hitherto.errors import BadStoreURL, HithertoError, StoreWarning
from hitherto.stores import open_store
from hitherto.testing.chaos.faults import of_the_clock, of_the_disk, of_the_network
from hitherto.testing.chaos.page import page
from hitherto.testing.chaos.plan import Fault, Plan
from hitherto.testing.chaos.report import Report
from hitherto.testing.chaos.run import Run
from hitherto.testing.chaos.worker import Settings
from hitherto.testing.proxy import Proxy

_PORTS = {"redis": 6379, "valkey": 6379, "postgres": 5432, "postgresql": 5432}
_SECURE = ("ssl", "sslmode", "host=")


class Wish(msgspec.Struct, frozen=True):
    """What is asked for. *grace*: how long the store's client waits for a reply that does not come."""

    url: str
    minutes: float = 1.0
    seed: int | None = None
    json: Path | None = None
    html: Path | None = None
    workers: int = 6
    lease: float = 1.0
    slack: float = 0.0
    lossy: bool = False
    grace: float = 6.0


def plan_of(wish: Wish) -> Plan:
    """Kills and pauses that leave a conversation time to recover, for so many minutes."""
    return Plan(
        workers=wish.workers, conversations=2 * wish.workers, kills=4, pauses=1, between=0.15,
        pause=wish.lease * 1.5, duration=wish.minutes * 60, slack=wish.slack, lossy=wish.lossy,
    )  # fmt: skip


def passable(url: str) -> str | None:
    """The URL with its port spelt out, if a proxy can stand before it: plain TCP to one server."""
    parts = urlsplit(url)
    port = parts.port if "," not in parts.netloc else None
    if parts.scheme not in _PORTS or not parts.hostname or any(word in parts.query for word in _SECURE):
        return None
    if port is None:
        if "," in parts.netloc:
            return None
        port = _PORTS[parts.scheme]
        parts = parts._replace(netloc=f"{parts.netloc.rstrip(':')}:{port}")
    return urlunsplit(parts)


async def campaign(wish: Wish, faults: Sequence[Fault] = (), say: Callable[[str], object] = print) -> Report:
    """Do the run, write what is asked for, erase what was left in the store unless something was wrong."""
    if wish.url.startswith("memory:"):
        raise BadStoreURL("memory:// is of one process; chaos needs a store that several share", url=wish.url)
    seed = random.SystemRandom().randrange(2**32) if wish.seed is None else wish.seed
    say(f"seed {seed} (--seed {seed} repeats the schedule)")
    bot = f"chaos-{seed}-{secrets.token_hex(4)}"
    settings = Settings(
        wish.url, lease=wish.lease, slowest=0.04, bot=bot, queue=20, direct=wish.url,
    )  # fmt: skip
    every = [*faults, *of_the_clock(wish.url), *of_the_disk(wish.url)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", StoreWarning)
        async with open_store(wish.url):
            pass  # what cannot be reached at all is told at once
        async with AsyncExitStack() as stack:
            if (target := passable(wish.url)) is not None:
                proxy = await stack.enter_async_context(Proxy(target, seed=seed))
                settings = msgspec.structs.replace(settings, url=proxy.url)
                every += of_the_network(proxy, wish.grace)
            done = Run(settings, plan_of(wish), seed, every)
            report = await done.do()
        written(report, wish)
        if report.violations:
            say(f"what was found is left in the store, of the bot {bot}")
        else:
            await _erase(wish.url, bot, done.sent)
    return report


def written(report: Report, wish: Wish) -> None:
    """The files that were asked for."""
    if wish.json is not None:
        wish.json.write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=1))
    if wish.html is not None:
        wish.html.write_text(page(report), encoding="utf-8")


async def _erase(url: str, bot: str, keys: dict[int, list[str]]) -> None:
    try:
        async with open_store(url) as store:
            for key in keys:
                await store.forget(Address(bot, "", (key,)))
    except HithertoError as error:
        raise HithertoError(f"the run is over, but its bot {bot} could not be erased: {error}") from error
