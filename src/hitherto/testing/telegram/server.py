"""The fake Telegram itself: the HTTP door in front of the world, the update queue and the webhook."""

from __future__ import annotations

import asyncio
import hmac
import inspect
import json
import random
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import MappingProxyType, TracebackType
from typing import Any, Self

from hitherto.testing.http import BadRequest, HttpServer, Request, Response, error_body, read_body

from .delivery import Attempt, Mischief, Updates, Webhook, WebhookSettings
from .methods import Methods
from .parameters import Parameters, normalize
from .people import PATIENCE, BusinessConnection, Channel, Group, Person
from .world import ApiError, BotMessage, Call, Clock, Json, Sleep, World, first_of

ANY = "*"
WEBHOOK = "webhook"
MAX_LONG_POLL = 50
_ROUTE = re.compile(r"/bot([^/]*)/(\w{1,64})/?")
_FILE_ROUTE = re.compile(r"/file/bot([^/]*)/files/(\w{1,64})")
_TOKEN = re.compile(r"[0-9]{1,19}:[A-Za-z0-9_-]{1,80}")
_SECRET = re.compile(r"[A-Za-z0-9_-]{1,256}")


@dataclass(slots=True)
class Trouble:
    """Something that is to go wrong with the next so many calls of a method (`*`: of any)."""

    method: str
    times: int
    error: ApiError | None = None
    cut: float | None = None


