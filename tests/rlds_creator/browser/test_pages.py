"""Pages of studies, episodes, downloads and people in Chromium."""

import re
import time

import pytest
from creator_server import drawn
from playwright.sync_api import expect

from rlds_creator.model import EpisodeRecord, EpisodeState, Role

pytestmark = pytest.mark.slow

PHONE = {"width": 390, "height": 844}


def record_episodes(served, *lengths):
    """Plays and keeps an episode of each number of steps; returns their study with tags."""
    study = served.study(drawn(), labels=[{"name": "crash", "key": "KeyC"}, {"name": "jump"}])
    with served.player(served.play(study)) as player:
        for length in lengths:
            player.until("state", state="ready")
            player.until_step(0)
            player.walk(*["ArrowRight"] * length)
            player.say("control", do="end")
            player.until("state", state="ended")
            player.say("control", do="confirm", value="completed")
    return study


def add_rows(served, study, count, **changes):
    """Adds rows to the table, without steps."""
    person = served.creator.store.people()[0].id
    for index in range(count):
        fields = {
            "id": f"row-{index:03}",
            "study": study["id"],
            "environment": study["environments"][index % len(study["environments"])]["id"],
            "session": "visit",
            "person": person,
            "number": index,
            "state": EpisodeState.CANCELLED if index % 10 == 0 else EpisodeState.COMPLETED,
            "success": index % 2 == 0,
            "num_steps": index + 2,
            "total_reward": float(-index),
            "started": time.time() - 3600 - index,
            "seconds": 2.5,
        }
        served.creator.store.save_episode(EpisodeRecord(**{**fields, **changes}))


