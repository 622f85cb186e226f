"""Plays in a browser: keys, pads, touches, pauses, lost networks, and their recordings."""

import base64
import io
import json
import re

import numpy as np
import pytest
from creator_server import drawn, poll
from drawn_family import read_drawn
from PIL import Image

import envlogger

pytestmark = pytest.mark.slow

_LABELS = [{"name": "grasp", "key": "KeyG"}, {"name": "slip", "key": "KeyS"}]
# Milliseconds in which a page ignores keys that were meant for the game, and a margin.
_QUIET = 700


class Game:
    """The page of a player, as the player uses it.

    Attributes:
      page: The page.
      sent: The events of all inputs that it sent, in order.
      state: The last state that it heard of.
    """

    def __init__(self, page):
        self.page, self.sent, self.state = page, [], None

    @classmethod
    def open(cls, visitor, study):
        game = cls(visitor.page)
        game.page.on("websocket", game._listen)
        visitor.open(f"/play/{study['id']}")
        game.await_state("ready")
        game.page.wait_for_selector(".stage canvas[data-step='0']")
        return game

    def _listen(self, socket):
        socket.on("framesent", self._note)
        socket.on("framereceived", lambda data: isinstance(data, str) and self._note(data))

    def _note(self, text):
        message = json.loads(text)
        if message["op"] == "input":
            self.sent += message["events"]
        elif message["op"] == "state":
            self.state = message

    def await_state(self, state, connection="open"):
        selector = f".play[data-state={state}][data-connection={connection}]"
        self.page.wait_for_selector(selector, timeout=20_000)

    def await_pause(self):
        """Waits for a pause and the last picture before it, which may come after the message."""
        self.await_state("paused")
        step = self.state["episode"]["num_steps"] - 1
        self.await_step(step)
        return step

    @property
    def step(self):
        return int(self.page.get_attribute(".stage canvas", "data-step"))

    def await_step(self, step):
        self.page.wait_for_function(
            "step => Number(document.querySelector('.stage canvas').dataset.step) >= step",
            arg=step,
        )

    @property
    def cover_title(self):
        return self.page.inner_text(".cover-title")

    def start(self, state="ready"):
        # A key that the environment does not use.
        self.await_state(state)
        self.page.keyboard.press("KeyQ")
        self.await_state("running")

    def tap(self, key):
        step = self.step
        self.page.keyboard.press(key)
        self.await_step(step + 1)

    def mash(self):
        """Sends keys that are meant for the game just after its end."""
        self.page.evaluate(
            """() => new MutationObserver((_, observer) => {
                if (!document.querySelector(".verdict")) return;
                observer.disconnect();
                for (const code of ["Enter", "Backspace", "KeyK"])
                    dispatchEvent(new KeyboardEvent("keydown", { code, cancelable: true }));
                window.hasMashed = true;
            }).observe(document.body, { childList: true, subtree: true })"""
        )

    def judge(self, key, state="ready"):
        self.page.wait_for_selector(".verdict")
        self.page.wait_for_timeout(_QUIET)
        self.page.keyboard.press(key)
        self.await_state(state)


def episodes_of(served, study):
    """Returns the episodes by number, as soon as the store knows that they are over."""
    address = f"/api/episodes?study={study['id']}&sort=started"
    rows = poll(
        lambda: served.good("GET", address)["episodes"],
        lambda rows: not {"playing", "ended"} & {row["state"] for row in rows},
    )
    return {row["number"]: row for row in rows}


def read_episode(served, episode):
    """Returns the steps and metadata of an episode; checks that pictures show their steps."""
    directory = served.creator.recordings._data.episode(episode["id"])
    with envlogger.Reader(directory) as reader:
        assert len(reader.episodes) == 1
        steps, metadata = list(reader.episodes[0]), reader.episode_metadata()[0]
    for index, step in enumerate(steps):
        picture = np.asarray(Image.open(io.BytesIO(step.custom_data["image"])).convert("RGB"))
        assert int(step.timestep.observation["step"]) == index
        drawn_step, keys = read_drawn(picture)
        assert drawn_step == index
        held = json.loads(step.custom_data["keys"])
        # After a reset, and with unused keys, the environment draws earlier keys.
        if index and "KeyQ" not in held:
            assert set(keys) == {name for name in held if name.startswith(("Arrow", "Space"))}
    return steps, metadata


