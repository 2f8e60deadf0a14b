"""The chat page in a real browser. $RANKER_TEST_SCREENSHOTS names a folder to keep pictures of it in."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import pytest
from starlette.testclient import TestClient

from ranker.feedback import FEEDBACK_FILE, Edit, FeedbackStore, Report
from ranker.home import Home
from ranker.safety import fixed_message

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

_FLAGS = (
    "--no-sandbox",  # the tests may run as root
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
_PHONE_WIDTH = 360
_EXTENT = """() => {
    const boxes = [...document.querySelectorAll("button")].map((one) => one.getBoundingClientRect());
    const seen = boxes.filter((box) => box.width);
    return {
        left: Math.min(...seen.map((box) => box.left)),
        right: Math.max(document.documentElement.scrollWidth, ...seen.map((box) => box.right)),
        lowest: Math.min(...seen.map((box) => box.height)),
    };
}"""
"""How far the page and its buttons reach, and how low the lowest button is."""


class Running(Protocol):
    @property
    def url(self) -> str: ...
    @property
    def process(self) -> subprocess.Popen[bytes]: ...


class Start(Protocol):
    def __call__(self, lines: str, /) -> Running: ...


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        pytest.skip("no Chromium is installed")
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with playwright.sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=chromium, args=_FLAGS)
        yield opened
        opened.close()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A page on a desk. It fails the test where a script fails."""
    with browser.new_context(viewport={"width": 1000, "height": 800}) as context:
        opened = context.new_page()
        opened.set_default_timeout(15_000)
        failures: list[object] = []
        opened.on("pageerror", lambda error: failures.append(error))
        yield opened
        assert failures == []


def picture(page: Page, name: str) -> None:
    if folder := os.environ.get("RANKER_TEST_SCREENSHOTS"):
        page.screenshot(path=Path(folder) / f"{name}.png")


def say(page: Page, text: str) -> None:
    """Type a message, send it with Enter, and wait for the reply to it."""
    replies = page.locator(".theirs .actions")
    before = replies.count()
    page.get_by_label("Your message").fill(text)
    page.keyboard.press("Enter")
    replies.nth(before).wait_for()


def last_reply(page: Page) -> str:
    return page.locator(".theirs .bubble").last.inner_text()


def test_the_files_are_served_with_a_strict_policy(client: TestClient) -> None:
    for path, kind in (
        ("/", "text/html"),
        ("/static/chat.css", "text/css"),
        ("/static/chat.js", "text/javascript"),
    ):
        answer = client.get(path)
        assert answer.status_code == 200
        assert answer.headers["content-type"] == f"{kind}; charset=utf-8"
        assert "default-src 'none'; script-src 'self'" in answer.headers["content-security-policy"]
        # Nothing from elsewhere, but for the name of SVG's namespace in the icon.
        assert "http" not in answer.text.replace("http://www.w3.org/2000/svg", "")
    script = client.get("/static/chat.js").text
    assert not [name for name in ("innerHTML", "outerHTML", "insertAdjacentHTML", "eval(") if name in script]
    assert client.get("/static/../page.py").status_code == 404


def test_talk_report_and_edit(page: Page, start: Start, home: Home) -> None:
    page.goto(start("").url)
    picture(page, "welcome")
    assert page.evaluate("document.activeElement.id") == "message"
    say(page, "my dog is very ill and I am sad")
    assert last_reply(page) == "I am so sorry about your dog."
    assert page.locator(".source").inner_text() == "retrieved from ed"
    assert page.locator(".mine .emotion").inner_text().startswith("sounds ")
    assert page.get_by_label("Your message").input_value() == ""

    # Why: the ranking behind it, closed by Esc, the focus back where it was.
    page.get_by_role("button", name="Why").click()
    places = page.locator(".place")
    assert places.count() == 5
    assert "I am so sorry about your dog." in places.nth(0).inner_text()
    assert " · ed · sad" in places.nth(0).locator(".about").inner_text()
    picture(page, "why")
    page.keyboard.press("Escape")
    assert places.count() == 0
    assert page.evaluate("document.activeElement.textContent") == "Why"

    # The history goes with the next message: the same reply is not given twice.
    say(page, "so sad about the dog")
    assert last_reply(page) != "I am so sorry about your dog."

    page.get_by_role("button", name="Report").first.click()
    picture(page, "report")
    page.keyboard.type("hollow")
    page.keyboard.press("Enter")
    page.get_by_text("Reported. Thank you").wait_for()
    assert page.locator(".reported .bubble").inner_text() == "I am so sorry about your dog."

    given = last_reply(page)
    page.get_by_role("button", name="Edit").click()
    picture(page, "edit")
    assert page.get_by_label("What should it have said?").input_value() == given
    page.get_by_label("What should it have said?").fill("Dogs are family. How are you holding up?")
    page.get_by_role("button", name="Save").click()
    page.get_by_text("Edited. Thank you").wait_for()
    assert last_reply(page) == "Dogs are family. How are you holding up?"
    picture(page, "after-feedback")

    with FeedbackStore.open(home.root / FEEDBACK_FILE) as store:
        report, edit = store.entries()
    assert isinstance(report, Report)
    assert (report.context.turns, report.candidate_id, report.reason) == (
        ("my dog is very ill and I am sad",),
        "ed:1",
        "hollow",
    )
    assert isinstance(edit, Edit)
    assert (edit.text, edit.edited_text) == (given, "Dogs are family. How are you holding up?")
    assert edit.context.turns[1:] == ("I am so sorry about your dog.", "so sad about the dog")

    page.get_by_role("button", name="New conversation").click()
    assert page.locator("#log li").count() == 0
    say(page, "my dog is very ill and I am sad")
    assert last_reply(page) != "I am so sorry about your dog."