def test_study_is_created_tested_edited_enabled_and_deleted(served, visit):
    visitor = visit(served)
    page = visitor.open("/")
    expect(page.get_by_text("No study yet")).to_be_visible()
    visitor.look("studies-empty")
    page.get_by_role("link", name="New study").click()
    page.get_by_label("Name").fill("Walks")
    page.get_by_label("Instructions").fill("Go right.\nThen stop.")
    page.get_by_role("button", name="Add environment").first.click()
    page.get_by_role("button", name="Create study").click()
    expect(page.get_by_text("An environment needs a name.")).to_be_visible()
    visitor.look("study-wrong")

    # An invalid environment shows its problem without a click; a valid one its picture and keys.
    page.get_by_label("Family").select_option("drawn")
    first = page.locator("details.environment")
    first.get_by_label("Name").fill("Steps")
    first.get_by_label("Environment", exact=True).fill("nothing")
    page.get_by_role("button", name="Test").click()
    expect(page.get_by_text("drawn has no environment 'nothing' on this server")).to_be_visible()
    visitor.look("study-failed")
    first.get_by_label("Environment", exact=True).fill("discrete")
    page.get_by_label("Num steps").fill("9")
    page.get_by_role("button", name="Add key").click()
    page.get_by_label("Key", exact=True).press("f")
    page.get_by_label("Action").fill("1")
    page.get_by_role("button", name="Test").click()
    expect(page.get_by_alt_text("The first picture of Steps")).to_be_visible()
    picture = page.get_by_alt_text("The first picture of Steps")
    assert picture.evaluate("(image) => image.naturalWidth") > 0
    expect(page.locator(".test-result kbd", has_text="F")).to_be_visible()

    page.get_by_role("button", name="More for Steps").click()
    page.get_by_role("menuitem", name="Duplicate").click()
    second = page.locator("details.environment").nth(1)
    second.get_by_label("Name").fill("Slow steps")
    second.get_by_role("radio", name="On each key press").check()
    second.get_by_label("Cameras as video").fill('{"camera": "jpeg"}')
    page.get_by_role("button", name="Create study").click()
    expect(page.get_by_text("Expected h264, av1 or lossless for each field.")).to_be_visible()
    second.get_by_label("Cameras as video").fill('{"camera": "h264"}')
    page.get_by_label("Environment of an episode").select_option("round_robin")
    page.get_by_label("Episodes per person").fill("7")
    page.get_by_role("button", name="Add tag").click()
    page.get_by_label("Tag", exact=True).fill("crash")
    page.locator(".labels .key-field").press("c")
    visitor.look("study-new")
    page.get_by_role("button", name="Create study").click()
    expect(page.get_by_role("heading", level=1, name="Walks")).to_be_visible()

    (study,) = served.creator.store.studies()
    assert [one.name for one in study.environments] == ["Steps", "Slow steps"]
    assert study.environments[0].options == {"id": "discrete", "num_steps": 9}
    assert study.environments[0].keys == {"KeyF": 1}
    assert [one.video for one in study.environments] == [{}, {"camera": "h264"}]
    assert [one.mode.value for one in study.environments] == ["async", "sync"]
    assert (study.assignment.value, study.quota) == ("round_robin", 7)
    assert [(one.name, one.key) for one in study.labels] == [("crash", "KeyC")]
    assert study.instructions == "Go right.\nThen stop."

    page.get_by_role("button", name="Enable").click()
    expect(page.get_by_role("button", name="Disable")).to_be_visible()
    assert served.creator.store.study(study.id).state.value == "enabled"

    # An edit keeps the identifiers of environments, whose episodes hang on them.
    page.get_by_role("link", name="Edit").click()
    page.locator("details.environment summary").first.click()
    page.get_by_label("Longest episode").first.fill("50")
    page.get_by_role("button", name="Save changes").click()
    expect(page.get_by_text("at most 50 steps")).to_be_visible()
    edited = served.creator.store.study(study.id)
    assert [one.id for one in edited.environments] == [one.id for one in study.environments]
    assert edited.environments[0].max_episode_steps == 50
    assert edited.state.value == "enabled"

    add_rows(served, served.good("GET", f"/api/studies/{study.id}"), 3)
    page.reload()
    page.get_by_role("button", name="More").click()
    page.get_by_role("menuitem", name="Delete study").click()
    expect(page.get_by_role("button", name="Delete study")).to_be_disabled()
    visitor.look("study-delete", full_page=False)
    page.get_by_label("to confirm").fill("Walks")
    page.get_by_role("button", name="Delete study").click()
    expect(page.get_by_text("No study yet")).to_be_visible()
    assert served.creator.store.studies() == []
    assert visitor.troubles == []


def test_unsaved_changes_are_not_lost_by_accident(served, visit):
    study = served.study(drawn(), name="Walk")
    visitor = visit(served)
    page = visitor.open("/episodes")
    page.get_by_role("link", name="Studies").click()
    page.get_by_role("link", name="Walk", exact=True).click()
    page.get_by_role("link", name="Edit").click()
    page.get_by_label("Name").first.fill("Mine")
    for leave in (
        lambda: page.get_by_role("link", name="Episodes").click(),
        lambda: page.go_back(wait_until="commit"),
    ):
        leave()
        page.get_by_role("button", name="Stay").click()
        expect(page.get_by_label("Name").first).to_have_value("Mine")
        assert page.url.endswith(f"/studies/{study['id']}/edit")

    # Another person saves first.
    changed = served.good("PUT", f"/api/studies/{study['id']}", {**study, "name": "Theirs"})
    page.get_by_role("button", name="Save changes").click()
    expect(page.get_by_text("Somebody else has saved this study")).to_be_visible()
    page.get_by_role("button", name="Cancel").click()
    assert served.creator.store.study(study["id"]).name == "Theirs"
    page.get_by_role("button", name="Save changes").click()
    page.get_by_role("button", name="Save mine").click()
    expect(page.get_by_role("heading", level=1, name="Mine")).to_be_visible()
    saved = served.creator.store.study(study["id"])
    assert (saved.name, saved.version) == ("Mine", changed["version"] + 1)
    page.go_back(wait_until="commit")
    expect(page.get_by_role("heading", level=1, name="Mine")).to_be_visible()
    # The browser logs the refusal.
    assert [one for one in visitor.troubles if "409" not in one] == []


