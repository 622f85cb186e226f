"""`rlds view` in Chromium: datasets, their episodes and steps."""

import re

import dm_env
import numpy as np
import pytest
from creator_server import serving
from dm_env import specs
from playwright.sync_api import expect

import envlogger
import rlds
from rlds_creator.server.view_app import view_app
from rlds_creator.viewing import Catalog
from tests.rlds_creator.viewing.test_catalog import write_episodes
from tests.support import raw_lerobot

pytestmark = pytest.mark.slow

_STEPS = 12
PHONE = {"width": 390, "height": 844}


class _CameraEnv(dm_env.Environment):
    """Environment with a colour camera, a depth camera and a vector."""

    def observation_spec(self):
        return {
            "rgb": specs.Array((32, 48, 3), np.uint8),
            "depth": specs.Array((24, 24), np.float32),
            "arm": specs.Array((7,), np.float32),
        }

    def action_spec(self):
        return specs.BoundedArray((2,), np.float32, -1, 1)

    def _observation(self):
        rgb = np.zeros((32, 48, 3), np.uint8)
        rgb[:, : 4 * self._step] = 255
        depth = np.full((24, 24), 1.0 + self._step, np.float32)
        depth[0, 0] = np.nan
        return {"rgb": rgb, "depth": depth, "arm": np.linspace(-1, 1, 7, dtype=np.float32)}

    def reset(self):
        self._step = 0
        return dm_env.restart(self._observation())

    def step(self, action):
        self._step += 1
        kind = dm_env.termination if self._step == _STEPS - 1 else dm_env.transition
        return kind(float(action.sum()), self._observation())


@pytest.fixture(scope="module")
def viewed(tmp_path_factory):
    """A server of two logs, with the `address` that visitors need."""
    folder = tmp_path_factory.mktemp("logs")
    for name in ("reach", "push"):
        with envlogger.EnvLogger(_CameraEnv(), data_directory=str(folder / name)) as env:
            for _ in range(3):
                timestep = env.reset()
                while not timestep.last():
                    timestep = env.step(np.array([0.5, -0.25], np.float32))
    with serving(view_app(Catalog([folder / "reach", folder / "push"]))) as server:
        yield server


@pytest.mark.parametrize("options", [{}, {"viewport": PHONE, "color_scheme": "dark"}])
def test_the_viewer_opens_datasets_and_episodes(viewed, visit, options):
    visitor = visit(viewed, **options)
    name = "view-phone" if options else "view"
    page = visitor.open("/")
    page.click("text=reach")
    page.wait_for_selector("text=Episode 2")
    assert page.locator("tbody tr").count() == 3
    visitor.look(f"{name}-dataset")
    page.click("text=Episode 1")
    page.wait_for_selector(".picture canvas[data-step='0']")
    # Both cameras are shown; one is hidden, and the other shows the step.
    assert page.locator(".picture").count() == 2
    page.click(".picture-choice >> text=depth")
    page.locator("h1").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Shift+ArrowLeft")
    for _ in range(6):
        page.keyboard.press("ArrowRight")
    page.wait_for_selector(".picture canvas[data-step='6']")
    white = page.evaluate(
        """() => {
            const canvas = document.querySelector(".picture canvas");
            const { data } = canvas.getContext("2d").getImageData(0, 16, 48, 1);
            return data.filter((value, index) => index % 4 === 0 && value > 127).length;
        }"""
    )
    assert white == 4 * 6
    assert page.inner_text(".value:has(.value-name:text-is('reward')) .value-plain") == "0.250"
    page.click("[aria-label='Curve of observation/arm']")
    page.wait_for_selector(".chart-part:has-text('observation/arm') .u-over")
    visitor.look(name)

    # It plays to its end, and keys open its neighbours.
    page.keyboard.press("Home")
    page.keyboard.press("Space")
    page.wait_for_selector(f".picture canvas[data-step='{_STEPS - 1}']")
    page.keyboard.press("KeyN")
    page.wait_for_url("**/train/2**")
    page.wait_for_selector(".picture canvas[data-step='0']")
    page.keyboard.press("KeyB")
    page.wait_for_url("**/train/1**")
    page.goto(f"{viewed.address}{page.url.removeprefix(viewed.address).split('?')[0]}?t=9999")
    page.wait_for_selector(f".picture canvas[data-step='{_STEPS - 1}']")
    assert visitor.troubles == []


