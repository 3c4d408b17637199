"""A real Chromium for the tests of this directory, which run by ``make test-browser``, not by ``make test``.

``page`` is a tab that fails its test when the page reports an error or asks another host for anything;
``new_page`` makes more of them, of any size, light or dark.  Playwright's loop runs in this thread: what is
async in a test goes through ``run``.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import threading
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, Route, sync_playwright

ARTIFACTS = Path(__file__).parents[2] / "artifacts"
AXE = ARTIFACTS / "npm" / "node_modules" / "axe-core" / "axe.min.js"
FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip
DESKTOP = {"width": 1280, "height": 860}
PHONE = {"width": 390, "height": 844}
LOOPBACK = {"127.0.0.1", "localhost", "[::1]", "::1"}
PATIENCE = 15_000  # milliseconds; only a page that hangs needs so long


def chromium() -> str:
    """The browser's program."""
    named = os.environ.get("HITHERTO_TEST_CHROMIUM", "")
    for name in (named, "chromium", "chromium-browser", "google-chrome", "google-chrome-stable"):
        if name and (found := shutil.which(name)):
            return found
    raise FileNotFoundError("no Chromium: run `make test-browser`, which brings it or says what to install")


class Watch:
    """What a tab does that it must not: errors and warnings in its console, requests to other hosts.

    A test that provokes something on purpose says so: ``watch.expect("status of 403")``.
    """

    def __init__(self) -> None:
        self.complaints: list[str] = []
        self.hosts: set[str] = set()
        self._expected: list[str] = []

    def expect(self, text: str) -> None:
        """Complaints with this in them are no failure in this test."""
        self._expected.append(text)

    def unexpected(self) -> list[str]:
        """The complaints that nobody announced."""
        return [one for one in self.complaints if not any(text in one for text in self._expected)]

    def join(self, context: BrowserContext) -> None:
        """Watch every tab of this context."""
        context.route("**/*", self._route)
        context.on("console", self._console)
        context.on("weberror", lambda error: self.complaints.append(f"error: {error.error}"))

    def _route(self, route: Route) -> None:
        parts = urlsplit(route.request.url)
        if parts.scheme in ("data", "blob", "about") or (parts.hostname or "") in LOOPBACK:
            self.hosts.add(parts.netloc)
            route.continue_()
        else:
            self.complaints.append(f"request to another host: {route.request.url}")
            route.abort()

    def _console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(f"console {message.type}: {message.text}")


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """One Chromium for all tests, with a profile of its own that is thrown away."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def watch() -> Iterator[Watch]:
    """What the tabs of this test complained of; the test fails if that is anything but expected."""
    watch = Watch()
    yield watch
    assert watch.unexpected() == []


@pytest.fixture
def new_page(browser: Browser, watch: Watch) -> Iterator[Callable[..., Page]]:
    """Makes tabs, each of a person of its own: ``new_page(phone=True, dark=True)``."""
    contexts: list[BrowserContext] = []

    def make(*, phone: bool = False, dark: bool = False, **options: Any) -> Page:
        context = browser.new_context(
            viewport=PHONE if phone else DESKTOP,  # type: ignore[arg-type]
            color_scheme="dark" if dark else "light",
            has_touch=phone,
            reduced_motion="reduce",
            **options,
        )
        contexts.append(context)
        context.set_default_timeout(PATIENCE)
        watch.join(context)
        return context.new_page()

    yield make
    for context in contexts:
        context.close()


@pytest.fixture
def page(new_page: Callable[..., Page]) -> Page:
    """One tab at desktop width, in light."""
    return new_page()


@pytest.fixture(scope="session")
def shot() -> Callable[[Page, str], Path]:
    """Keeps a screenshot in artifacts/browser: ``shot(page, "inspector-list-phone-dark")``."""
    folder = ARTIFACTS / "browser"
    folder.mkdir(parents=True, exist_ok=True)

    def take(page: Page, name: str) -> Path:
        path = folder / f"{name}.png"
        page.screenshot(path=path, full_page=True)
        return path

    return take


@pytest.fixture(scope="session")
def axe() -> Callable[[Page], list[str]]:
    """What axe-core finds on a page that is serious or worse: ``assert axe(page) == []``."""
    source = AXE.read_text(encoding="utf-8")

    def look(page: Page) -> list[str]:
        page.evaluate(f"() => {{ {source}\n }}")
        found = page.evaluate(
            "async () => (await axe.run(document, {resultTypes: ['violations']})).violations"
        )
        return [
            f"{one['impact']}: {one['id']} at {node['target']}: {node['failureSummary']}"
            for one in found
            if one["impact"] in ("serious", "critical")
            for node in one["nodes"]
        ]

    return look


@pytest.fixture(scope="session")
def run() -> Callable[[Coroutine[Any, Any, Any]], Any]:
    """Runs a coroutine to its end in a thread of its own, because Playwright's loop runs in this one."""

    def work(coroutine: Coroutine[Any, Any, Any]) -> Any:
        came: list[Any] = []

        def target() -> None:
            try:
                came.append((asyncio.run(coroutine), None))
            except BaseException as error:  # it is raised again below
                came.append((None, error))

        thread = threading.Thread(target=target)
        thread.start()
        thread.join()
        value, error = came[0]
        if error is not None:
            raise error
        return value

    return work