def keys_of(step):
    return set(json.loads(step.custom_data["keys"]))


def events_of(steps):
    return [event for step in steps for event in json.loads(step.custom_data["inputs"])]


def test_game_at_its_own_pace_survives_blur_reload_and_lost_network(served, visit):
    study = served.study(drawn(mode="async", fps=10.0), labels=_LABELS, instructions="Walk.")
    visitor = visit(served)
    game = Game.open(visitor, study)
    page, keyboard = game.page, game.page.keyboard
    visitor.look("play-ready", full_page=False)
    game.start()

    # A tap shorter than a step is in the next step.
    game.await_step(2)
    keyboard.press("ArrowUp")
    game.await_step(game.step + 3)
    # A held key acts until it is released.
    keyboard.down("ArrowRight")
    page.wait_for_selector(".keymap .key.is-held[data-input=ArrowRight]")
    game.await_step(game.step + 5)
    visitor.look("play-running", full_page=False)
    keyboard.up("ArrowRight")
    # The player changes the window with a key down, and releases it there.
    game.await_step(game.step + 2)
    keyboard.down("ArrowLeft")
    game.await_step(game.step + 3)
    page.evaluate("dispatchEvent(new Event('blur'))")
    after_blur = game.await_pause()
    assert "another window" in game.cover_title
    assert page.query_selector(".key.is-held") is None
    page.evaluate("addEventListener('keyup', event => event.stopImmediatePropagation(), true)")
    keyboard.up("ArrowLeft")

    # Escape pauses the game.
    game.start("paused")
    game.await_step(game.step + 3)
    keyboard.press("Escape")
    step = game.await_pause()
    page.wait_for_timeout(500)
    assert game.step == step
    visitor.look("play-paused", full_page=False)

    # A reloaded page shows the same step.
    page.reload()
    game.await_state("paused")
    page.wait_for_selector(f".stage canvas[data-step='{step}']")
    game.start("paused")
    game.await_step(step + 3)
    # A reload while the game runs pauses it.
    keyboard.down("ArrowDown")
    game.await_step(game.step + 2)
    page.reload()
    game.await_state("paused")
    keyboard.up("ArrowDown")
    assert game.cover_title.startswith("Paused")

    # The network is lost with a key down, and comes back.
    game.start("paused")
    keyboard.down("Space")
    game.await_step(game.step + 2)
    page.context.set_offline(True)
    game.await_state("running", "reconnecting")
    assert "lost" in game.cover_title
    visitor.look("play-reconnecting", full_page=False)
    page.wait_for_timeout(1500)
    keyboard.up("Space")
    page.context.set_offline(False)
    after_network = game.await_pause()
    game.start("paused")
    game.await_step(after_network + 3)

    keyboard.press("End")
    page.wait_for_selector(".verdict")
    page.wait_for_timeout(_QUIET)
    keyboard.press("Equal")
    page.wait_for_selector(".verdict input[value=true]:checked", state="attached")
    visitor.look("play-verdict", full_page=False)
    keyboard.press("Enter")
    game.await_state("ready")
    page.click(".toast >> text=Watch")  # The link disappears after a while.

    (row,) = episodes_of(served, study).values()
    assert (row["state"], row["success"], row["reason"]) == ("completed", True, "user")
    steps, metadata = read_episode(served, row)
    assert row["num_steps"] == len(steps)
    actions = {"ArrowUp": 3, "ArrowRight": 2, "ArrowLeft": 1, "ArrowDown": 4, "Space": 5}
    for step in steps[1:]:
        used = keys_of(step) & set(actions)  # Two, if the machine was too busy for a step each.
        assert step.action in ({actions[key] for key in used} or {0})
    steps_by_key = {
        key: [index for index, step in enumerate(steps) if key in keys_of(step)] for key in actions
    }
    for key, indices in steps_by_key.items():
        assert indices, key
        assert indices == list(range(indices[0], indices[-1] + 1)), key
    assert len(steps_by_key["ArrowRight"]) >= 3
    assert max(steps_by_key["ArrowLeft"]) <= after_blur
    assert max(steps_by_key["Space"]) <= after_network
    # All that the page sent while it ran is recorded unchanged.
    sent = [
        [event["t"], event["name"], event["value"], event["key"]]
        for event in game.sent
        if event["value"]
    ]
    recorded = [event for event in events_of(steps) if event[2]]
    assert [event for event in recorded if event[1] in actions] == [
        event for event in sent if event[1] in actions
    ]
    gaps = json.loads(metadata["gaps"])
    assert len(gaps) == 4
    assert [step for step, _ in gaps] == sorted(step for step, _ in gaps)

    # The replay page shows it.
    page.wait_for_url(f"{served.address}/replay/{row['id']}")
    page.wait_for_selector(".picture canvas[data-step='0']")
    check_replay(served, visitor, row, steps)
    # The browser itself reports a lost connection, and a conflict of notes.
    assert [
        trouble for trouble in visitor.troubles if not re.search("ERR_INTERNET|409", trouble)
    ] == []


