"""Chromium in front of real servers. Screenshots are kept in out/creator, for people to look at."""

import contextlib
import shutil
from pathlib import Path

import axe_core_python
import pytest
from creator_server import Served
from playwright.sync_api import expect, sync_playwright

OUT = Path(__file__).parents[3] / "out" / "creator"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
AXE = (Path(axe_core_python.__file__).parent / "axe.min.js").read_text()
PHONE = {"width": 390, "height": 844}
DESK = {"width": 1440, "height": 900}

# A busy machine needs more than the 5 seconds that Playwright gives an expectation.
expect.set_options(timeout=20_000)


class Visitor:
    """A person with their own browser, which collects all problems.

    Attributes:
      page: The page of the browser, see Playwright.
      troubles: Problems that the console, the policy of the page and scripts report.
    """

    def __init__(self, context, address):
        self.context, self.address = context, address
        self.troubles = []
        context.set_default_timeout(20_000)
        self.page = context.new_page()
        self.page.on("console", self._hear)
        self.page.on("pageerror", lambda error: self.troubles.append(str(error)))

    def _hear(self, message):
        if message.type in ("error", "warning"):
            self.troubles.append(f"{message.text} {message.location.get('url', '')}")

    def open(self, path):
        """Opens an address of the server."""
        self.page.goto(self.address + path)
        return self.page

    def heading(self):
        """The heading of the page."""
        return self.page.get_by_role("heading", level=1).inner_text()

    def wait_until(self, condition):
        """Waits until a condition in JavaScript holds.

        `wait_for_function` of Playwright evaluates text in the page, which its policy forbids.
        """
        for _ in range(400):
            if self.page.evaluate(condition):
                return
            self.page.wait_for_timeout(50)
        raise AssertionError(condition)

    def look(self, name, *, full_page=True):
        """Takes a screenshot of the page, and checks its width and accessibility."""
        page = self.page
        # Animations change the contrast until they end.
        page.evaluate(
            "Promise.allSettled(document.getAnimations().filter((one) =>"
            " one.effect.getComputedTiming().iterations < 9).map((one) => one.finished))"
        )
        OUT.mkdir(parents=True, exist_ok=True)
        page.screenshot(path=OUT / f"{name}.png", full_page=full_page)
        assert not page.evaluate("document.documentElement.scrollWidth > innerWidth"), name
        page.evaluate(AXE)
        violations = page.evaluate(
            "async () => (await axe.run()).violations.map((one) => one.id + ': ' +"
            " one.nodes.slice(0, 3).map((node) => node.html.slice(0, 200)).join(' | '))"
        )
        assert not violations, f"{name}: {violations}"


# Not for the session: while Playwright runs, nothing else can run an event loop in this thread.
@pytest.fixture(scope="module")
def chromium():
    if CHROMIUM is None:
        pytest.skip("there is no Chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def visit(chromium):
    """Makes visitors: `visit(served, viewport=PHONE, color_scheme="dark")`."""
    with contextlib.ExitStack() as stack:

        def make_visitor(served, *, viewport=DESK, **options):
            context = chromium.new_context(viewport=viewport, **options)
            stack.callback(context.close)
            return Visitor(context, served.address)

        yield make_visitor


@pytest.fixture
def served(tmp_path):
    """A server of one person, who may do everything."""
    with Served(tmp_path / "recordings") as served:
        for study in served.creator.store.studies():  # The sample studies.
            served.creator.store.delete_study(study.id)
        yield served


@pytest.fixture
def shared(tmp_path):
    """A server that people enter by invites."""
    with Served(tmp_path / "shared", is_single_user=False) as served:
        for study in served.creator.store.studies():
            served.creator.store.delete_study(study.id)
        yield served