def test_curves_are_read_hidden_and_scaled(viewed, visit):
    visitor = visit(viewed, viewport={"width": 1024, "height": 768})
    page = visitor.open("/")
    page.click("text=reach")
    page.click("text=Episode 1")
    page.wait_for_selector(".picture canvas[data-step='0']")
    page.goto(f"{page.url.split('?')[0]}?step=4")
    page.wait_for_selector(".picture canvas[data-step='4']")
    page.wait_for_url("**/train/1?t=4")
    page.click("[aria-label='Curve of observation/arm']")
    page.click("[aria-label='Curve of action']")
    plots = page.locator(".chart .u-over")
    expect(plots).to_have_count(3)
    assert min(plot.bounding_box()["height"] for plot in plots.all()) >= 140
    assert page.evaluate("document.documentElement.scrollHeight <= innerHeight")
    # The values are those of the step, or of the step under the mouse in any chart.
    rewards = page.locator(".chart-part", has_text="Rewards").locator(".legend-value")
    expect(rewards).to_have_text(["0.250", "1.25"])
    box = plots.nth(0).bounding_box()
    page.mouse.move(box["x"] + box["width"] * 9 / (_STEPS - 1), box["y"] + 20)
    expect(rewards).to_have_text(["0.250", "2.50"])
    actions = page.locator(".chart-part", has_text="action")
    expect(actions).to_contain_text("step 9")
    expect(actions.locator(".legend-value")).to_have_text(["0.500", "\u22120.250"])
    page.mouse.move(1, 1)
    expect(rewards).to_have_text(["0.250", "1.25"])
    arm = page.locator(".chart-part", has_text="observation/arm")
    # Without its largest curve, the other curves have the whole height.
    read_image = "(chart) => chart.querySelector('canvas').toDataURL()"
    before = arm.evaluate(read_image)
    entry = arm.locator(".legend button").nth(6)
    entry.click()
    expect(entry).to_have_attribute("aria-pressed", "false")
    assert arm.evaluate(read_image) != before
    entry.click()
    arm.get_by_role("button", name="Own scales").click()
    visitor.look("view-curves", full_page=False)
    assert visitor.troubles == []


def test_curves_and_values_have_the_names_of_elements(tmp_path, visit):
    gear = {"dtype": "uint8", "shape": [1], "names": ["gear"]}
    raw_lerobot.write_v3(tmp_path / "arm", features={**raw_lerobot.FEATURES, "mode": gear})
    rlds.sources.export(tmp_path / "arm", "robomimic", tmp_path / "arm.hdf5", allow_loss=True)
    with serving(view_app(Catalog([tmp_path / "arm", tmp_path / "arm.hdf5"]))) as server:
        for index in range(2):
            visitor = visit(server)
            page = visitor.open("/")
            page.locator(".dataset-card a").nth(index).click()
            page.click("text=Episode 1")
            for field, names in {"observation/state": raw_lerobot.JOINTS, "mode": ["gear"]}.items():
                page.click(f"[aria-label='Curve of {field}']")
                chart = page.locator(f".chart-part:has(h2:text-is('{field}'))")
                expect(chart.locator(".legend button")).to_contain_text(names)
            state = ".value:has(.value-name:text-is('observation/state')) .vector-name"
            expect(page.locator(state)).to_have_text(raw_lerobot.JOINTS)
            assert visitor.troubles == []