def check_replay(served, visitor, row, steps):
    page, keyboard = visitor.page, visitor.page.keyboard
    last = len(steps) - 1

    def tags():
        labels = served.good("GET", f"/api/episodes/{row['id']}/view/labels")["labels"]
        return [(tag["layer"], tag["first"], tag["last"]) for tag in labels if tag["last"]]

    # Step by step, each picture shows its step.
    for _ in range(3):
        keyboard.press("ArrowRight")
    page.wait_for_selector(".picture canvas[data-step='3']")
    data_url = page.evaluate("document.querySelector('.picture canvas').toDataURL()")
    picture = Image.open(io.BytesIO(base64.b64decode(data_url.partition(",")[2])))
    assert read_drawn(np.asarray(picture.convert("RGB")))[0] == 3
    page.wait_for_url(re.compile(r"\?t=3$"))

    # A label with its key; undo; a range.
    page.wait_for_selector(".label-button")
    grasp, slip = (f".tag-list li:has-text('{name}')" for name in ("grasp", "slip"))
    keyboard.press("KeyG")
    page.wait_for_selector(grasp)
    assert tags() == [("grasp", 3, 3)]
    keyboard.press("Control+KeyZ")
    page.wait_for_selector(grasp, state="detached")
    assert tags() == []
    keyboard.press("KeyI")
    keyboard.press("Shift+ArrowRight")
    keyboard.press("KeyO")
    keyboard.press("KeyS")
    page.wait_for_selector(slip)
    assert tags() == [("slip", 3, 13)]
    visitor.look("replay-tagged")
    page.click(f"{slip} .tag-remove")
    page.wait_for_selector(slip, state="detached")
    page.click(".tag-last >> text=Undo")
    assert page.locator(".toast").count() == 0
    page.wait_for_selector(slip)
    assert len(tags()) == 1

    # It plays to its end, and a link leads to a step.
    keyboard.press("End")
    page.wait_for_selector(f".picture canvas[data-step='{last}']")
    keyboard.press("Home")
    page.select_option(".speed select", "16")
    page.locator("h1").first.focus()
    keyboard.press("Space")
    page.wait_for_selector(f".picture canvas[data-step='{last}']")
    page.goto(f"{served.address}/replay/{row['id']}?t=7")
    page.wait_for_selector(".picture canvas[data-step='7']")
    page.click(".chart .u-over", position={"x": 1, "y": 20})
    page.wait_for_selector(".picture canvas[data-step='0']")

    # Another person writes notes in the meantime: nothing is lost.
    page.fill(".notes textarea", "mine")
    notes = {"notes": "theirs", "version": row["version"]}
    served.good("PUT", f"/api/episodes/{row['id']}/notes", notes)
    page.click(".notes >> text=Save")
    page.wait_for_selector(".conflict >> text=theirs")
    page.click("text=Keep both")
    page.wait_for_selector(".conflict", state="detached")
    episode = served.good("GET", f"/api/episodes/{row['id']}")
    assert episode["notes"] == "theirs\n\nmine"


