"""The inspector as a server of its own: on loopback, with the link that opens it printed once."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterable
from contextlib import suppress

from hitherto.errors import HithertoError, MissingExtra
from hitherto.flows import Flow
from hitherto.inspector import inspector
from hitherto.inspector.guard import LOOPBACK
from hitherto.stores.base import Store


def serve(
    store: Store,
    *,
    bot: str | None,
    flows: Iterable[type[Flow]],
    write: bool,
    host: str,
    port: int,
    say: Callable[[str], None],
) -> None:
    """Serve *store* until interrupted; *say* is given the link."""
    try:
        import uvicorn
    except ImportError as error:
        raise MissingExtra("hitherto inspect", "inspector") from error
    names = [*LOOPBACK] if host in ("127.0.0.1", "::1", "localhost") else [*LOOPBACK, host, _bracketed(host)]
    app = inspector(store, write=write, bot=bot, flows=flows, hosts=names)
    listener = _listening(host, port)
    # its access log would hold the token of the first request
    config = uvicorn.Config(
        app, log_level="warning", access_log=False, server_header=False, lifespan="off",
        timeout_graceful_shutdown=2,
    )  # fmt: skip

    async def run() -> None:
        async with store:
            say(app.link(f"http://{_bracketed(host)}:{listener.getsockname()[1]}"))
            with suppress(asyncio.CancelledError):
                await uvicorn.Server(config).serve(sockets=[listener])

    try:
        asyncio.run(run())
    finally:
        listener.close()


def _listening(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(128)
    except OSError as error:
        listener.close()
        raise HithertoError(
            f"port {port} of {host} cannot be taken ({error.strerror}); give another --port"
        ) from error
    return listener


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