def test_the_viewer_filters_lists_and_steps_through_episodes(viewed, visit):
    visitor = visit(viewed)
    page = visitor.open("/")
    page.click("text=reach")
    page.get_by_label("Episodes where").fill("index <> 1")
    page.keyboard.press("Enter")
    page.wait_for_selector("tbody tr:nth-child(2):last-child")
    visitor.wait_until(
        "[...document.querySelectorAll('.thumbnail')].every((one) => one.naturalWidth > 0)"
    )
    visitor.look("view-filtered")
    page.click("text=Episode 0")
    page.wait_for_selector(".picture canvas[data-step='0']")
    links = page.locator(".episode-list a")
    assert [row.split("\n")[0] for row in links.all_inner_texts()] == ["Episode 0", "Episode 2"]
    assert page.locator(".step-line .chip").all_inner_texts() == ["first"]
    page.keyboard.press("End")
    page.wait_for_selector(".step-line .chip:has-text('terminal')")
    page.keyboard.press("KeyN")
    page.wait_for_url("**/train/2?**")
    page.wait_for_selector(".episode-list a[aria-current]:has-text('Episode 2')")

    # Everything fits on a screen, also curves; they zoom and move, and a click goes to a step.
    page.click("[aria-label='Curve of observation/arm']")
    page.locator(".chart .u-over").nth(1).wait_for()
    assert page.evaluate("document.documentElement.scrollHeight <= innerHeight")
    box = page.locator(".chart .u-over").first.bounding_box()
    middle = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.mouse.move(*middle)
    page.mouse.wheel(0, -400)
    page.mouse.click(box["x"] + 2, middle[1])
    visitor.wait_until("Number(document.querySelector('.replay').dataset.step) > 1")
    zoom_step = int(page.locator(".replay").get_attribute("data-step"))
    page.keyboard.down("Shift")
    page.mouse.move(*middle)
    page.mouse.down()
    page.mouse.move(middle[0] + box["width"], middle[1], steps=4)
    page.mouse.up()
    page.keyboard.up("Shift")
    page.mouse.click(box["x"] + 2, middle[1])
    visitor.wait_until(f"Number(document.querySelector('.replay').dataset.step) < {zoom_step}")
    page.mouse.dblclick(box["x"] + box["width"] - 2, middle[1])
    page.mouse.click(box["x"] + box["width"] - 2, middle[1])
    page.wait_for_selector(f".replay[data-step='{_STEPS - 1}']")

    # A pane keeps its chosen size when the page is reloaded.
    wide = page.locator(".episode-list").bounding_box()["width"]
    page.get_by_role("separator", name="Width of the list").press("ArrowRight")
    edge = page.get_by_role("separator", name="Height of the curves").bounding_box()
    high = page.locator(".charts").bounding_box()["height"]
    page.mouse.move(edge["x"] + 50, edge["y"] + 5)
    page.mouse.down()
    page.mouse.move(edge["x"] + 50, edge["y"] - 75, steps=4)
    page.mouse.up()
    page.reload()
    page.locator(".chart .u-over").nth(1).wait_for()
    assert page.locator(".episode-list").bounding_box()["width"] == wide + 24
    assert page.locator(".charts").bounding_box()["height"] == pytest.approx(high + 80, abs=1)
    visitor.look("view-workplace", full_page=False)

    pytest.importorskip("av")
    with page.expect_download() as download:
        page.keyboard.press("KeyV")
    assert download.value.suggested_filename == "reach_train_2.mp4"
    assert visitor.troubles == []
    page.get_by_label("Episodes where").fill("nothing")
    page.keyboard.press("Enter")
    page.wait_for_selector(".episode-list .error:has-text('nothing')")


@pytest.mark.parametrize("viewport", [{"width": 1024, "height": 768}, PHONE])
def test_the_table_shows_columns_and_labels_of_episodes(tmp_path, visit, viewport):
    write_episodes(tmp_path / "log")
    rlds.labels.open(tmp_path / "log").add("quality", 1, "bad", by="ann")
    with serving(view_app(Catalog([tmp_path / "log"]), by="ann")) as server:
        visitor = visit(server, viewport=viewport)
        page = visitor.open("/datasets")
        rows, name = page.locator("tbody tr"), f"view-table-{viewport['width']}"
        expect(rows.nth(2)).to_contain_text("2.0 s")
        heads = page.locator("thead th").all_text_contents()
        assert heads == ["Episode", "Steps", "Duration", "Return", "Success", "Task", "Labels"]
        expect(rows.nth(1).locator(".chip.good")).to_have_text("yes")
        expect(rows.nth(1).locator(".chip.bad")).to_have_text("quality: bad")
        expect(rows.nth(2).locator(".chip")).to_have_count(0)  # An unknown success has no chip.
        visitor.wait_until(
            "[...document.querySelectorAll('.filmstrip')].every((one) => one.naturalWidth > 200)"
        )
        visitor.look(name)

        titles = page.locator("tbody .film > span:first-child")
        if viewport != PHONE:
            page.get_by_role("button", name="Return", exact=True).click()
            expect(titles).to_have_text(["Episode 2", "Episode 1", "Episode 0"])
            page.get_by_role("button", name="Columns").click()
            page.get_by_placeholder("Search columns").fill("reward")
            page.get_by_label("reward max").check()
            visitor.look(f"{name}-columns", full_page=False)
            page.get_by_role("button", name="Done").click()
            expect(page.locator("thead th").last).to_have_text("Labels")
            expect(page.get_by_role("columnheader", name="reward max")).to_be_visible()
            page.get_by_text("Episode 1").click()
            page.wait_for_selector(".replay")
            page.keyboard.press("b")  # Its neighbours are those of the table.
            page.wait_for_url("**/train/2?sort=-return")
            page.go_back()
            page.go_back()
        # If a condition is invalid, the rows stay, and a message explains the error.
        page.get_by_role("button", name="Failure").click()
        expect(titles).to_have_text(["Episode 0"])
        visitor.look(f"{name}-filtered", full_page=False)
        page.get_by_label("Episodes where").fill("speed > 3")
        page.keyboard.press("Enter")
        expect(page.locator(".error")).to_contain_text("no column 'speed'")
        expect(titles).to_have_text(["Episode 0"])
        visitor.look(f"{name}-error", full_page=False)
        assert len(visitor.troubles) == 1
        assert "422" in visitor.troubles[0]
        page.get_by_role("button", name="Show all episodes").click()
        page.get_by_label("Go to episode").fill("2")
        page.keyboard.press("Enter")
        page.wait_for_url("**/train/2**")


