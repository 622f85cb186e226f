"""Pages of participants: link, consent, instructions and practice."""

import os

import msgspec
import pytest
from creator_server import Served, drawn
from playwright.sync_api import expect

from rlds_creator.exporting.targets import FORMATS
from rlds_creator.model import Environment, Role, Study
from rlds_creator.server.plays import Limits
from rlds_creator.server.workers import WorkerTimeouts

pytestmark = pytest.mark.slow

DESK, PHONE = {"width": 1440, "height": 900}, {"width": 390, "height": 844}

INSTRUCTIONS = """**Push** the *cart*, <b>2 * 3 * 4</b>.

- left
- right

1. See [the details](https://example.com/a), not [those](javascript:alert(1)).

"""


def enter_by_link(visitor, token, name):
    """Enters by a link; returns the page to which it leads."""
    page = visitor.open(f"/enter#{token}")
    page.get_by_label("Your name").fill(name)
    page.get_by_role("button", name="Enter").click()
    return page


def test_owners_ask_for_consent_and_invite_to_a_study(shared, visit):
    store = shared.creator.store
    environment = msgspec.convert(drawn(), Environment)
    study = store.save_study(Study(name="Walk", environments=(environment,), state="enabled"))
    store.save_study(Study(name="Other", environments=(environment,), state="enabled"))
    owner = visit(shared)
    page = enter_by_link(owner, store.invite(Role.OWNER)[1], "Olga")
    page.get_by_role("link", name="Walk", exact=True).click()
    page.get_by_role("link", name="Edit").click()
    page.get_by_label("Instructions").first.fill(INSTRUCTIONS + "Take your time.\n\n" * 20)
    page.get_by_label("Consent").fill("We record what you **do**.")
    page.get_by_label("Practice episodes").fill("1")
    page.get_by_label("Episodes of all people").last.fill("20")
    owner.look("study-edit-consent")
    page.get_by_role("button", name="Save changes").click()
    page.get_by_role("button", name="Invite…").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_label("Study")).to_have_value(study.id)
    owner.look("invite-to-study", full_page=False)
    dialog.get_by_role("button", name="Create link").click()
    token = dialog.get_by_label("Invitation link").input_value().partition("#")[2]
    saved = store.study(study.id)
    assert (saved.practice, saved.total_quota) == (1, 20)

    player = visit(shared)
    page = enter_by_link(player, token, "Pia")
    expect(page.get_by_role("heading", level=1)).to_have_text("Walk")
    player.look("study-consent")
    expect(page.locator(".markdown strong").first).to_have_text("Push")
    expect(page.locator(".markdown em")).to_have_text("cart")
    expect(page.locator(".markdown li")).to_contain_text(["left", "right", "See the details"])
    expect(page.get_by_text("<b>2 * 3 * 4</b>")).to_be_visible()
    assert page.locator(".markdown a").evaluate_all("all => all.map((one) => one.href)") == [
        "https://example.com/a"
    ]
    page.get_by_role("button", name="I agree").click()
    expect(page.get_by_text("You agreed on")).to_be_visible()
    page.get_by_role("link", name="Studies").last.click()
    expect(page.get_by_role("listitem").filter(has_text="Other")).to_have_count(0)
    owner.page.reload()
    consents = owner.page.get_by_role("group", name="Consents")
    expect(consents.get_by_role("row").last).to_contain_text("Pia")
    consents.get_by_text("Current text").click()
    expect(consents.get_by_text("We record what you")).to_be_visible()
    owner.look("study-consents")
    assert [owner.troubles, player.troubles] == [[], []]


@pytest.mark.parametrize(("name", "viewport"), [("desk", DESK), ("phone", PHONE)])
def test_keys_come_before_long_instructions(served, visit, name, viewport):
    text = INSTRUCTIONS + "Take your time.\n\n" * 20
    study = served.study(drawn(), instructions=text, practice=1)
    visitor = visit(served, viewport=viewport)
    page = visitor.open(f"/play/{study['id']}")
    page.locator(".play[data-state=ready]").wait_for()
    keys = page.locator(".keymap").first.bounding_box()
    instructions = page.locator("#instructions").bounding_box()
    if name == "desk":
        assert keys["y"] + keys["height"] < instructions["y"] < viewport["height"]
    assert instructions["height"] <= 190
    page.keyboard.press("Enter")
    page.locator(".play[data-state=running]").wait_for()
    page.keyboard.press("ArrowRight")
    expect(page.get_by_text("Practice: this episode is not data")).to_be_visible()
    visitor.look(f"play-instructions-{name}", full_page=name == "phone")
    page.get_by_role("button", name="More").click()
    assert page.locator("#instructions").bounding_box()["height"] > 190
    page.get_by_role("button", name="Less").click()
    assert visitor.troubles == []