def test_episodes_are_filtered_sorted_selected_and_deleted(served, visit):
    study = served.study(drawn(), {**drawn("box"), "name": "Drawn box"}, name="Walk")
    add_rows(served, study, 120)
    empty_study = served.study(drawn(), name="Other")
    visitor = visit(served)
    page = visitor.open("/episodes")
    rows = page.locator("tbody tr")
    expect(page.get_by_text("120 episodes", exact=True)).to_be_visible()
    expect(rows).to_have_count(50)
    visitor.look("episodes", full_page=False)
    labels = page.locator(".filters .field > label").all()
    assert len({label.bounding_box()["y"] for label in labels}) == 1  # Also labels of dates.

    page.get_by_label("Study", exact=True).select_option("Walk")
    page.get_by_label("Environment", exact=True).select_option("Drawn box")
    expect(page.get_by_text("60 episodes match the filters")).to_be_visible()
    page.get_by_label("State", exact=True).select_option("completed")
    page.get_by_label("Success", exact=True).select_option("No")
    expect(page.get_by_text("60 episodes match the filters")).to_be_visible()
    page.get_by_role("button", name="Steps").click()
    expect(rows.first.get_by_role("cell").nth(5)).to_have_text("120")
    page.get_by_role("button", name="Steps").click()
    expect(rows.first.get_by_role("cell").nth(5)).to_have_text("2")
    page.get_by_role("button", name="Next page").click()
    expect(page.get_by_text(re.compile("51.60 of 60"))).to_be_visible()
    # The address has all filters: a link shows the same rows.
    second_visitor = visit(served)
    second_visitor.page.goto(page.url)
    expect(second_visitor.page.get_by_text(re.compile("51.60 of 60"))).to_be_visible()
    page.get_by_role("button", name="Clear filters").click()
    expect(page.get_by_text("120 episodes", exact=True)).to_be_visible()

    page.get_by_label("Study", exact=True).select_option(empty_study["id"])
    expect(page.get_by_text("No episode matches")).to_be_visible()
    page.get_by_role("button", name="Clear the filters").click()

    # Episodes stay selected on other pages; Shift selects a range.
    boxes = page.get_by_role("checkbox", name="Select the episode")
    boxes.nth(0).click()
    boxes.nth(3).click(modifiers=["Shift"])
    expect(page.get_by_text("4 selected")).to_be_visible()
    page.get_by_role("button", name="Next page").click()
    expect(page.get_by_text(re.compile("51.100 of 120"))).to_be_visible()
    boxes.nth(0).click()
    expect(page.get_by_text("5 selected")).to_be_visible()
    page.get_by_role("button", name="Delete…").first.click()
    page.get_by_role("button", name="Delete episodes").click()
    expect(page.get_by_text("115 episodes", exact=True)).to_be_visible()
    page.get_by_role("checkbox", name="Select all rows of this page").click()
    page.get_by_role("button", name="Select all 115").click()
    expect(page.get_by_text("115 selected")).to_be_visible()
    page.get_by_role("button", name="Delete…").first.click()
    page.get_by_role("button", name="Delete episodes").click()
    expect(page.get_by_text("No episode yet")).to_be_visible()
    assert served.creator.store.episodes()[1] == 0
    assert visitor.troubles == []


def test_episodes_of_two_environments_become_two_downloads(served, visit):
    study = served.study(drawn(), drawn("box"))
    add_rows(served, study, 4)
    page = visit(served).open("/episodes")
    page.get_by_role("checkbox", name="Select all rows of this page").click()
    page.get_by_role("button", name="Download…").click()
    page.get_by_role("button", name="Prepare download").click()
    for name in ("walk_drawn_box", "walk_drawn_discrete"):
        expect(page.get_by_role("heading", name=f"{name} Failed")).to_be_visible(timeout=60_000)
    store = served.creator.store
    exports = store.exports(store.people()[0].id)
    environments = [
        {store.episode(one).environment for one in export.request["episodes"]} for export in exports
    ]
    assert sorted(map(len, environments)) == [1, 1]