class FakeTelegram:
    """A Telegram Bot API server on a loopback port, for one bot.

    Use it with `async with`. `url` is the base: `TelegramAPIServer.from_base(telegram.url)` for aiogram,
    `.base_url(telegram.url + "/bot")` for python-telegram-bot. `clock` gives dates, and `sleep` waits, for
    whoever tests with time of their own. `strict=False` lets the bot write to chats nobody made and answer
    queries nobody asked; otherwise these are errors, as they are at Telegram.
    """

    def __init__(
        self,
        token: str = "42:TEST",  # noqa: S107  the token of a fake
        *,
        username: str = "test_bot",
        host: str = "127.0.0.1",
        port: int = 0,
        clock: Clock = time.time,
        sleep: Sleep = asyncio.sleep,
        first_update_id: int = 100_000_001,
        strict: bool = True,
    ) -> None:
        if not _TOKEN.fullmatch(token):
            raise ValueError("a bot token is digits, a colon and letters")
        self.token = token
        self.bot: Json = {
            "id": int(token.split(":")[0]), "is_bot": True, "first_name": username, "username": username
        }  # fmt: skip
        self.sleep = sleep
        self.world = World(self.bot, clock)
        self.updates = Updates(clock, first_update_id)
        self.webhook = Webhook(self.updates, clock, sleep)
        self.webhook.on_answer = self._run_webhook_answer
        self.webhook.lose = lambda: self._goes_wrong(WEBHOOK, "cut", self._bad_day.lose_replies) is not None
        self.server = HttpServer(self._handle, host=host, port=port)
        self.withheld: list[Json] = []
        self._methods = Methods(self.world, strict=strict)
        self._calls: list[Call] = []
        self._troubles: list[Trouble] = []
        self._answers: dict[str, Any] = {}
        self._poll: asyncio.Event | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._bad_day = Mischief()
        self._random = random.Random(0)
        self._own: dict[str, Callable[[Parameters, Request], Any]] = {
            "getupdates": self._get_updates,
            "setwebhook": self._set_webhook,
            "deletewebhook": self._delete_webhook,
            "getwebhookinfo": self._get_webhook_info,
        }

    def __repr__(self) -> str:
        return f"FakeTelegram(url={self.url!r})"

    @property
    def url(self) -> str:
        """The base address, without a slash at its end."""
        return self.server.url

    async def __aenter__(self) -> Self:
        await self.server.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.webhook.stop()
        await self.server.aclose()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def user(self, first_name: str = "Somebody", *, id: int | None = None, **fields: Any) -> Person:
        """A person, with a private chat that the bot may write to."""
        user_id = id if id is not None else 1000 + self.world.serial()
        user = {"id": user_id, "is_bot": False, "first_name": first_name, "language_code": "en", **fields}
        return Person(self.world, self.post, self.world.add_user(user))

    def group(self, title: str = "Group", *, id: int | None = None, **fields: Any) -> Group:
        """A supergroup with the bot as a member; `is_forum=True` or `.topic()` makes it a forum."""
        return Group(self.world, self.post, self._chat("supergroup", title, id, fields))

    def channel(self, title: str = "Channel", *, id: int | None = None, **fields: Any) -> Channel:
        """A channel with the bot as an administrator."""
        return Channel(self.world, self.post, self._chat("channel", title, id, fields))

    def _chat(self, kind: str, title: str, chat_id: int | None, fields: Json) -> Json:
        number = chat_id if chat_id is not None else -1_001_000_000_000 - self.world.serial()
        chat = self.world.chats.setdefault(number, {"id": number, "type": kind, "title": title, **fields})
        self.world.members[number, self.bot["id"]] = "administrator" if kind == "channel" else "member"
        return chat

    def business(self, owner: Person, *, connection_id: str | None = None) -> BusinessConnection:
        """Somebody's account is connected to the bot (no update is made for it; `.changes()` makes one)."""
        return BusinessConnection(owner, connection_id or f"business{self.world.serial()}")

    def post(self, kind: str, payload: Json) -> Json:
        """Owe the bot an update of this kind, unless its allowed_updates leave it out: then it is in
        `withheld` and has no id."""
        if kind in ("callback_query", "inline_query"):
            self._methods.queries.add(payload["id"])
        if not self.updates.wants(kind):
            self.withheld.append({kind: payload})
            return {kind: payload}
        return self.updates.add({kind: payload})

    def push(self, update: Json) -> Json:
        """Owe the bot any raw update, whatever its allowed_updates say; it gets an `update_id` if it has
        none. Chats and messages in it become known."""
        for name in ("callback_query", "inline_query"):
            if isinstance(update.get(name), dict):
                self._methods.queries.add(str(update[name].get("id")))
        made = self.updates.add(update)
        self.world.learn(made)
        return made

    def redeliver(self, update_id: int) -> None:
        """Give an update once more, even if it was confirmed."""
        self.updates.redeliver(update_id)

    @property
    def pending(self) -> tuple[Json, ...]:
        """The updates still owed, in the order they will be given."""
        return tuple(entry.update for entry in self.updates.entries)

    @property
    def confirmed(self) -> tuple[Json, ...]:
        """The updates the bot has confirmed (by an offset, or by 2xx to a webhook), each once, oldest
        first."""
        return tuple(self.updates.confirmed.values())

    async def drained(self, timeout: float = PATIENCE) -> None:
        """Wait until nothing is owed any more."""
        await self._until(lambda: not self.updates.entries, timeout, "confirmed all updates")

    @property
    def calls(self) -> tuple[Call, ...]:
        """Every call that came with the right token, oldest first."""
        return tuple(self._calls)

    def calls_of(self, method: str) -> tuple[Call, ...]:
        """The calls of one method."""
        return tuple(call for call in self._calls if call.method == method)

    async def called(self, method: str, count: int = 1, timeout: float = PATIENCE) -> Call:
        """Wait until this method was called so often (ever), and return that call."""
        await self._until(
            lambda: len(self.calls_of(method)) >= count, timeout, f"called {method} {count} times"
        )
        return self.calls_of(method)[count - 1]

    def sent_to(self, chat_id: int, *, business: str = "") -> tuple[BotMessage, ...]:
        """The messages the bot sent to a chat, oldest first."""
        return tuple(self.world.sent.get((business, chat_id), ()))

    @property
    def attempts(self) -> tuple[Attempt, ...]:
        """Every try to hand an update to the webhook, oldest first."""
        return tuple(self.webhook.attempts)

    async def _until(self, come: Callable[[], bool], timeout: float, hope: str) -> None:
        async def wait() -> None:
            while not come():
                await first_of(self.world.bell.wait(), self.updates.bell.wait())

        try:
            await asyncio.wait_for(wait(), timeout)
        except TimeoutError:
            raise TimeoutError(f"the bot has not {hope} within {timeout} s") from None

    def mischief(
        self,
        *,
        duplicate: float = 0.0,
        reorder: float = 0.0,
        delay: float | tuple[float, float] = 0.0,
        lose_replies: float = 0.0,
        drop: float = 0.0,
        errors: float = 0.0,
        hold: float = 0.05,
        seed: int = 0,
    ) -> None:
        """From now on things go wrong by chance, the same for the same `seed`: see `Mischief` for what.
        Called with nothing, the world is in order again."""
        self._bad_day = Mischief(duplicate, reorder, delay, lose_replies, drop, errors, hold, seed)
        self._random = random.Random(self._bad_day.seed)
        self.updates.mischief(self._bad_day)

    def fail(
        self,
        method: str = ANY,
        code: int = 500,
        description: str = "Internal Server Error",
        *,
        retry_after: int | None = None,
        times: int = 1,
    ) -> None:
        """Refuse the next calls of a method without doing anything."""
        extra = {} if retry_after is None else {"retry_after": retry_after}
        self._troubles.append(Trouble(method, times, error=ApiError(code, description, **extra)))

    def flood(self, method: str = ANY, *, retry_after: int = 1, times: int = 1) -> None:
        """Refuse the next calls of a method with 429 and a time to wait."""
        self.fail(
            method, 429, f"Too Many Requests: retry after {retry_after}", retry_after=retry_after, times=times
        )

    def lose_replies(self, method: str = ANY, *, times: int = 1) -> None:
        """Do the next calls of a method, but break the connection instead of answering. `"webhook"`: take the
        bot's next acceptances of an update for lost."""
        self._troubles.append(Trouble(method, times, cut=0.0))

    def drop(self, method: str = "getUpdates", *, times: int = 1) -> None:
        """Do the next calls of a method, but break the connection in the middle of the reply."""
        self._troubles.append(Trouble(method, times, cut=0.5))

    async def hang_up(self) -> None:
        """Break every connection now, long polls that wait too; what they were to bring stays owed."""
        await self.server.hang_up()
        self.updates.nothing_arrived()

    def on(self, method: str, answer: Any) -> None:
        """Answer a method this way from now on: a value, or a function of the `Call` (it may be async and may
        raise `ApiError`)."""
        self._answers[method.lower()] = answer

    def _goes_wrong(self, method: str, what: str, chance: float = 0.0) -> Trouble | None:
        for trouble in self._troubles:
            if trouble.method.lower() not in (ANY, method.lower()) or getattr(trouble, what) is None:
                continue
            if method != WEBHOOK or trouble.method == WEBHOOK:
                trouble.times -= 1
                if trouble.times <= 0:
                    self._troubles.remove(trouble)
                return trouble
        return Trouble(method, 1, cut=0.0) if chance and self._random.random() < chance else None

    async def _handle(self, request: Request) -> Response:
        if file := _FILE_ROUTE.fullmatch(request.path):
            return self._download(file[1], file[2])
        route = _ROUTE.fullmatch(request.path)
        if route is None or not _TOKEN.fullmatch(route[1]):
            return _refusal(ApiError(404, "Not Found"))
        if not hmac.compare_digest(route[1], self.token):
            return _refusal(ApiError(401, "Unauthorized"))
        name = self._canonical(route[2])
        try:
            given = Parameters(normalize(request.parameters()))
            return await self._reply(name, given, request)
        except ApiError as error:
            return _refusal(error)
        except BadRequest as bad:
            return _refusal(ApiError(bad.status, f"Bad Request: {bad.reason}"))

    async def _reply(self, name: str, given: Parameters, request: Request) -> Response:
        call = self._record(name, given)
        if (trouble := self._goes_wrong(name, "error")) and trouble.error:
            raise trouble.error
        if self._bad_day.errors and self._random.random() < self._bad_day.errors:
            raise ApiError(502, "Bad Gateway")
        result = await self._perform(name, given, call, request)
        body = json.dumps({"ok": True, "result": result}).encode()
        cut = self._cut(name, len(body))
        if name == "getUpdates" and cut is None:
            self.updates.arrived()
        return Response(200, body, cut=cut)

    def _cut(self, name: str, length: int) -> int | None:
        if trouble := self._goes_wrong(name, "cut", self._bad_day.lose_replies):
            return int(length * trouble.cut) if trouble.cut else -1
        if name == "getUpdates" and self._bad_day.drop and self._random.random() < self._bad_day.drop:
            return length // 2
        return None

    def _record(self, name: str, given: Parameters) -> Call:
        call = Call(name, MappingProxyType(dict(given)))
        self._calls.append(call)
        self.world.bell.ring()
        return call

    async def _perform(self, name: str, given: Parameters, call: Call, request: Request) -> Any:
        if name.lower() in self._answers:
            answer = self._answers[name.lower()]
            result = answer(call) if callable(answer) else answer
            return await result if inspect.isawaitable(result) else result
        if name.lower() in self._own:
            return await self._own[name.lower()](given, request)
        return await self._methods.find(name)(given, call)

    def _canonical(self, name: str) -> str:
        own = {"getupdates": "getUpdates", "setwebhook": "setWebhook"}
        own |= {"deletewebhook": "deleteWebhook", "getwebhookinfo": "getWebhookInfo"}
        return own.get(name.lower()) or self._methods.name(name)

    def _download(self, token: str, file_id: str) -> Response:
        upload = self._methods.files.get(file_id)
        if not hmac.compare_digest(token, self.token) or upload is None:
            return _refusal(ApiError(404, "Not Found"))
        return Response(200, upload.content, "application/octet-stream")

    async def _get_updates(self, given: Parameters, request: Request) -> list[Json]:
        if self.webhook.settings.url:
            raise ApiError(409, "Conflict: can't use getUpdates method while webhook is active; "
                           "use deleteWebhook to delete the webhook first")  # fmt: skip
        superseded = self._take_over_polling()
        self._allow(given)
        if offset := given.number("offset", 0):
            self.updates.confirm(offset)
        limit = min(max(given.number("limit", 100), 1), 100)
        timeout = min(max(given.number("timeout", 0), 0), MAX_LONG_POLL)
        if timeout:
            await self._wait_for_updates(timeout, superseded, request.gone)
        if superseded.is_set():
            raise ApiError(409, "Conflict: terminated by other getUpdates request; "
                           "make sure that only one bot instance is running")  # fmt: skip
        return [] if request.gone.is_set() else self.updates.give(limit)

    def _take_over_polling(self) -> asyncio.Event:
        if self._poll is not None:
            self._poll.set()
        self._poll = asyncio.Event()
        return self._poll

    async def _wait_for_updates(self, timeout: float, *until: asyncio.Event) -> None:
        async def come() -> None:
            while not self.updates.ready(1):
                soon = self.updates.next_ready_in()
                waits = [self.updates.bell.wait()] + ([self.sleep(soon)] if soon is not None else [])
                await first_of(*waits)

        if not self.updates.ready(1):
            await first_of(come(), self.sleep(timeout), *(event.wait() for event in until))

    def _allow(self, given: Parameters) -> None:
        if "allowed_updates" in given:
            self.updates.allowed = [str(kind) for kind in given.listed("allowed_updates")]

    async def _set_webhook(self, given: Parameters, request: Request) -> bool:
        url, secret = given.text("url"), given.get("secret_token")
        if secret is not None and not (isinstance(secret, str) and _SECRET.fullmatch(secret)):
            raise ApiError(400, "Bad Request: secret token contains unallowed characters")
        if not url:
            return await self._delete_webhook(given, request)
        if not url.startswith("http://"):
            raise ApiError(400, "Bad Request: bad webhook: this fake delivers over plain http only")
        settings = WebhookSettings(url, secret, given.number("max_connections", 40))
        if not 1 <= settings.max_connections <= 100:
            raise ApiError(400, "Bad Request: max_connections must be between 1 and 100")
        self._allow(given)
        if given.get("drop_pending_updates"):
            await self._forget_pending()
        self._take_over_polling()
        await self.webhook.start(settings)
        return True

    async def _delete_webhook(self, given: Parameters, request: Request) -> bool:
        await self.webhook.stop()
        if given.get("drop_pending_updates"):
            await self._forget_pending()
        return True

    async def _forget_pending(self) -> None:
        await self.webhook.stop()
        self.updates.drop_all()

    async def _get_webhook_info(self, given: Parameters, request: Request) -> Json:
        settings, error = self.webhook.settings, self.webhook.last_error
        about: Json = {"url": settings.url, "has_custom_certificate": False}
        about["pending_update_count"] = len(self.updates.entries)
        if settings.url:
            about["max_connections"] = settings.max_connections
        if error is not None:
            about["last_error_date"], about["last_error_message"] = error
        if self.updates.allowed:
            about["allowed_updates"] = self.updates.allowed
        return about

    def _run_webhook_answer(self, response: Response) -> None:
        """A bot may answer a webhook with a call; nobody tells it how that ended."""
        try:
            given = Parameters(normalize(read_body(response.content_type, response.body)))
            name = self._canonical(given.text("method"))
        except (BadRequest, ApiError):
            return
        if name:
            task = asyncio.get_running_loop().create_task(self._call_unanswered(name, given))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _call_unanswered(self, name: str, given: Parameters) -> None:
        given.pop("method")
        call = self._record(name, given)
        try:
            await self._perform(name, given, call, Request("POST", "/", {}))
        except ApiError as error:
            self.webhook.last_error = (int(self.world.clock()), error.description)


def _refusal(error: ApiError) -> Response:
    if not error.parameters:
        return Response(error.code, error_body(error.code, error.description))
    refusal = {"ok": False, "error_code": error.code, "description": error.description}
    headers = (
        {"Retry-After": str(error.parameters["retry_after"])} if "retry_after" in error.parameters else {}
    )
    return Response(
        error.code, json.dumps({**refusal, "parameters": error.parameters}).encode(), headers=headers
    )