def test_a_game_that_waits_steps_once_for_each_press(served, visit):
    study = served.study(drawn(num_steps=40, size=480), seed=None)
    visitor = visit(served)
    game = Game.open(visitor, study)
    page, keyboard = game.page, game.page.keyboard
    game.start()
    assert game.step == 0  # The key that starts the game causes no step.
    keyboard.down("ArrowRight")
    game.await_step(1)
    for _ in range(5):
        keyboard.down("ArrowRight")  # The keyboard repeats it.
    keyboard.down("ArrowUp")
    game.await_step(2)
    keyboard.up("ArrowRight")
    keyboard.up("ArrowUp")
    page.wait_for_timeout(300)
    assert game.step == 2
    # Cameras and qualities show the step again.
    keyboard.press("KeyC")
    page.wait_for_selector(".camera[aria-pressed=true] >> text=far")
    assert game.step == 2

    # Only a long press of Backspace discards the episode.
    keyboard.press("Backspace")
    page.wait_for_timeout(900)
    assert game.step == 2
    keyboard.down("Backspace")
    game.await_state("ready")
    keyboard.up("Backspace")
    page.wait_for_selector(".stage canvas[data-step='0']")

    game.start()
    for key in ("ArrowUp", "Space"):
        game.tap(key)
    keyboard.press("Minus")
    game.judge("KeyK")

    # The environment ends the episode while keys are pressed: they give no verdict.
    game.start()
    game.mash()
    for _ in range(40):
        game.tap("ArrowLeft")
    page.wait_for_function("() => window.hasMashed")
    game.judge("Enter")

    rows = episodes_of(served, study)
    assert [(row["state"], row["reason"], row["success"]) for row in rows.values()] == [
        ("rejected", "", None),
        ("cancelled", "user", False),
        ("completed", "terminated", None),
    ]
    actions = [[step.action for step in read_episode(served, row)[0]][1:] for row in rows.values()]
    assert actions == [[2, 3], [3, 5], [1] * 40]


def test_game_runs_in_one_tab_at_a_time(served, visit):
    study = served.study(drawn())
    visitor = visit(served)
    game = Game.open(visitor, study)
    game.start()
    game.tap("ArrowUp")
    second_page = visitor.context.new_page()
    second_page.goto(game.page.url)
    second_page.wait_for_selector(".stage canvas[data-step='1']")
    game.page.wait_for_selector("text=You are playing in another tab")
    # The game waits for a key in the tab that takes it over, as it does after a reload.
    second_page.wait_for_selector(".play[data-state='paused']")
    game.page.click("text=Play here")
    second_page.wait_for_selector("text=You are playing in another tab")
    game.await_state("paused")
    game.page.keyboard.press("KeyQ")
    game.await_state("running")
    game.tap("ArrowUp")
    assert game.step == 2


_PAD = """
window.pad = null;
navigator.getGamepads = () => [window.pad];
window.setPad = (axes, buttons) => {
  window.pad = axes && {
    id: "Test pad (Vendor: 1234 Product: 5678)", connected: true, mapping: "standard", axes,
    buttons: buttons.map((value) => ({ value, pressed: value > 0.5 })) };
};
"""


