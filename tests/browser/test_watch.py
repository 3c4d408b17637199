"""The eyes of the browser tests see what they are there for."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from playwright.sync_api import Page

PAGES = {
    "/fine": "<title>Fine</title><main><h1>Fine</h1><p>nothing to see</p></main>",
    "/noisy": "<title>Noisy</title><script>console.error('ouch')</script>",
    "/broken": "<title>Broken</title><script>nothing.there()</script>",
    "/foreign": "<title>Foreign</title><img src='http://example.org/spy.png' alt='spy'>",
    "/strict": "<title>Strict</title><main><h1>Strict</h1><p>no script of another</p></main>",
    "/unreadable": "<title>Unreadable</title><main><h1>Hm</h1><button></button><img src='data:,'></main>",
}


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        text = PAGES.get(self.path)
        self.send_response(200 if text else 404)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        if self.path == "/strict":
            self.send_header("Content-Security-Policy", "default-src 'none'")
        self.end_headers()
        self.wfile.write(f"<!doctype html><html lang=en>{text}".encode())

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def site() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_page_that_behaves_is_no_complaint(page: Page, site: str, watch, axe, shot) -> None:
    page.goto(f"{site}/fine")
    assert watch.complaints == []
    assert watch.hosts == {site.removeprefix("http://")}
    assert axe(page) == []
    assert shot(page, "watch").stat().st_size > 1000


@pytest.mark.parametrize(
    ("path", "complaint"),
    [("/noisy", "ouch"), ("/broken", "nothing is not defined"), ("/foreign", "example.org")],
)
def test_a_page_that_misbehaves_is_a_complaint(
    page: Page, site: str, watch, path: str, complaint: str
) -> None:
    page.goto(f"{site}{path}")
    page.wait_for_load_state("networkidle")
    assert any(complaint in one for one in watch.unexpected())
    watch.expect(complaint)
    watch.expect("net::ERR_FAILED")
    assert watch.unexpected() == []


def test_axe_works_under_a_strict_policy_and_finds_what_is_wrong(page: Page, site: str, axe) -> None:
    page.goto(f"{site}/strict")
    assert axe(page) == []
    page.goto(f"{site}/unreadable")
    assert {one.split()[1] for one in axe(page)} >= {"button-name", "image-alt"}


def test_light_and_dark_desktop_and_phone(new_page: Callable[..., Page], site: str) -> None:
    for phone in (False, True):
        for dark in (False, True):
            page = new_page(phone=phone, dark=dark)
            page.goto(f"{site}/fine")
            assert page.evaluate("innerWidth") == (390 if phone else 1280)
            assert page.evaluate("matchMedia('(prefers-color-scheme: dark)').matches") is dark


def test_async_work_has_a_loop_of_its_own(run) -> None:
    async def answer() -> int:
        await asyncio.sleep(0)
        return 42

    async def fail() -> None:
        raise KeyError("seen")

    assert run(answer()) == 42
    with pytest.raises(KeyError, match="seen"):
        run(fail())