def create_layer(page, name, kind, extent, choices=(), keys=()):
    """Creates a layer of labels in the page."""
    page.get_by_role("button", name="Layer", exact=True).click()
    page.get_by_label("Name", exact=True).fill(name)
    page.get_by_label(kind, exact=True).check(force=True)
    page.get_by_label(extent).check(force=True)
    if choices:
        page.get_by_label("Choices").fill(", ".join(choices))
    for choice, key in zip(choices, keys):
        page.get_by_label(f"Key of “{choice}”").press(key)


def _record(directory):
    """Records three episodes; returns their labels."""
    rng = np.random.default_rng(0)
    with envlogger.EnvLogger(_CameraEnv(), data_directory=str(directory)) as env:
        for _ in range(3):
            timestep = env.reset()
            while not timestep.last():
                timestep = env.step(rng.random(2).astype(np.float32))
    return rlds.labels.open(directory)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_episodes_are_labelled_by_keys(tmp_path, visit, scheme):
    labels = _record(tmp_path / "reach")
    with serving(view_app(Catalog([tmp_path / "reach"]), by="")) as server:
        visitor = visit(server, color_scheme=scheme)
        page = visitor.open("/")
        page.wait_for_url("**/train/0")  # The only dataset opens on data.
        page.click("text=Episode 1")
        page.wait_for_selector(".picture canvas[data-step='0']")
        create_layer(page, "Grip quality!", "choice", "Whole episode", ["good", "bad"], "gx")
        page.get_by_text("In files and conditions: grip_quality").wait_for()
        visitor.look(f"labels-layer-{scheme}", full_page=False)
        page.get_by_role("button", name="Create layer").click()
        page.get_by_role("group", name="Grip quality!").wait_for()
        for name, kind, extent, choices in (
            ("phase", "choice", "Steps and ranges", ["reach", "lift"]),
            ("slip", "flag", "Steps and ranges", ()),
            ("note", "text", "Steps and ranges", ()),
            ("score", "number", "Whole episode", ()),
        ):
            create_layer(page, name, kind, extent, choices)
            page.keyboard.press("Enter")
            expect(page.get_by_role("dialog")).to_have_count(0)
        page.get_by_role("button", name="Layer").click()
        page.get_by_role("textbox", name="Name").fill("grip, quality")
        page.get_by_text("The layer “grip_quality” already exists.").wait_for()
        expect(page.get_by_role("button", name="Create layer")).to_be_disabled()
        page.get_by_role("textbox", name="Name").fill("品質")
        page.get_by_role("button", name="Create layer").click()
        page.get_by_role("group", name="品質").wait_for()
        page.locator("h1").focus()
        page.keyboard.press("g")  # The page asks once for the name.
        page.get_by_role("textbox", name="Your name").fill("Ann")
        page.keyboard.press("Enter")
        page.get_by_role("button", name="Annotator: Ann").wait_for()
        expect(page.locator(".tag-list li")).to_have_count(1)
        page.locator("h1").focus()
        # The keys do not wait for the page.
        for key in ("i", *["ArrowRight"] * 3, "o", "1", "ArrowRight", "3", "Shift+Digit3"):
            page.keyboard.press(key)
        page.keyboard.press("4")
        page.keyboard.type("the cup tips, 3 times")
        page.keyboard.press("Enter")
        page.keyboard.press("5")
        page.keyboard.type("4.5x")
        page.keyboard.press("Enter")
        page.get_by_text("Expected a number.").wait_for()
        page.keyboard.press("Backspace")
        page.keyboard.press("Enter")
        expect(page.locator(".tag-list li")).to_have_count(5)
        assert page.locator(".step-tag").all_inner_texts() == [
            "note: the cup tips, 3 times",
            "not slip",
        ]
        rows = [(row.layer, row.value, row.begin, row.end) for row in labels.of_episode(1)]
        assert sorted(rows) == [
            ("grip_quality", "good", None, None),
            ("note", "the cup tips, 3 times", 4, 5),
            ("phase", "reach", 0, 4),
            ("score", 4.5, None, None),
            ("slip", False, 4, 5),
        ]
        assert {row.annotator for row in labels.of_episode(1)} == {"Ann"}
        # The range has its band; the transport names the last change, which can be undone.
        band = page.evaluate(
            """() => {
                const chart = document.querySelector(".chart canvas");
                const { width, height } = chart;
                const { data } = chart.getContext("2d").getImageData(0, 0, width, height);
                const colors = new Set();
                for (let i = 0; i < data.length; i += 4)
                    colors.add(data.slice(i, i + 3).join());
                const probe = document.querySelector(".tag-list li:nth-child(3) .dot");
                const color = getComputedStyle(probe).backgroundColor.match(/\\d+/g).join();
                return colors.has(color);
            }"""
        )
        assert band
        page.keyboard.press("x")
        page.wait_for_selector(".tag-last:has-text('Grip quality!: bad')")
        visitor.look(f"labels-{scheme}", full_page=False)
        page.keyboard.press("Control+z")
        page.wait_for_selector(".tag-last:has-text('Undone')")
        page.get_by_role("button", name="Remove phase: reach").click()
        page.locator(".tag-last").get_by_role("button", name="Undo").click()
        page.wait_for_selector(".tag-last:has-text('Undone: Removed')")
        assert len(labels.of_episode(1)) == 5
        assert [row.value for row in labels.history(1) if row.layer == "grip_quality"] == [
            *("good", "bad", "good")
        ]
        assert page.locator(".toast").count() == 0
        page.keyboard.press("Shift+Slash")
        page.get_by_role("dialog").get_by_text("Grip quality!: good").wait_for()
        visitor.look(f"labels-keys-{scheme}", full_page=False)
        page.keyboard.press("Escape")

        # Queues are conditions; N and B step through them. The browser keeps the name.
        page.get_by_label("Queue").select_option("Grip quality!: unlabelled")
        titles = page.locator(".episode-list li strong")
        expect(titles).to_have_text(["Episode 0", "Episode 2"])
        page.keyboard.press("n")
        page.wait_for_url("**/train/2?**")
        page.wait_for_selector(".episode-list a[aria-current]:has-text('Episode 2')")
        page.get_by_role("heading", name="reach, train 2").wait_for()
        page.get_by_role("group", name="Grip quality!").wait_for()
        page.keyboard.press("g")
        page.wait_for_selector(".tag-list li")
        labels.add("grip_quality", 2, "bad", by="bob")
        page.reload()
        expect(titles).to_have_text(["Episode 0"])
        page.get_by_label("Queue").select_option("Grip quality!: disagreement")
        expect(titles).to_have_text(["Episode 2"])
        # Labels of other people are shown, and cannot be removed.
        expect(page.locator(".tag-list li")).to_have_count(2)
        expect(page.locator(".tag-remove")).to_have_count(1)
        assert visitor.troubles == []