@pytest.fixture
def gated(tmp_path):
    """A server whose workers may be slow, and a pipe: an environment takes a byte for each step."""
    os.mkfifo(tmp_path / "gate")
    pipe = os.open(tmp_path / "gate", os.O_RDWR)
    settings = {"timeouts": WorkerTimeouts(response=600), "limits": Limits(until_idle=600)}
    with Served(tmp_path / "recordings", **settings) as served:
        yield served, pipe
        os.write(pipe, bytes(1000))
    os.close(pipe)


def test_page_warns_of_an_environment_that_runs_too_slowly(gated, visit, tmp_path):
    served, pipe = gated
    study = served.study(drawn(mode="async", fps=20, gate=str(tmp_path / "gate")))
    visitor = visit(served)
    page = visitor.page
    # The page measures with this clock, and the environment steps when it is told to.
    page.clock.install()
    visitor.open(f"/play/{study['id']}")
    page.locator(".play[data-state=ready]").wait_for()
    page.clock.pause_at(page.evaluate("Date.now()") + 60_000)
    page.get_by_role("button", name="Start").click()
    page.locator(".play[data-state=running]").wait_for()
    page.clock.run_for(1000)
    hint, step = page.locator(".is-slow"), 0
    for steps_per_second, rate in ((5, "5 of 20 steps/s"), (14, ""), (13, "13 of 20 steps/s")):
        for _ in range(4):
            os.write(pipe, bytes(steps_per_second))
            step += steps_per_second
            page.locator(f"canvas[data-step='{step}']").wait_for()
            page.clock.run_for(1000)
        if rate:
            expect(hint).to_contain_text(f"This runs at {rate}.")
        else:
            expect(hint).to_have_count(0)
        page.clock.run_for(500)  # A measurement takes 4 s, and the next one begins 0.5 s later.
    page.get_by_role("button", name="Use draft quality").click()
    os.write(pipe, bytes(1))  # The worker changes the quality after a step.
    expect(hint).to_have_count(0)


@pytest.mark.parametrize(("name", "viewport"), [("desk", DESK), ("phone", PHONE)])
def test_downloads_leave_out_practice_and_have_all_formats(served, visit, name, viewport):
    study = served.study(drawn(), practice=1)
    visitor = visit(served, viewport=viewport)
    page = visitor.open(f"/play/{study['id']}")
    for _ in range(2):
        page.locator(".play[data-state=ready]").wait_for()
        page.keyboard.press("Enter")
        page.locator(".play[data-state=running]").wait_for()
        page.keyboard.press("ArrowRight")
        page.locator("canvas[data-step='1']").wait_for()
        page.get_by_role("button", name="End", exact=True).click()
        page.get_by_role("dialog").get_by_role("button", name="Keep as complete").click()
    page.locator(".play[data-state=ready]").wait_for()
    visitor.open("/episodes")
    expect(page.get_by_role("row").filter(has_text="Practice")).to_have_count(1)
    for box in page.locator("tbody input[type=checkbox]").all():
        box.check()
    page.get_by_role("button", name="Download…").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_role("heading")).to_have_text("Download 1 episode")
    dialog.get_by_label("Include 1 practice episode").check()
    expect(dialog.get_by_role("heading")).to_have_text("Download 2 episodes")
    formats = dialog.get_by_label("Format", exact=True)
    assert formats.locator("option").count() == len(FORMATS)
    formats.select_option("zarr")
    expect(dialog.get_by_label("Options of the format")).to_be_visible()
    visitor.look(f"download-formats-{name}", full_page=False)
    dialog.get_by_label("Include 1 practice episode").uncheck()
    dialog.get_by_role("button", name="Prepare download").click()
    page.get_by_role("link", name="Download the file of walk").wait_for(timeout=60_000)
    assert visitor.troubles == []