def test_a_fixed_message_says_that_it_is_one(page: Page, start: Start) -> None:
    page.goto(start("").url)
    page.get_by_label("Your message").fill("I want to kill myself tonight.")
    page.keyboard.press("Enter")
    page.locator(".theirs.fixed .source").wait_for()
    assert last_reply(page) == fixed_message("self-harm")
    assert page.locator(".source").inner_text() == "a fixed message"
    assert page.get_by_role("button", name="Report").count() == 0
    assert page.get_by_role("button", name="Why").count() == 0
    picture(page, "fixed")


def test_texts_are_never_taken_for_html(page: Page, start: Start) -> None:
    page.goto(start("").url)
    attack = "<img src=x onerror=\"document.title='broken in'\"><b>dog</b>"
    say(page, attack)
    assert page.locator(".mine .bubble").inner_text() == attack
    assert page.locator("#log img, #log b").count() == 0
    assert page.title() == "ranker · chat"
    # Shift+Enter is a new line, and an empty message is not sent.
    page.keyboard.press("Enter")
    page.keyboard.type("two")
    page.keyboard.press("Shift+Enter")
    page.keyboard.type("lines")
    assert page.get_by_label("Your message").input_value() == "two\nlines"
    assert page.locator(".mine").count() == 1


def test_a_key_is_asked_for_only_when_it_is_needed(page: Page, start: Start) -> None:
    running = start('api_keys = ["secret"]')
    page.goto(running.url)
    assert not page.locator("#key-form").is_visible()
    page.get_by_role("button", name="My dog died this morning.").click()
    page.get_by_text("This server asks for an API key.").wait_for()
    picture(page, "key")
    page.keyboard.type("wrong")
    page.keyboard.press("Enter")
    page.get_by_text("That API key was not accepted.").wait_for()
    page.keyboard.type("secret")
    page.keyboard.press("Enter")
    page.locator(".theirs .actions").wait_for()
    assert last_reply(page)
    assert not page.locator("#key-form").is_visible()

    running.process.kill()
    running.process.wait()
    page.get_by_label("Your message").fill("are you there?")
    page.keyboard.press("Enter")
    page.get_by_text("The server cannot be reached.").wait_for()
    assert page.get_by_role("button", name="Try again").is_visible()
    picture(page, "problem")


def test_dark_and_on_a_phone(page: Page, start: Start) -> None:
    page.set_viewport_size({"width": _PHONE_WIDTH, "height": 740})
    page.goto(start("").url)
    say(page, "my dog is very ill and I am sad, " + "so very sad " * 10 + "x" * 200)
    for name in ("Why", "Report", "Edit"):
        page.get_by_role("button", name=name).click()
        picture(page, f"phone-{name.lower()}")
        extent = page.evaluate(_EXTENT)
        assert extent["left"] >= 0
        assert extent["right"] <= _PHONE_WIDTH
        assert extent["lowest"] >= 32

    brightness = {}
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
        picture(page, f"phone-{scheme}")
        ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
        brightness[scheme] = sum(map(int, ground[4:-1].split(", ")))
    assert brightness["dark"] < 150 < 600 < brightness["light"]