def test_assumed_rate_is_marked_and_can_be_set(viewed, visit):
    visitor = visit(viewed)
    page = visitor.open("/")
    page.click("text=reach")
    page.click("text=Episode 1")
    rate, time = page.get_by_label("Steps per second"), page.locator(".transport-time")
    expect(rate).to_have_value("15")
    expect(page.locator(".rate")).to_contain_text("steps/s assumed")
    expect(time).to_have_text("0:00.0 / 0:00.7")
    visitor.look("view-rate", full_page=False)
    with page.expect_download() as download:
        page.locator("h1").focus()
        page.keyboard.press("KeyV")
    assert download.value.suggested_filename.endswith(".mp4")
    page.get_by_text("the video has 15 steps/s").wait_for()
    rate.fill("-3")
    page.keyboard.press("Enter")
    expect(rate).to_have_value("15")
    rate.fill("2.5")
    page.keyboard.press("Enter")
    expect(page.locator(".rate")).to_contain_text("steps/s set by you")
    expect(time).to_have_text("0:00.0 / 0:04.4")
    with page.expect_request("**/video?**") as asked:
        page.locator("h1").focus()
        page.keyboard.press("KeyV")
    assert asked.value.url.endswith("&rate=2.5")
    # The browser keeps the rate of this dataset.
    page.reload()
    expect(time).to_have_text("0:00.0 / 0:04.4")
    page.keyboard.press("KeyN")
    page.wait_for_url("**/train/2**")
    expect(time).to_have_text("0:00.0 / 0:04.4")
    page.goto(f"{viewed.address}/")
    page.click("text=push")
    page.click("text=Episode 1")
    expect(time).to_have_text("0:00.0 / 0:00.7")
    assert visitor.troubles == []


