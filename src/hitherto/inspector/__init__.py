"""The inspector: a page that shows a store, live, and with ``write=True`` mends it.

::

    app.mount("/hitherto", inspector(keeper, auth=lambda request: request.session.get("admin")))

or from the command line, on loopback, with a token in the link that it prints::

    hitherto inspect sqlite:///my_bot.db --bot my_bot

It needs the extra ``inspector``. What every answer is guarded by is told in :mod:`hitherto.inspector.guard`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any

from hitherto.errors import MissingExtra
from hitherto.flows import Flow

if TYPE_CHECKING:
    from hitherto.inspector.app import Inspector
    from hitherto.keeper import Keeper
    from hitherto.stores.base import Store

__all__ = ["inspector"]


def inspector(
    source: Keeper | Store | str,
    auth: Callable[[Any], bool | str | Awaitable[bool | str | None] | None] | None = None,
    *,
    write: bool = False,
    bot: str | None = None,
    flows: Iterable[type[Flow]] | None = None,
    hosts: Iterable[str] | None = None,
) -> Inspector:
    """An ASGI application that shows what *source* keeps: a keeper, a store, or the URL of one.

    *auth* is given the request (Starlette's) and answers, or awaits, whether it may pass; a text is taken as
    the name for the audit log. Without it a token is demanded, which ``inspector(...).link(base)`` holds, and
    only loopback names are answered to. *write* allows actions. *bot* is fixed by a keeper; a store shows any
    bot that is asked for, unless one is named here. *flows* are drawn as maps, by default the keeper's.
    *hosts* are the names it may be reached by.
    """
    try:
        from hitherto.inspector.app import Inspector
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "starlette":
            raise
        raise MissingExtra("the inspector", "inspector") from error
    from hitherto.inspector.looking import Looker
    from hitherto.keeper import Keeper
    from hitherto.stores import open_store

    keeper: Keeper | None = None
    if isinstance(source, Keeper):
        keeper, store = source, source.store
    else:
        store = open_store(source) if isinstance(source, str) else source
    if keeper is not None and bot not in (None, keeper.bot):
        raise ValueError(f"bot={bot!r}: the keeper keeps {keeper.bot!r}")
    return Inspector(
        Looker(store, keeper, flows),
        bot=keeper.bot if keeper is not None else bot, write=write, auth=auth, hosts=hosts,
        owned=isinstance(source, str),
    )  # fmt: skip
