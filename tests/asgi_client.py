"""Requests straight through an ASGI application, as raw as one likes."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable
from typing import Any, NamedTuple

SIGNING_SECRET = "8f742231b10e8888abcd99yyyzzz85a5"


class Response(NamedTuple):
    status: int
    headers: dict[bytes, bytes]
    body: bytes


async def ask(
    app: Any,
    body: bytes | Iterable[bytes] = b"",
    headers: Iterable[tuple[bytes, bytes]] = (),
    method: str = "POST",
    disconnect: bool = False,
) -> Response | None:
    """The response to one request; None when there was none."""
    chunks = [body] if isinstance(body, bytes) else body
    pending = iter(chunks)
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        chunk = next(pending, None)
        if chunk is None:
            return {"type": "http.disconnect"} if disconnect else {"type": "http.request", "body": b""}
        return {"type": "http.request", "body": chunk, "more_body": disconnect or not isinstance(body, bytes)}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": method, "path": "/", "headers": list(headers)}
    await app(scope, receive, send)
    if not sent:
        return None
    start, rest = sent[0], b"".join(message["body"] for message in sent[1:])
    return Response(start["status"], dict(start["headers"]), rest)


def signed(body: bytes, at: float, secret: str = SIGNING_SECRET) -> list[tuple[bytes, bytes]]:
    """The headers that prove a body to be Slack's."""
    stamp = b"%d" % at
    digest = hmac.new(secret.encode(), b"v0:" + stamp + b":" + body, hashlib.sha256).hexdigest()
    return [(b"x-slack-request-timestamp", stamp), (b"x-slack-signature", b"v0=" + digest.encode())]
