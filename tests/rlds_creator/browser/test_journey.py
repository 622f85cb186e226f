"""The journey of a new user: from `rlds create` to a dataset of the played episodes."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import types
import zipfile

import gymnasium
import numpy as np
import pytest
from creator_server import call
from playwright.sync_api import expect

import envlogger
import rlds
from rlds_creator.frames import Frame

pytestmark = pytest.mark.slow

NUM_EPISODES, NUM_STEPS, SEED = 4, 150, 7
KEYS = ("ArrowLeft", "ArrowRight")  # In the order of their actions.


@contextlib.contextmanager
def serve(*arguments, cwd):
    """Runs a command that serves pages; yields its address, and ends it with Ctrl-C."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("RLDS_")}
    process = subprocess.Popen(
        [sys.executable, "-m", "rlds_tools", *arguments, "--no-open", "--port", "0"],
        cwd=cwd,
        env={**environment, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    output_lines = []
    try:
        while "Ctrl-C" not in (line := process.stdout.readline()):
            output_lines.append(line)
            assert line, "".join(output_lines)
        yield types.SimpleNamespace(address=line.split()[0].rstrip("/"), output_lines=output_lines)
    finally:
        process.send_signal(signal.SIGINT)
        output = process.communicate(timeout=600)[0]
    assert (process.returncode, output) == (0, "")


class Hands:
    """A person at the keyboard, who sees each picture as it comes.

    Attributes:
      frames: The pictures of the current episode.
    """

    def __init__(self, page):
        self.page, self.frames, self._socket = page, [], None
        page.on("websocket", self._on_socket)

    def _on_socket(self, socket):
        self._socket = socket
        socket.on("framereceived", self._on_message)

    def _on_message(self, message):
        if isinstance(message, bytes):
            frame = Frame.decode(message)
            if frame.is_first:
                self.frames.clear()
            self.frames.append(frame)

    def begin(self, key):
        """Begins an episode with a key; without keys, no step is taken before the first press."""
        self.until("ready")
        self.page.keyboard.press(key)
        self.until("running")

    def until(self, state):
        """Waits until the page is in a state."""
        self.page.locator(f".play[data-state={state}]").wait_for()

    def press(self, key):
        """Presses a key, and waits for the next picture."""
        before = len(self.frames)
        self.page.keyboard.press(key)
        self.wait(before + 1)

    def wait(self, count):
        """Waits until the episode has `count` pictures."""
        while len(self.frames) < count:
            with self._socket.expect_event("framereceived"):
                pass

    def judge(self, answer):
        """Gives the verdict on an episode."""
        self.page.get_by_role("dialog").get_by_role("button", name=answer, exact=True).click()
        self.until("ready")


class Twin:
    """A copy of the environment of the player.

    Attributes:
      steps: Observation, action that led there, reward, and whether it is the last step.
    """

    def __init__(self, seed):
        self.env = gymnasium.make("CartPole-v1", max_episode_steps=NUM_STEPS)
        self.steps = [(self.env.reset(seed=seed)[0], None, None, False)]

    def step(self, action):
        observation, reward, is_terminal, is_truncated, _ = self.env.step(action)
        assert not is_terminal  # The rule is good enough.
        self.steps.append((observation, action, reward, is_truncated))

    def choose_action(self):
        """Returns the action that pushes the cart to where the pole falls."""
        return int(self.steps[-1][0] @ [0.1, 0.3, 1.0, 0.6] > 0)


def play_cart_pole(hands):
    """Plays the episodes of CartPole, and returns the expected steps and presses."""
    meanings = [json.dumps(meaning) for meaning in ("push left", "push right")]
    twins, presses = [], []
    for episode in range(NUM_EPISODES):
        twin, pressed = Twin(SEED + episode), []
        hands.begin(KEYS[0])
        while not hands.frames[-1].is_last:
            pressed.append(KEYS[twin.choose_action()])
            hands.press(pressed[-1])
            # If the machine is slow, a key may be held for long enough to be repeated.
            for frame in hands.frames[len(twin.steps) :]:
                assert frame.step == len(twin.steps)
                twin.step(meanings.index(frame.action))
        hands.until("ended")
        assert len(hands.frames) == len(twin.steps) == NUM_STEPS + 1
        assert hands.frames[-1].total_reward == NUM_STEPS
        hands.judge("Keep as complete")
        twins.append(twin)
        presses.append(pressed)
    return twins, presses


def create_study(address):
    """Creates the study; returns its identifier."""
    environment = {
        "name": "Cart Pole",
        "family": "gymnasium",
        "options": {"id": "CartPole-v1"},
        "max_episode_steps": NUM_STEPS,
        "seed": SEED,
    }
    study = {"name": "Balance", "state": "enabled", "environments": [environment]}
    study["labels"] = [{"name": "steady", "key": "KeyS"}]
    status, stored = call(address, "POST", "/api/studies", study)
    assert status == 200
    return stored["id"]


def add_tags(page):
    """Tags a step and a range of the first episode of the table, from its replay."""
    page.get_by_role("link", name="Episodes").click()
    page.get_by_label("Study", exact=True).select_option("Balance")
    expect(page.locator("tbody tr")).to_have_count(NUM_EPISODES)
    page.get_by_role("row").last.get_by_role("link").first.click()
    replay = page.locator(".replay")
    expect(page.get_by_role("button", name="steady")).to_be_visible()

    def go(step):
        page.get_by_label("Go to step").fill(str(step))
        page.keyboard.press("Enter")
        expect(replay).to_have_attribute("data-step", str(step))

    go(10)
    page.keyboard.press("s")
    expect(page.get_by_role("button", name="step 10", exact=True)).to_be_visible()
    go(20)
    for key in ("i", *["ArrowRight"] * 9, "o", "s"):  # The keys do not wait for the page.
        page.keyboard.press(key)
    expect(page.get_by_role("button", name="steps 20\N{EN DASH}29", exact=True)).to_be_visible()


def download(page, study, format, name, folder, *, has_internal):
    """Downloads the episodes of a study as a format; returns the folder of the data."""
    page.goto(f"{page.url.partition('/replay')[0].partition('/downloads')[0]}/episodes?{study}")
    page.get_by_role("checkbox", name="Select all rows of this page").click()
    page.get_by_role("button", name="Download…").click()
    page.get_by_label("Format", exact=True).select_option(format)
    page.get_by_label("Name").fill(name)
    page.get_by_role("checkbox", name="Include internal data of the tool").set_checked(has_internal)
    page.get_by_role("button", name="Prepare download").click()
    link = page.get_by_role("link", name=f"Download the file of {name}")
    link.wait_for(timeout=60_000)
    with page.expect_download() as waiting:
        link.click()
    waiting.value.save_as(folder / f"{name}.zip")
    with zipfile.ZipFile(folder / f"{name}.zip") as archive:
        archive.extractall(folder)
    return folder / name / name


def check_log(path, twins, presses):
    """Checks that the log has the steps of the environments and the pressed keys."""
    tagged_steps = {10, *range(20, 30)}
    with envlogger.Reader(path) as reader:
        metadata = reader.episode_metadata()
        assert [one["seed"] for one in metadata] == [SEED + n for n in range(NUM_EPISODES)]
        assert [one["state"] for one in metadata] == ["completed"] * NUM_EPISODES
        for episode_index, (episode, twin) in enumerate(zip(reader.episodes, twins, strict=True)):
            pressed = []
            for index, (step, expected) in enumerate(zip(episode, twin.steps, strict=True)):
                observation, action, reward, is_last = expected
                timestep, custom = step.timestep, step.custom_data
                assert timestep.observation.dtype == observation.dtype
                assert timestep.observation.tobytes() == observation.tobytes()
                assert (step.action, timestep.reward) == (action, reward)
                assert (timestep.first(), timestep.last()) == (index == 0, is_last)
                assert timestep.discount == (None if index == 0 else 1.0)
                held = {} if action is None else {KEYS[action]: 1.0}
                assert json.loads(custom["keys"]) == held
                assert custom["tag:steady"] == (episode_index == 0 and index in tagged_steps)
                assert custom["image"].startswith((b"\xff\xd8", b"\x89PNG", b"RIFF"))
                events = json.loads(custom["inputs"])
                pressed += [name for _, name, value, _ in events if value and name in KEYS]
            assert pressed == presses[episode_index]


def check_dataset(path, twins):
    """Checks that the dataset has the same steps in the alignment of RLDS."""
    episodes = rlds.sources.open(path)
    assert len(episodes) == NUM_EPISODES
    for episode_index, (episode, twin) in enumerate(zip(episodes, twins, strict=True)):
        observations, actions, rewards, _ = zip(*twin.steps, strict=True)
        steps = episode.steps
        np.testing.assert_array_equal(steps["observation"], np.stack(observations), strict=True)
        assert steps["action"][:-1].tolist() == list(actions[1:])
        assert steps["reward"][:-1].tolist() == list(rewards[1:])
        assert steps["is_last"].tolist() == [False] * NUM_STEPS + [True]
        assert not steps["is_terminal"].any()
        steady_steps = np.flatnonzero(steps["tag:steady"])
        assert steady_steps.tolist() == ([] if episode_index else [10, *range(20, 30)])
        assert "image" not in steps


def test_downloads_have_the_steps_that_a_new_user_played(visit, tmp_path):
    with serve("create", "recordings", cwd=tmp_path) as served:
        assert served.output_lines == ["3 studies, 0 episodes\n"]
        visitor = visit(served, accept_downloads=True)
        page = visitor.page
        study = create_study(served.address)
        hands = Hands(page)
        page.goto(served.address)
        page.get_by_role("link", name="Play Balance").click()
        twins, presses = play_cart_pole(hands)

        # A game at its own pace, and one that waits for keys.
        page.goto(served.address)
        page.get_by_role("link", name="Play Breakout").click()
        hands.begin("Space")
        page.keyboard.down("ArrowRight")
        hands.wait(12)
        page.keyboard.up("ArrowRight")
        page.keyboard.press("Enter")
        hands.judge("Keep as incomplete")
        page.goto(served.address)
        page.get_by_role("link", name="Play MiniGrid").click()
        hands.begin("ArrowUp")
        for key in ("ArrowLeft", "ArrowUp", "ArrowRight", "ArrowUp"):
            hands.press(key)
        page.keyboard.press("Enter")
        hands.judge("Keep as complete")

        add_tags(page)
        query = f"study={study}&sort=started"
        log = download(page, query, "EnvLogger log", "log", tmp_path, has_internal=True)
        dataset = download(page, query, "TFDS dataset", "dataset", tmp_path, has_internal=False)
        dataset = dataset / "1.0.0"
        assert visitor.troubles == []
    check_log(log, twins, presses)
    check_dataset(dataset, twins)