def test_verdicts_change_and_keys_step_through_the_filtered_list(served, visit):
    record_episodes(served, 2, 3, 4)
    visitor = visit(served)
    page = visitor.open("/episodes?sort=num_steps&state=completed")
    expect(page.locator("tbody td.number").first).to_have_text("2")
    page.get_by_role("link", name="Replay").first.click()
    verdict = page.get_by_role("group", name="verdict")
    expect(verdict.get_by_role("button", name="Completed")).to_have_attribute(
        "aria-pressed", "true"
    )
    visitor.look("replay-verdict", full_page=False)
    verdict.get_by_role("button", name="Rejected").click()
    expect(page.locator("h1 .chip")).to_have_text("Rejected")
    page.keyboard.press("2")
    page.keyboard.press("5")
    expect(page.locator("h1 .chip").last).to_have_text("it failed")
    expect(page.locator("h1 .chip").first).to_have_text("Cancelled")
    page.keyboard.press("Control+z")
    expect(page.locator("h1 .chip")).to_have_count(1)
    page.keyboard.press("5")
    expect(page.locator("h1 .chip").last).to_have_text("it failed")
    page.keyboard.press("Shift+Slash")
    page.get_by_role("dialog").get_by_text("verdict: Cancelled").wait_for()
    page.keyboard.press("Escape")
    # The list shows the verdict, and the labels name their annotators.
    listed_chip = page.locator(".episode-list a[aria-current] .chip")
    expect(listed_chip).to_have_text("Cancelled")
    shown_labels = page.locator(".tag-list li")
    expect(shown_labels).to_have_text([re.compile("success: no"), re.compile("verdict: Cancelled")])
    expect(page.get_by_text("Annotators disagree.")).to_have_count(0)
    page.keyboard.press("n")
    expect(page.locator(".transport-step")).to_contain_text("/ 3")
    page.keyboard.press("n")
    expect(page.locator(".transport-step")).to_contain_text("/ 4")
    (row,) = served.good("GET", "/api/episodes?state=cancelled")["episodes"]
    assert (row["num_steps"], row["success"]) == (3, False)
    page.goto(f"{served.address}/episodes")
    page.get_by_label("To do").select_option("Not reviewed")
    expect(page.locator("tbody tr")).to_have_count(2)
    visitor.look("episodes-to-do")
    store = served.creator.store
    (row,) = served.good("GET", "/api/episodes?state=cancelled")["episodes"]
    bob = store.add_person("bob", Role.ANNOTATOR).id
    store.add_label(row["id"], "verdict", "rejected", by=bob)
    page.get_by_label("To do").select_option("Verdicts differ")
    expect(page.locator("tbody tr")).to_have_count(1)
    page.get_by_role("link", name="Replay").click()
    expect(shown_labels).to_have_text(
        [
            re.compile("success: no"),
            re.compile("verdict: Rejectedbob, .*[0-9]whole"),
            re.compile("verdict: Cancelledyou, .*, overruledwhole"),
        ]
    )
    page.get_by_text("Annotators disagree. The last label counts.").wait_for()
    visitor.look("replay-verdicts-differ", full_page=False)
    page.get_by_role("group", name="verdict").get_by_role("button", name="Cancelled").click()
    expect(shown_labels.nth(2)).to_contain_text("bob")
    expect(listed_chip).to_have_text("Cancelled")
    assert visitor.troubles == []


