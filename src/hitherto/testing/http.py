"""A tiny HTTP/1.1 server and client for fakes, written with the standard library only.

It is small, not lax: every size has a limit, whatever cannot be understood is answered with a 4xx and a
closed connection, and nothing a client sends can raise out of the server. `HttpServer` runs one async handler
per request and understands keep-alive, content lengths, chunked bodies and pipelining; a handler may ask that
its reply be cut in the middle (`Response.cut`), which is how a fake plays a broken network. `fetch` is the
client.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from email.message import Message
from http import HTTPStatus
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qsl, unquote, urlsplit

logger = logging.getLogger(__name__)

MAX_HEAD = 32 * 1024
MAX_BODY = 64 * 1024 * 1024
MAX_FIELDS = 2_000
_TOKEN = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_REQUEST_LINE = re.compile(r"([A-Z]{1,20}) ([!-~]{1,16384}) (HTTP/1\.[01])")
_STATUS_LINE = re.compile(r"HTTP/1\.[01] ([1-5][0-9]{2})(?: .*)?")
_CHUNK_SIZE = re.compile(rb"([0-9A-Fa-f]{1,8})[ \t]*(?:;.*)?")


class BadRequest(Exception):
    """What arrived is not HTTP as we accept it; `status` is the answer it gets."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Upload:
    """A file that came in a multipart body."""

    filename: str
    content_type: str
    content: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Request:
    """One request. Header names are in lower case; `gone` is set when the client has hung up."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes = field(repr=False, default=b"")
    version: str = "HTTP/1.1"
    gone: asyncio.Event = field(default_factory=asyncio.Event, repr=False)

    @property
    def path(self) -> str:
        """The path of the target, with its escapes undone."""
        return unquote(self.target.split("?", 1)[0])

    @property
    def keep_alive(self) -> bool:
        """Whether the client wants the connection to stay open."""
        wish = self.headers.get("connection", "").lower()
        return "keep-alive" in wish if self.version == "HTTP/1.0" else "close" not in wish

    def parameters(self) -> dict[str, Any]:
        """The parameters of query and body together: texts, uploads, or whatever a JSON object holds."""
        found: dict[str, Any] = {}
        if "?" in self.target:
            found.update(read_urlencoded(self.target.split("?", 1)[1].encode("ascii")))
        found.update(read_body(self.headers.get("content-type", ""), self.body))
        return found


@dataclass(frozen=True, slots=True)
class Response:
    """One reply. With `cut`, only that many bytes of the body are sent, then the connection is broken;
    `cut=-1` sends nothing at all."""

    status: int = 200
    body: bytes = field(repr=False, default=b"")
    content_type: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    cut: int | None = None

    def head(self, *, close: bool) -> bytes:
        """The status line and the headers, ready to be sent."""
        try:
            phrase = HTTPStatus(self.status).phrase
        except ValueError:
            phrase = "Unknown"
        lines = [f"HTTP/1.1 {self.status} {phrase}", f"Content-Type: {self.content_type}"]
        lines += [f"{name}: {value}" for name, value in self.headers.items()]
        lines += [f"Content-Length: {len(self.body)}", f"Connection: {'close' if close else 'keep-alive'}"]
        return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1", "replace")


Handler = Callable[[Request], Awaitable[Response]]


def read_body(content_type: str, body: bytes) -> dict[str, Any]:
    """The parameters in a JSON, form or multipart body; none in an empty body or one of another type."""
    kind, boundary = _content_type(content_type)
    if not body:
        return {}
    if kind == "application/json":
        return read_json(body)
    if kind == "application/x-www-form-urlencoded":
        return dict(read_urlencoded(body))
    if kind == "multipart/form-data":
        return read_multipart(body, boundary)
    return {}


def read_json(body: bytes) -> dict[str, Any]:
    """The JSON object that the body is; anything else is a `BadRequest`."""
    try:
        found = json.loads(body.decode("utf-8"), parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise BadRequest(400, "the body is not JSON") from error
    if not isinstance(found, dict):
        raise BadRequest(400, "the body is not a JSON object")
    return found


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def read_urlencoded(text: bytes) -> dict[str, str]:
    """The fields of a query or of a form; a field given twice has its last value."""
    try:
        return dict(
            parse_qsl(
                text.decode("utf-8"), keep_blank_values=True, errors="strict", max_num_fields=MAX_FIELDS
            )
        )
    except ValueError as error:
        raise BadRequest(400, "the form cannot be read") from error


def read_multipart(body: bytes, boundary: str) -> dict[str, Any]:
    """The parts of a multipart/form-data body by name: an `Upload` where there is a file name, else a
    text."""
    if not 0 < len(boundary) <= 200:
        raise BadRequest(400, "multipart without a usable boundary")
    parts = (b"\r\n" + body).split(b"\r\n--" + boundary.encode("latin-1", "replace"), MAX_FIELDS)
    found: dict[str, Any] = {}
    for part in parts[1:]:
        if part.startswith(b"--"):
            return found
        padding, line_end, rest = part.partition(b"\r\n")
        if padding.strip() or not line_end:
            raise BadRequest(400, "multipart with a broken boundary")
        name, value = _part(rest)
        found[name] = value
    raise BadRequest(400, "multipart without an end")


def _part(raw: bytes) -> tuple[str, Upload | str]:
    head, separator, content = raw.partition(b"\r\n\r\n")
    headers = dict(_header_lines(head)) if separator else {}
    about = Message()
    about["content-disposition"] = headers.get("content-disposition", "")
    name = about.get_param("name", header="content-disposition")
    filename = about.get_param("filename", header="content-disposition")
    if not isinstance(name, str):
        raise BadRequest(400, "multipart part without a name")
    if filename is not None:
        text = filename if isinstance(filename, str) else filename[2]
        return name, Upload(text, headers.get("content-type", "application/octet-stream"), content)
    try:
        return name, content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise BadRequest(400, "strings must be encoded in UTF-8") from error


def _content_type(text: str) -> tuple[str, str]:
    about = Message()
    about["content-type"] = text
    boundary = about.get_param("boundary")
    return about.get_content_type() if text else "", boundary if isinstance(boundary, str) else ""


def _header_lines(head: bytes) -> list[tuple[str, str]]:
    found = []
    for line in head.split(b"\r\n"):
        name, colon, value = line.partition(b":")
        if not colon or not _TOKEN.fullmatch(name) or b"\n" in value or b"\r" in value or b"\0" in value:
            raise BadRequest(400, "a header cannot be read")
        found.append((name.decode("ascii").lower(), value.strip().decode("utf-8", "replace")))
    return found


def _headers(lines: list[tuple[str, str]]) -> dict[str, str]:
    headers: dict[str, str] = {}
    for name, value in lines:
        if name in ("content-length", "host", "transfer-encoding") and headers.get(name, value) != value:
            raise BadRequest(400, f"two different {name} headers")
        headers[name] = value
    return headers


class Wire:
    """What one connection sends, read by mark, by count or to the end, each within a limit."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader
        self._buffer = bytearray()

    async def fill(self) -> bool:
        """Read some more into the buffer; false when there is no more."""
        more = await self._reader.read(65536)
        self._buffer += more
        return bool(more)

    async def until(self, mark: bytes, limit: int) -> bytes | None:
        """All bytes before the mark, which is taken away too; nothing if the connection ended cleanly
        before."""
        searched = 0
        while (at := self._buffer.find(mark, searched)) < 0:
            searched = max(0, len(self._buffer) - len(mark))
            if searched > limit:
                raise BadRequest(431, "the header is too large")
            if not await self.fill():
                if self._buffer.strip():
                    raise BadRequest(400, "the connection ended in the middle")
                return None
        if at > limit:
            raise BadRequest(431, "the header is too large")
        found = bytes(self._buffer[:at])
        del self._buffer[: at + len(mark)]
        return found

    async def exactly(self, count: int) -> bytes:
        """So many bytes."""
        while len(self._buffer) < count:
            if not await self.fill():
                raise BadRequest(400, "the connection ended in the middle")
        found = bytes(self._buffer[:count])
        del self._buffer[:count]
        return found

    async def rest(self, limit: int) -> bytes:
        """Everything until the other side closes."""
        while await self.fill():
            if len(self._buffer) > limit:
                raise BadRequest(413, "the body is too large")
        return await self.exactly(len(self._buffer))

    async def chunks(self, limit: int) -> bytes:
        """A chunked body, its trailers thrown away."""
        body = bytearray()
        while True:
            line = await self.until(b"\r\n", 256)
            size = _CHUNK_SIZE.fullmatch(line or b"")
            if size is None:
                raise BadRequest(400, "a chunk cannot be read")
            count = int(size[1], 16)
            if len(body) + count > limit:
                raise BadRequest(413, "the body is too large")
            if count == 0:
                break
            body += await self.exactly(count)
            if await self.exactly(2) != b"\r\n":
                raise BadRequest(400, "a chunk does not end where it should")
        while await self.until(b"\r\n", 4096):
            pass
        return bytes(body)


