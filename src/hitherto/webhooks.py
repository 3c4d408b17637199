"""What a webhook request must prove and what it says, for Telegram, Slack and plain JSON, without any server.

Each platform judges the headers, then the raw bytes of the body, and only then reads what is in them. Secrets
are compared on bytes, in constant time; a header that comes twice is none. `Refused` carries the reply.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, NoReturn, Protocol, TypeAlias
from urllib.parse import parse_qsl

import msgspec

from hitherto import failures
from hitherto.adapting import key_of, slack_place
from hitherto.addresses import Key
from hitherto.keys import Strategy

Headers: TypeAlias = Sequence[tuple[bytes, bytes]]

_DEPTH = 64
_FIELDS = 100
_WINDOW = 300
_LONGEST_ID = 256
_LARGEST_INT = 1 << 63
_TEXT = b"text/plain; charset=utf-8"
_is_secret = re.compile(r"[A-Za-z0-9_-]{1,256}").fullmatch
_is_timestamp = re.compile(rb"[0-9]{1,12}").fullmatch


class Reply(NamedTuple):
    """What is answered."""

    status: int
    body: bytes = b""
    content_type: bytes = _TEXT
    headers: tuple[tuple[bytes, bytes], ...] = ()


class Incoming(NamedTuple):
    """An event that is to be accepted."""

    event: dict[str, Any]
    id: str
    key: Key = None


class Refused(Exception):
    """What came is refused with this reply."""

    def __init__(self, status: int, why: bytes, *headers: tuple[bytes, bytes]) -> None:
        self.reply = Reply(status, why, _TEXT, headers)
        super().__init__(status)


class Platform(Protocol):
    """What an endpoint must know of who calls it."""

    def admit(self, headers: Headers) -> None:
        """Refuse by the headers alone what is not authentic."""

    def read(self, headers: Headers, body: bytes) -> Incoming | Reply:
        """The event in a body, or the reply to what is none."""
        ...

    def kept(self, status: str) -> Reply:
        """What to answer when the event is kept."""
        ...

    def mine(self, event: Any) -> bool:
        """Whether an event that was kept came through here."""
        ...


class Telegram:
    """Updates, proved by the secret token in a header."""

    def __init__(self, strategy: Strategy, secret: str | None, insecure: bool) -> None:
        if secret is None and not insecure:
            raise ValueError(
                "secret= is missing, so anybody could send updates; give the secret_token of setWebhook, or "
                "say insecure=True"
            )
        if secret is not None and not _is_secret(secret):
            raise ValueError("secret= must be 1 to 256 letters, digits, _ and -, as setWebhook demands")
        self._strategy = strategy
        self._secret = None if secret is None else secret.encode()

    def admit(self, headers: Headers) -> None:
        if self._secret is not None:
            _demand(_only(headers, b"x-telegram-bot-api-secret-token"), self._secret)

    def read(self, headers: Headers, body: bytes) -> Incoming:
        update = _object(body)
        number = update.get("update_id")
        if type(number) is not int or not 0 <= number < _LARGEST_INT:
            raise Refused(400, b"an update has an update_id")
        return Incoming(update, f"tg:{number}", _key(self._strategy.extract, update))

    def kept(self, status: str) -> Reply:
        return Reply(200)

    def mine(self, event: Any) -> bool:
        return isinstance(event, dict) and "update_id" in event


class Slack:
    """Events, actions, views, shortcuts and commands, proved by a signature over time and raw body."""

    def __init__(
        self, strategy: Strategy, signing_secret: str | None, insecure: bool, clock: Callable[[], float]
    ) -> None:
        if not signing_secret and not insecure:
            raise ValueError(
                "signing_secret= is missing, so anybody could send events; give the app's signing secret, or "
                "say insecure=True"
            )
        self._strategy = strategy
        self._secret = (signing_secret or "").encode()
        self._clock = clock

    def admit(self, headers: Headers) -> None:
        if self._secret:
            stamp = _only(headers, b"x-slack-request-timestamp")
            if not _is_timestamp(stamp) or abs(self._clock() - int(stamp)) > _WINDOW:
                _unauthorized()

    def read(self, headers: Headers, body: bytes) -> Incoming | Reply:
        if self._secret:
            stamp = _only(headers, b"x-slack-request-timestamp")
            digest = hmac.new(self._secret, b"v0:" + stamp + b":" + body, hashlib.sha256).hexdigest()
            _demand(_only(headers, b"x-slack-signature"), b"v0=" + digest.encode())
        payload = _object(body) if body.lstrip()[:1] == b"{" else _form(body)
        kind, challenge = payload.get("type"), payload.get("challenge")
        if kind == "url_verification" and isinstance(challenge, str):
            return Reply(200, challenge.encode())
        if "ssl_check" in payload:
            return Reply(200)
        known = payload.get("event_id") or payload.get("trigger_id")
        if known is None and isinstance(kind, str):
            known = hashlib.sha256(body).hexdigest()
        return Incoming(payload, "slack:" + _id(known), _key(self._where, payload))

    def _where(self, payload: dict[str, Any]) -> Key:
        return key_of(self._strategy, payload, slack_place(payload))

    def kept(self, status: str) -> Reply:
        return Reply(200)

    def mine(self, event: Any) -> bool:
        return is_slack(event)


class PlainJson:
    """JSON objects with an `id`, proved by a bearer token if there is one."""

    def __init__(self, strategy: Strategy, token: str | None) -> None:
        if token is not None and not token:
            raise ValueError("token= is empty; leave it out if whoever gets here is to be believed")
        self._strategy = strategy
        self._token = None if token is None else token.encode()

    def admit(self, headers: Headers) -> None:
        if self._token is not None:
            scheme, _, given = _only(headers, b"authorization").partition(b" ")
            _demand(given if scheme.lower() == b"bearer" else b"", self._token)

    def read(self, headers: Headers, body: bytes) -> Incoming:
        event = _object(body)
        known = "id:" + _id(event.get("id"))
        key = _key(self._where, event)
        if key is None:
            raise Refused(400, b"the event names no conversation")
        return Incoming(event, known, key)

    def _where(self, event: dict[str, Any]) -> Key:
        dimensions = getattr(self._strategy, "_dimensions", None)
        chat, thread, user = event.get("chat"), event.get("thread"), event.get("user")
        if dimensions is None or (chat is None and user is None):
            return self._strategy.extract(event)
        key: Key = dimensions(chat, user, thread or 0)
        return key

    def kept(self, status: str) -> Reply:
        return Reply(200, msgspec.json.encode({"status": status}), b"application/json")

    def mine(self, event: Any) -> bool:
        return not is_slack(event) and not (isinstance(event, dict) and "update_id" in event)


def is_slack(event: Any) -> bool:
    """Whether an event that was kept is a payload of Slack's."""
    names = ("event_id", "trigger_id", "api_app_id")
    return isinstance(event, dict) and "update_id" not in event and any(name in event for name in names)