def test_invited_people_see_only_the_pages_of_their_role(shared, visit):
    store = shared.creator.store
    owner = visit(shared)
    page = owner.open("/")
    expect(page.get_by_text("You need an invitation link")).to_be_visible()
    owner.look("welcome")
    _, token = store.invite(Role.OWNER, "", 1, time.time() + 60, "")
    owner.open(f"/enter#{token}")
    page.get_by_label("Your name").fill("Ada")
    owner.look("enter")
    page.get_by_role("button", name="Enter").click()
    expect(page.get_by_role("link", name="People")).to_be_visible()
    assert token not in page.url

    page.get_by_role("link", name="People").click()
    page.get_by_role("button", name="Invite…").click()
    page.get_by_label("For", exact=False).first.fill("Class")
    page.get_by_role("button", name="Create link").click()
    link = page.get_by_label("Invitation link").input_value()
    owner.look("invite", full_page=False)
    page.get_by_role("button", name="Done").click()
    expect(page.get_by_role("cell", name="Class", exact=True)).to_be_visible()

    player = visit(shared)
    player.open(f"/enter#{link.partition('#')[2]}")
    player.page.get_by_label("Your name").fill("<b>Bao</b>")
    player.page.get_by_role("button", name="Enter").click()
    expect(player.page.get_by_text("Nothing to play yet")).to_be_visible()
    expect(player.page.get_by_role("link", name="People")).to_have_count(0)
    expect(player.page.get_by_role("link", name="New study")).to_have_count(0)
    player.look("studies-participant")
    for path in ("/people", "/studies/new"):
        player.open(path)
        expect(player.page.get_by_role("heading", level=1)).to_contain_text("No access")
        player.look("not-allowed")

    # Markup in a name is shown as text.
    page.reload()
    row = page.get_by_role("row", name="<b>Bao</b>")
    expect(row).to_be_visible()
    row.get_by_label("Role of").select_option("annotator")
    expect(page.get_by_text("<b>Bao</b> is annotator now.")).to_be_visible()
    owner.look("people")
    player.open("/")
    expect(player.page.get_by_role("link", name="Downloads")).to_be_visible()
    row.get_by_role("button", name="Block").click()
    page.get_by_role("button", name="Block", exact=True).click()
    expect(row.get_by_text("Blocked")).to_be_visible()
    player.page.reload()
    expect(player.page.get_by_text("You need an invitation link")).to_be_visible()
    page.get_by_role("button", name="Ada").click()
    page.get_by_role("menuitem", name="Log out").click()
    expect(page.get_by_text("You need an invitation link")).to_be_visible()
    assert owner.troubles == []
    assert player.troubles == []


def test_failed_requests_show_a_message_and_can_be_repeated(served, visit):
    study = served.study(drawn(), name="Walk")
    add_rows(served, study, 2)
    visitor = visit(served)
    page = visitor.page
    answers = {"status": 503, "body": "<html>busy</html>"}
    page.route("**/api/episodes?*", lambda route: route.fulfill(**answers))
    visitor.open("/episodes")
    expect(page.get_by_text("The server is busy. Try again in a moment.")).to_be_visible()
    visitor.look("failed")
    page.unroute_all()
    page.get_by_role("button", name="Try again").click()
    expect(page.locator("tbody tr")).to_have_count(2)

    # Loaded rows stay, with a message.
    page.route("**/api/episodes?*", lambda route: route.abort())
    page.get_by_role("button", name="Reload").click()
    expect(page.get_by_text("The server does not answer.")).to_be_visible()
    expect(page.locator("tbody tr")).to_have_count(2)
    page.unroute_all()
    add_rows(served, study, 3)
    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    expect(page.locator("tbody tr")).to_have_count(3)
    expect(page.get_by_text("The server does not answer.")).to_have_count(0)

    # An updated server lacks the modules of the old pages.
    page.route("**/pages/downloads.js", lambda route: route.fulfill(status=404))
    page.get_by_role("link", name="Downloads").click()
    expect(page.get_by_text("The page did not load")).to_be_visible()
    page.unroute_all()
    page.get_by_role("button", name="Try again").click()
    expect(page.get_by_text("No downloads yet")).to_be_visible()
    # A study that was deleted meanwhile.
    visitor.open("/studies/gone")
    expect(page.get_by_role("heading", level=1, name="Not found")).to_be_visible()
    visitor.look("not-found")


