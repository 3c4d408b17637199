"""The playground in a real browser: what people see when they try to lose a pizza."""

from __future__ import annotations

import itertools
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

expect.set_options(timeout=30_000)  # only for hangs


NAMES = map("Guest {}".format, itertools.count(100))


@contextmanager
def playground(folder: Path) -> Iterator[str]:
    """Run the command in this folder; the address that it printed."""
    process = subprocess.Popen(
        [sys.executable, "-m", "hitherto", "demo", "--page", "--no-open"],
        cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    with process:
        assert process.stdout is not None
        yield next(line.strip() for line in process.stdout if "http" in line)
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0


@pytest.fixture(scope="module")
def link(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """One playground, where every test is about somebody else; its address."""
    with playground(tmp_path_factory.mktemp("playground")) as link:
        yield link


@pytest.fixture
def tab(link: str, new_page: Callable[..., Page]) -> Callable[..., Page]:
    """Opens the playground as somebody new."""

    def opened(who: str = "", **options: bool) -> Page:
        page = new_page(**options)
        page.goto(f"{link}&who={who or next(NAMES)}")
        expect(page.locator("#worker")).to_have_attribute("data-state", "up")
        return page

    return opened


def say(page: Page, *texts: str) -> None:
    for text in texts:
        page.get_by_label("Message", exact=True).fill(text)
        page.keyboard.press("Enter")


def is_at(page: Page, state: str) -> None:
    """The map lights this state and no other, and the badge names it."""
    expect(page.locator("#map .map-here")).to_have_attribute("data-state", state)
    expect(page.locator("#here")).to_have_text(state)


def taken(page: Page) -> tuple[str | None, str | None]:
    edge = page.locator("#map .map-taken")
    expect(edge).to_have_count(1)
    return edge.get_attribute("data-from"), edge.get_attribute("data-to")


def set_up(page: Page, **knobs: str) -> None:
    """Turn knobs, and wait until the server has heard of it."""
    for name, value in knobs.items():
        with page.expect_response("**/set"):
            page.locator(f"#{name}").select_option(value)


def statuses(page: Page) -> list[str | None]:
    return page.locator(".bubble.mine").evaluate_all("all => all.map(one => one.dataset.status)")


def told(page: Page, *wanted: str) -> None:
    """Each of the messages has come to what is wanted of it."""
    for place, status in enumerate(wanted):
        expect(page.locator(".bubble.mine").nth(place)).to_have_attribute("data-status", status)
    assert len(statuses(page)) == len(wanted)


def test_two_people_order_at_the_same_time_and_each_map_lights_the_right_state(tab) -> None:
    ann, ben = tab(), tab()
    say(ann, "/order")
    say(ben, "/order")
    is_at(ann, "size")
    is_at(ben, "size")
    ann.get_by_role("button", name="large").click()
    is_at(ann, "toppings")
    assert taken(ann) == ("size", "toppings")
    is_at(ben, "size")
    say(ben, "small")
    is_at(ben, "toppings")
    say(ben, "ham")
    expect(ben.locator("#map .map-taken")).to_have_attribute("data-from", "toppings")
    assert taken(ben) == ("toppings", "toppings")
    say(ben, "done")
    is_at(ben, "address")
    is_at(ann, "toppings")
    expect(ann.locator("#data")).to_contain_text('"large"')
    expect(ben.locator("#data")).to_contain_text('"small"')
    expect(ann.locator("#messages")).not_to_contain_text("small.")


def test_a_tab_without_a_name_is_somebody_new_and_names_can_be_chosen(tab) -> None:
    ann = tab()
    with ann.context.expect_page() as opened:
        ann.get_by_role("link", name="+ another person").click()
    other = opened.value
    other.wait_for_load_state()
    name = other.locator("#name").input_value()
    assert name not in ("", ann.locator("#name").input_value())
    other.locator("#name").fill("Zoë & <b>")
    other.keyboard.press("Enter")
    expect(other.locator("#map-title")).to_contain_text("Where Zoë & <b> is")
    expect(other.locator("#worker")).to_have_attribute("data-state", "up")
    say(other, "<img src=x onerror=alert(1)>")
    expect(other.locator(".bubble.mine")).to_contain_text("<img src=x onerror=alert(1)>")
    assert other.locator("#messages img").count() == 0


def test_five_messages_at_once_stand_in_a_queue_that_drains_in_order(tab) -> None:
    page = tab()
    set_up(page, slow="4")
    page.get_by_role("button", name="Send five at once").click()
    expect(page.locator("#inbox li")).to_have_count(5)
    expect(page.locator("#inbox .tag").first).to_have_text("claimed")
    expect(page.locator("#inbox .tag").nth(4)).to_have_text("waiting")
    expect(page.locator("#lease")).to_contain_text("held by worker")
    set_up(page, slow="0.4")
    lengths, orders = [], []
    while not lengths or lengths[-1]:
        orders.append(page.locator("#inbox .what").all_text_contents())
        if not lengths or lengths[-1] != len(orders[-1]):
            lengths.append(len(orders[-1]))
        page.wait_for_timeout(20)
    assert lengths == sorted(lengths, reverse=True)
    for order in orders:
        assert order == ["/order", "medium", "olives", "ham", "done"][5 - len(order) :]
    is_at(page, "address")
    told(page, *["handled"] * 5)
    expect(page.locator("#data")).to_contain_text('["olives","ham"]')
    expect(page.locator("#lease")).to_contain_text("free")


def test_a_message_that_comes_twice_is_shown_as_a_duplicate_and_handled_once(tab) -> None:
    page = tab()
    page.get_by_label("Message", exact=True).fill("/order")
    page.get_by_role("button", name="Send it twice").click()
    told(page, "handled", "duplicate")
    expect(page.locator(".bubble.mine").nth(1)).to_contain_text("same id again: nothing happens")
    expect(page.locator("#seen li")).to_have_count(1)
    expect(page.locator(".bubble:not(.mine)")).to_have_count(1)


def test_the_plug_is_pulled_in_mid_handler_and_the_order_goes_on(tab, shot) -> None:
    page = tab()
    say(page, "/order")
    is_at(page, "size")
    set_up(page, slow="4")
    say(page, "large")
    told(page, "handled", "running")
    pid = int(re.search(r"\d+", page.locator("#worker").inner_text())[0])
    page.get_by_role("button", name="Pull the plug").click()
    expect(page.locator("#worker")).to_contain_text("the worker is dead")
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    is_at(page, "size")
    shot(page, "playground-plug-pulled")
    say(page, "ham")
    expect(page.locator("#worker")).to_contain_text("killed once")
    set_up(page, slow="0")
    expect(page.locator("#log")).to_contain_text("started, attempt 2")
    told(page, "handled", "handled", "handled")
    expect(page.locator(".bubble.mine").nth(1)).to_contain_text("attempt 2")
    is_at(page, "toppings")
    expect(page.locator("#data")).to_contain_text('["ham"]')


def test_a_handler_that_raises_is_tried_again_and_ends_as_a_dead_letter(tab, shot, axe) -> None:
    page = tab()
    set_up(page, slow="0", trouble="once")
    say(page, "/order")
    expect(page.locator("#log")).to_contain_text("raised OvenOnFire: nothing is committed (attempt 1 of 4)")
    told(page, "handled")
    is_at(page, "size")
    set_up(page, trouble="always")
    say(page, "medium")
    expect(page.locator("#dead .what")).to_have_text("medium")
    told(page, "handled", "dead")
    is_at(page, "size")
    assert axe(page) == []
    shot(page, "playground-dead-letter")
    set_up(page, trouble="no")
    page.get_by_role("button", name="Retry").click()
    is_at(page, "toppings")
    told(page, "handled", "handled")
    set_up(page, trouble="always")
    say(page, "ham")
    page.get_by_role("button", name="Drop").click()
    expect(page.locator("#dead")).to_contain_text("none")


@pytest.mark.parametrize(
    ("overlap", "wanted"),
    [
        ("reject", ["handled"] * 5),
        ("debounce", ["handled", "replaced", "replaced", "replaced", "handled"]),
        ("burst", ["folded", "folded", "folded", "folded", "handled"]),
        ("concurrent", ["handled"] * 5),
    ],
)
def test_overlap_policies_can_be_tried(tab, overlap: str, wanted: list[str]) -> None:
    page = tab()
    set_up(page, slow="4", overlap=overlap)
    expect(page.locator("#overlap-says")).to_contain_text(overlap.capitalize())
    page.get_by_role("button", name="Send five at once").click()
    if overlap == "reject":
        expect(page.locator("#log")).to_contain_text("refused as busy: the platform brings it again")
    if overlap == "concurrent":
        expect(page.locator(".bubble[data-status=running]")).to_have_count(5)
    expect(page.locator(".bubble[data-status=sending]")).to_have_count(0)
    set_up(page, slow="0")
    told(page, *wanted)


def test_it_can_be_used_by_keyboard_alone(tab) -> None:
    page = tab()
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")  # the link to the chat
    page.keyboard.type("/order")
    page.keyboard.press("Enter")
    is_at(page, "size")
    expect(page.get_by_label("Message", exact=True)).to_be_focused()
    page.keyboard.press("Shift+Tab")  # the last of the quick replies
    page.keyboard.press("Space")
    is_at(page, "toppings")
    expect(page.locator("#data")).to_contain_text('"large"')


def test_a_playground_that_is_started_again_goes_on(
    tmp_path_factory: pytest.TempPathFactory, new_page: Callable[..., Page], watch
) -> None:
    watch.expect("net::ERR_")  # nobody answers for a while
    folder = tmp_path_factory.mktemp("again")
    with playground(folder) as link:
        page = new_page()
        page.goto(f"{link}&who=Ann")
        expect(page.locator("#messages")).to_contain_text("Hello, Ann")
        expect(page.locator("#send")).to_be_enabled()
        say(page, "/order")
        is_at(page, "size")
    expect(page.locator("#worker")).to_contain_text("the page's server does not answer")
    page.close()
    with playground(folder) as link:
        page = new_page()
        page.goto(f"{link}&who=Ann")
        expect(page.locator("#messages")).to_contain_text("Welcome back, Ann")
        is_at(page, "size")


def test_a_page_that_is_opened_again_shows_the_same(tab) -> None:
    page = tab()
    say(page, "/order", "small")
    is_at(page, "toppings")
    page.reload()
    expect(page.locator("#send")).to_be_enabled()
    is_at(page, "toppings")
    told(page, "handled", "handled")
    assert taken(page) == ("size", "toppings")


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("phone", [False, True], ids=["desktop", "phone"])
def test_it_looks_right_and_everybody_can_use_it(tab, axe, shot, watch, phone: bool, dark: bool) -> None:
    names = {(False, False): "Ann", (False, True): "Ben", (True, False): "Cleo", (True, True): "Dan"}
    page = tab(names[phone, dark], phone=phone, dark=dark)
    name = f"playground-{'phone' if phone else 'desktop'}-{'dark' if dark else 'light'}"
    assert axe(page) == []
    set_up(page, slow="0")
    say(page, "/order")
    is_at(page, "size")
    page.get_by_role("button", name="medium").click()
    is_at(page, "toppings")
    set_up(page, slow="4")
    page.get_by_role("button", name="Send five at once").click()
    expect(page.locator("#inbox li")).to_have_count(5)
    assert axe(page) == []
    shot(page, name)
    wide, shown = page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
    assert wide <= shown  # nothing sticks out at the side
    controls = page.locator("button, select, input")
    small = controls.evaluate_all("all => all.filter(one => one.offsetHeight < 34).map(one => one.id)")
    assert small == []
    assert len(watch.hosts) == 1