def _length(headers: Mapping[str, str], limit: int) -> int | None:
    text = headers.get("content-length")
    if text is None:
        return None
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise BadRequest(400, "the content length is not a number")
    if int(text) > limit:
        raise BadRequest(413, "the body is too large")
    return int(text)


def _is_chunked(headers: Mapping[str, str]) -> bool:
    coding = headers.get("transfer-encoding")
    if coding is None:
        return False
    if "content-length" in headers:
        raise BadRequest(400, "both a content length and a transfer encoding")
    if coding.lower() != "chunked":
        raise BadRequest(501, "an unknown transfer encoding")
    return True


class HttpServer:
    """Serves one handler on a loopback port. `async with` it; `url` is where it is; `faults` holds every
    exception a handler let out (its client got a 500), for tests to look at."""

    def __init__(
        self,
        handler: Handler,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        max_head: int = MAX_HEAD,
        max_body: int = MAX_BODY,
        patience: float = 75.0,
    ) -> None:
        self.handler = handler
        self.host = host
        self.port = port
        self.max_head = max_head
        self.max_body = max_body
        self.patience = patience
        self.faults: list[Exception] = []
        self._server: asyncio.Server | None = None
        self._connections: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    @property
    def url(self) -> str:
        """The address, without a slash at its end."""
        return f"http://{self.host}:{self.port}"

    @property
    def connections(self) -> int:
        """How many connections are open."""
        return len(self._connections)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def start(self) -> None:
        """Listen. The port is chosen once and kept, so that a server stopped and started again is the
        same."""
        self._server = await asyncio.start_server(self._accept, self.host, self.port, limit=self.max_head)
        self.port = self._server.sockets[0].getsockname()[1]

    async def aclose(self) -> None:
        """Stop listening and break every connection."""
        if self._server is not None:
            self._server.close()
            await self.hang_up()
            await self._server.wait_closed()
            self._server = None

    async def hang_up(self) -> None:
        """Break every connection there is, whatever is under way on it; new ones are welcome."""
        open_now = dict(self._connections)
        for task, writer in open_now.items():
            writer.transport.abort()
            task.cancel()
        await asyncio.gather(*open_now, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections[task] = writer
        wire = Wire(reader)
        try:
            while await self._exchange(wire, writer):
                pass
        except (OSError, TimeoutError, asyncio.CancelledError):
            pass
        finally:
            del self._connections[task]
            writer.close()
            with suppress(OSError, asyncio.CancelledError):
                await writer.wait_closed()

    async def _exchange(self, wire: Wire, writer: asyncio.StreamWriter) -> bool:
        """One request and its reply; false when the connection is to be closed."""
        try:
            async with asyncio.timeout(self.patience):
                request = await self._read(wire, writer)
        except BadRequest as bad:
            await self._refuse(wire, writer, bad)
            return False
        if request is None:
            return False
        response = await self._answer(request, wire)
        close = not request.keep_alive or response.cut is not None
        if response.cut is None or response.cut >= 0:
            writer.write(response.head(close=close))
            writer.write(response.body[: response.cut] if request.method != "HEAD" else b"")
        await writer.drain()
        return not close

    async def _read(self, wire: Wire, writer: asyncio.StreamWriter) -> Request | None:
        head = await wire.until(b"\r\n\r\n", self.max_head)
        if head is None:
            return None
        first, _, lines = head.lstrip(b"\r\n").partition(b"\r\n")
        line = _REQUEST_LINE.fullmatch(first.decode("latin-1"))
        if line is None:
            raise BadRequest(400, "the request line cannot be read")
        headers = _headers(_header_lines(lines)) if lines else {}
        chunked = _is_chunked(headers)
        length = _length(headers, self.max_body) or 0
        if headers.get("expect", "").lower() == "100-continue":
            writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        body = await wire.chunks(self.max_body) if chunked else await wire.exactly(length)
        return Request(line[1], line[2], headers, body, line[3])

    async def _answer(self, request: Request, wire: Wire) -> Response:
        async def watch() -> None:
            with suppress(OSError):
                if await wire.fill():
                    return
            request.gone.set()

        watcher = asyncio.create_task(watch())
        try:
            return await self.handler(request)
        except BadRequest as bad:
            return Response(bad.status, error_body(bad.status, bad.reason))
        except Exception as error:  # noqa: BLE001  a broken handler is a 500, and is kept for the test to see
            logger.error("the handler of a fake server raised %s", type(error).__name__)
            self.faults.append(error)
            return Response(500, error_body(500, "Internal Server Error"))
        finally:
            watcher.cancel()
            await asyncio.gather(watcher, return_exceptions=True)

    async def _refuse(self, wire: Wire, writer: asyncio.StreamWriter, bad: BadRequest) -> None:
        """Say why, then read a little of what still comes: closing at once would take the answer away."""
        response = Response(bad.status, error_body(bad.status, bad.reason))
        writer.write(response.head(close=True) + response.body)
        await writer.drain()
        writer.write_eof()
        with suppress(TimeoutError, BadRequest):
            async with asyncio.timeout(0.5):
                await wire.rest(4 * self.max_head)


def error_body(code: int, description: str) -> bytes:
    """An error as the Bot API words it."""
    return json.dumps({"ok": False, "error_code": code, "description": description}).encode()


async def fetch(
    url: str,
    *,
    method: str = "GET",
    body: bytes = b"",
    headers: Mapping[str, str] | None = None,
    timeout: float = 30.0,
    max_body: int = MAX_BODY,
) -> Response:
    """One request over plain HTTP on a connection of its own. Raises `OSError`, `TimeoutError` or
    `BadRequest` when no whole answer comes."""
    parts = urlsplit(url)
    if parts.scheme != "http" or not parts.hostname:
        raise BadRequest(400, "only plain http addresses can be called")
    async with asyncio.timeout(timeout):
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port or 80)
        try:
            target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
            wanted = {"Host": parts.netloc, "Connection": "close", "Content-Length": str(len(body))}
            wanted.update(headers or {})
            lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in wanted.items())]
            writer.write(("\r\n".join(lines) + "\r\n\r\n").encode("latin-1") + body)
            await writer.drain()
            return await _read_response(Wire(reader), max_body)
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()


async def _read_response(wire: Wire, max_body: int) -> Response:
    head = await wire.until(b"\r\n\r\n", MAX_HEAD)
    first, _, lines = (head or b"").partition(b"\r\n")
    status = _STATUS_LINE.fullmatch(first.decode("latin-1"))
    if status is None:
        raise BadRequest(502, "the answer is not HTTP")
    headers = _headers(_header_lines(lines)) if lines else {}
    if _is_chunked(headers):
        body = await wire.chunks(max_body)
    elif status[1] in ("204", "304"):
        body = b""
    else:
        length = _length(headers, max_body)
        body = await wire.rest(max_body) if length is None else await wire.exactly(length)
    return Response(int(status[1]), body, headers.get("content-type", ""), headers)