def test_pages_are_usable_with_the_keyboard_alone(served, visit):
    study = served.study(drawn(), name="Walk")
    add_rows(served, study, 4)
    page = visit(served).open("/")
    keys = page.keyboard
    page.get_by_role("link", name="New study").wait_for()
    keys.press("Tab")
    expect(page.get_by_text("Skip to the content")).to_be_focused()
    keys.press("Enter")
    expect(page.get_by_role("main")).to_be_focused()
    keys.press("Tab")
    expect(page.get_by_role("link", name="New study")).to_be_focused()
    page.get_by_role("link", name="Episodes").press("Enter")
    page.get_by_role("checkbox", name="Select all rows").press("Space")
    expect(page.get_by_text("4 selected")).to_be_visible()

    # A dialog takes the focus, keeps it, and gives it back; Escape leaves it.
    button = page.get_by_role("button", name="Delete…").first
    button.press("Enter")
    expect(page.get_by_role("button", name="Cancel")).to_be_focused()
    for _ in range(4):
        keys.press("Tab")
        assert not page.evaluate("document.activeElement.closest('main')")
    keys.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    expect(button).to_be_focused()
    assert served.creator.store.episodes()[1] == 4

    theme = page.get_by_role("button", name="Theme")
    theme.press("Enter")
    expect(page.get_by_role("menuitem", name="System")).to_be_focused()
    keys.press("ArrowUp")
    expect(page.get_by_role("menuitem", name="Dark")).to_be_focused()
    keys.press("Escape")
    expect(theme).to_be_focused()
    expect(page.get_by_role("menuitem")).to_have_count(0)


@pytest.mark.parametrize(
    ("viewport", "scheme"),
    [(PHONE, "light"), (None, "dark")],
    ids=["phone-light", "desk-dark"],
)
def test_pages_fit_phones_and_dark_themes(served, visit, viewport, scheme):
    # Names may have any length and script.
    long_name = "".join(chr(ord("a") + index % 26) for index in range(200))
    served.study(drawn(), name="Walk")
    study = served.study(
        {**drawn(), "name": long_name},
        {**drawn("box"), "name": "<b>قصة</b> " * 15},
        name="W" * 200,
        description=long_name,
        instructions=long_name,
        labels=[{"name": long_name, "key": "KeyC", "description": long_name}],
    )
    add_rows(served, study, 60)
    person = served.creator.store.people()[0].id
    for name in (long_name, "fall", "קפיצה"):
        served.creator.store.add_label("row-000", name, by=person)
    sizes = {"viewport": viewport} if viewport else {}
    visitor = visit(served, color_scheme=scheme, **sizes)
    pages = {
        "studies": "/",
        "study": f"/studies/{study['id']}",
        "edit": f"/studies/{study['id']}/edit",
        "episodes": "/episodes",
        "downloads": "/downloads",
        "people": "/people",
        "missing": "/nowhere",
    }
    prefix = f"{'phone' if viewport else 'desk'}-{scheme}"
    for name, path in pages.items():
        page = visitor.open(path)
        page.get_by_role("heading", level=1).wait_for()
        page.wait_for_load_state("networkidle")
        if name == "edit":
            for summary in page.locator("details.environment summary").all():
                summary.click()
        visitor.look(f"{prefix}-{name}")
    page = visitor.open("/episodes")
    page.get_by_role("checkbox", name="Select the episode").first.click()
    if viewport:
        page.get_by_role("button", name="Filters").click()
    page.get_by_role("button", name="Theme").click()
    visitor.look(f"{prefix}-selected", full_page=False)
    background = "getComputedStyle(document.body).backgroundColor"
    before = page.evaluate(background)
    page.get_by_role("menuitem", name="Dark" if scheme == "light" else "Light").click()
    assert page.evaluate(background) != before
    page.reload()
    assert page.evaluate(background) != before
    assert visitor.troubles == []