# -------------------------------------------------------------------------------------------------- pieces


def _only(headers: Headers, name: bytes) -> bytes:
    """The value of a header that came exactly once; nothing otherwise."""
    values = [value for given, value in headers if given == name]
    return values[0] if len(values) == 1 else b""


def _demand(given: bytes, secret: bytes) -> None:
    if not hmac.compare_digest(given, secret):
        _unauthorized()


def _unauthorized() -> NoReturn:
    raise Refused(401, b"unauthorized")


def _object(body: bytes) -> dict[str, Any]:
    """The JSON object in a body."""
    try:
        found = msgspec.json.decode(body)
    except (ValueError, RecursionError):
        raise Refused(400, b"not JSON") from None
    if not isinstance(found, dict):
        raise Refused(400, b"not a JSON object")
    if body.count(b"{") + body.count(b"[") > _DEPTH and _is_deeper(found, _DEPTH):
        raise Refused(400, b"nested too deeply")
    return found


def _is_deeper(value: Any, levels: int) -> bool:
    layer = [value]
    for _ in range(levels):
        layer = [one for node in layer for one in (node.values() if isinstance(node, dict) else node)
                 if isinstance(one, dict | list)]  # fmt: skip
        if not layer:
            return False
    return True


def _form(body: bytes) -> dict[str, Any]:
    """The fields of a form; those of its `payload` if it has one, as Slack sends actions."""
    try:
        fields: dict[str, Any] = dict(
            parse_qsl(body.decode(), keep_blank_values=True, errors="strict", max_num_fields=_FIELDS)
        )
    except ValueError:
        raise Refused(400, b"not a form") from None
    if "payload" in fields:
        return _object(fields["payload"].encode())
    if not fields:
        raise Refused(400, b"nothing is in it")
    return fields


def _id(known: Any) -> str:
    """The text of an event's id."""
    text = str(known) if type(known) is int and abs(known) < _LARGEST_INT else known
    if not isinstance(text, str) or not 0 < len(text) <= _LONGEST_ID or not text.isprintable():
        raise Refused(400, b"an event has an id: a number, or text of at most 256 characters")
    return text


def _key(find: Callable[[dict[str, Any]], Key], event: dict[str, Any]) -> Key:
    """Which conversation it belongs to; a function of the user's own that fails has met something strange."""
    try:
        return find(event)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is an answer to this event
        failures.log("webhook.key", error)
        raise Refused(400, b"which conversation it belongs to cannot be told") from None