def test_actions_of_pads_and_pointers_are_recorded(served, visit):
    study = served.study(drawn("box", mode="async", fps=20.0))
    visitor = visit(served)
    page = visitor.page
    page.add_init_script(_PAD)
    game = Game.open(visitor, study)
    page.evaluate("setPad([0.03, -0.05], [0, 0])")
    page.wait_for_selector(".devices >> text=Test pad")
    page.evaluate("setPad([0.03, -0.05], [1, 0])")
    game.await_state("running")
    page.evaluate("setPad([0.03, -0.05], [0, 0])")
    game.await_step(3)
    still_step = game.step
    page.evaluate("setPad([0.5, -1], [0, 0])")
    game.await_step(still_step + 6)
    moving_step = game.step
    page.evaluate("setPad(null)")  # The pad is disconnected with its stick held.
    game.await_step(moving_step + 6)
    canvas = page.locator(".stage canvas").bounding_box()
    page.mouse.move(canvas["x"] + canvas["width"] / 2, canvas["y"] + canvas["height"] / 2)
    page.mouse.down()
    game.await_step(game.step + 4)
    page.mouse.up()
    page.keyboard.press("End")
    game.judge("Enter")

    (row,) = episodes_of(served, study).values()
    steps, metadata = read_episode(served, row)
    assert "Test pad" in metadata["rlds_creator:controller"]
    actions = np.array([step.action for step in steps[1:]])
    assert not actions[: still_step - 1].any()
    rows = np.flatnonzero(actions.any(axis=1))
    assert rows.size >= 5
    assert np.all(np.diff(rows) == 1)
    np.testing.assert_allclose(actions[rows[1:-1]], [[0.5, -1]] * (rows.size - 2), atol=0.026)
    pressed = [json.loads(step.custom_data["keys"]) for step in steps]
    pressed = [keys for keys in pressed if "Pointer0" in keys]
    assert len(pressed) >= 3
    assert all(abs(keys["PointerX"] - 0.5) < 0.01 > abs(keys["PointerY"] - 0.5) for keys in pressed)


def test_phone_has_touch_buttons(served, visit):
    study = served.study(drawn())
    phone = {"width": 390, "height": 844}
    visitor = visit(served, viewport=phone, has_touch=True, is_mobile=True, device_scale_factor=2)
    game = Game.open(visitor, study)
    page = game.page
    assert page.inner_text(".cover-title") == "Tap to start"
    page.tap(".stage")
    game.await_state("running")
    for index, button in enumerate((".ArrowRight", ".ArrowUp", ".touches >> text=jump"), 1):
        page.tap(f".touchpad {button}")
        game.await_step(index)
    visitor.look("play-phone", full_page=False)
    page.tap(".commands >> text=It worked")
    page.wait_for_selector(".verdict")
    page.wait_for_timeout(_QUIET)
    visitor.look("play-verdict-phone", full_page=False)
    page.tap(".verdict .primary")
    game.await_state("ready")
    (row,) = episodes_of(served, study).values()
    assert [step.action for step in read_episode(served, row)[0]][1:] == [2, 3, 5]
    page.goto(f"{served.address}/replay/{row['id']}")
    page.wait_for_selector(".picture canvas[data-step='0']")
    visitor.look("replay-phone")


def test_two_episodes_are_compared_side_by_side(served, visit):
    study = served.study(drawn())
    visitor = visit(served)
    game = Game.open(visitor, study)
    for keys in (["ArrowRight"] * 6, ["ArrowUp"] * 3):
        game.start()
        for key in keys:
            game.tap(key)
        game.page.keyboard.press("End")
        game.judge("Enter")
    long, short = (row["id"] for row in episodes_of(served, study).values())
    page = game.page
    page.goto(f"{served.address}/compare?left=/replay/{long}")
    page.fill("[aria-label='Address of the right episode']", f"{served.address}/replay/{short}?t=2")
    page.click("text=Show")
    page.wait_for_selector(".pair")
    side_steps = lambda: [  # noqa: E731
        int(canvas.get_attribute("data-step")) for canvas in page.query_selector_all(".side canvas")
    ]
    page.keyboard.press("End")
    page.wait_for_selector(".side canvas[data-step='6']")
    assert side_steps() == [6, 3]
    assert page.inner_text(".side.is-over .step-line").endswith("ended")
    page.click(".segments input[value=end]")
    page.keyboard.press("Home")
    page.locator("h1").first.focus()
    for _ in range(4):
        page.keyboard.press("ArrowRight")
    page.wait_for_selector(".side:nth-child(1) canvas[data-step='4']")
    page.wait_for_selector(".side:nth-child(2) canvas[data-step='1']")
    assert side_steps() == [4, 1]
    visitor.look("compare", full_page=False)