def test_values_and_pictures_are_of_the_same_step_during_playback(tmp_path, visit):
    _record(tmp_path / "log")
    actions = rlds.sources.open(tmp_path / "log")[0].steps["action"]
    with serving(view_app(Catalog([tmp_path / "log"]))) as server:
        visitor = visit(server)
        page, held = visitor.page, []
        page.route("**/steps/4", lambda route: held.append(route))
        visitor.open("/")
        page.wait_for_selector(".picture canvas[data-step='0']")
        page.evaluate(
            """() => {
                window.seen = [];
                const value = (name) => [...document.querySelectorAll(".value")]
                    .find((one) => one.querySelector(".value-name").textContent === name);
                const look = () => {
                    const steps = [...document.querySelectorAll(".picture canvas")].map(
                        (one) => Number(one.dataset.step));
                    const shown = value("action")?.querySelectorAll(".vector-value") ?? [];
                    seen.push([Number(document.querySelector(".replay").dataset.step), steps,
                        [...shown].map((one) => Number(one.textContent))]);
                    requestAnimationFrame(look);
                };
                look();
            }"""
        )
        page.keyboard.press("Space")
        expect(page.get_by_text("Loading…")).to_be_visible()
        # It waits for the values of the next step.
        expect(page.locator(".replay")).to_have_attribute("data-step", "3")
        held[0].continue_()
        page.wait_for_selector(f".picture canvas[data-step='{_STEPS - 1}']")
        samples = page.evaluate("seen")
    assert {step for step, _, _ in samples} >= {0, 3, 4, _STEPS - 1}
    for step, pictures, values in samples:
        assert pictures == [step, step]
        if step < _STEPS - 1:
            assert values == pytest.approx(actions[step], abs=1e-2)


def test_keys_before_the_labels_load_apply_to_the_shown_step(tmp_path, visit):
    labels = _record(tmp_path / "reach")
    labels.declare(rlds.labels.Layer(name="slip", type="flag", keys=("KeyS",)))
    labels.declare(rlds.labels.Layer(name="note", type="text", keys=("KeyT",)))
    with serving(view_app(Catalog([tmp_path / "reach"]), by="ann")) as server:
        visitor = visit(server)
        page = visitor.open("/datasets")
        page.wait_for_selector("tbody tr")
        held, is_open = [], []

        def hold(route):
            if is_open or route.request.method != "GET":
                route.continue_()
            else:
                held.append(route)

        page.route("**/view/labels**", hold)
        page.click("text=Episode 0")
        page.wait_for_selector(".picture canvas[data-step='0']")
        for key in (*["ArrowRight"] * 3, "i", "ArrowRight", "ArrowRight", "o", "s"):
            page.keyboard.press(key)
        for key in ("ArrowRight", "s", "Home", "n"):
            page.keyboard.press(key)
        # All are for the episode in which they were pressed, even if another one is shown by then.
        page.wait_for_url("**/train/1**")
        page.wait_for_selector(".picture canvas[data-step='0']")
        page.keyboard.press("ArrowRight")
        page.keyboard.press("t")
        page.keyboard.press("End")
        assert not list(labels)
        is_open.append(True)
        for route in held:
            route.continue_()
        page.get_by_role("textbox", name="note").fill("here")
        page.keyboard.press("Enter")
        page.locator(".tag-list li").wait_for()
        visitor.wait_until("document.querySelector('.replay').dataset.step === '11'")
        expect(page.locator(".tag-list .tag-place")).to_have_text("step 1")
        page.keyboard.press("b")
        expect(page.locator(".tag-list .tag-place")).to_have_text(
            [re.compile("steps 3.5"), "step 6"]
        )
        rows = [(row.layer, row.value, row.begin, row.end) for row in labels.of_episode(0)]
        assert rows == [("slip", True, 3, 6), ("slip", True, 6, 7)]
        assert [(row.value, row.begin) for row in labels.of_episode(1)] == [("here", 1)]
        assert visitor.troubles == []
