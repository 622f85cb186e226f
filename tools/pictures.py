"""Makes the pictures of the README and the docs, docs/images/, from newly recorded data.

    python tools/pictures.py [NAME ...]     # view (.gif and .png), report, creator; default: all

Needs the extra `dev`, and Chromium. Takes a few minutes. The data and the shown steps are the same
each time; times of day, and the moves of the game in `creator.png`, vary.
"""

import contextlib
import io
import itertools
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium.envs.box2d.bipedal_walker import BipedalWalkerHeuristics
from gymnasium.spaces import Box, Dict
from PIL import Image
from playwright.sync_api import Locator, Page, sync_playwright

import envlogger
import rlds
import rlds.sources
import rlds_tools

IMAGES = Path(__file__).resolve().parents[1] / "docs" / "images"
RLDS = [sys.executable, "-m", "rlds_tools"]
FPS = 50
EPISODES = 16
STUMBLES = 0.3  # The share of the episodes in which the motors of the walker fail for a moment.

# The page is laid out for this size; pictures of it are scaled.
SIZE = (1280, 960)
SCALE = 0.75
COLORS = 250
NUM_DIVIDER_MOVES = 3  # Moves of the edge below the picture, to show two charts.

# Draws the pointer of the mouse, which screenshots lack.
POINTER = """() => {
  const pointer = document.createElement("div");
  Object.assign(pointer.style, {
    position: "fixed", left: "75%", top: "80%", zIndex: 9999, width: "22px", height: "22px",
    borderRadius: "50%", pointerEvents: "none", transform: "translate(-50%, -50%)",
    border: "3px solid #d9480f", background: "rgb(217 72 15 / 25%)",
  });
  document.body.append(pointer);
  addEventListener("mousemove", ({ clientX, clientY }) => {
    pointer.style.left = `${clientX}px`;
    pointer.style.top = `${clientY}px`;
  });
}"""


# --------------------------------------------------------------------------------------------------
# The data: a walker with a scripted controller, which stumbles now and then.


class Walker(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Bipedal Walker with camera images and named elements of the state."""

    ELEMENTS: ClassVar = {
        "velocity": [2, 3],
        "hull_angle": [0],
        "joint_angle": [4, 6, 9, 11],
        "foot_contact": [8, 13],
    }

    def __init__(self) -> None:
        super().__init__(
            gymnasium.make(
                "BipedalWalker-v3",
                render_mode="rgb_array",
                max_episode_steps=400,
            )
        )
        spaces: dict[str, gymnasium.Space[Any]] = {"camera": Box(0, 255, (400, 600, 3), np.uint8)}
        for name, indices in self.ELEMENTS.items():
            spaces[name] = Box(-np.inf, np.inf, (len(indices),), np.float32)
        self.observation_space = Dict(spaces)

    def _observation(self, state: np.ndarray) -> dict[str, Any]:
        self.state = state
        values = {name: state[it].astype(np.float32) for name, it in self.ELEMENTS.items()}
        return {"camera": self.env.render(), **values}

    def reset(self, **options: Any) -> tuple[Any, dict[str, Any]]:  # noqa: D102
        state, info = self.env.reset(**options)
        return self._observation(state), info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:  # noqa: D102
        state, reward, self.has_fallen, truncated, info = self.env.step(action)
        return self._observation(state), reward, self.has_fallen, truncated, info


def record_walks(folder: Path) -> Path:
    """Records a log, and converts it to a LeRobot dataset with video."""
    random = np.random.default_rng(0)
    walker = Walker()

    def metadata(timestep: Any, action: Any, env: Any) -> dict[str, Any] | None:
        return (
            {"task": "Walk to the right", "success": not walker.has_fallen}
            if timestep.last()
            else None
        )

    env = envlogger.GymnasiumLogger(
        walker,
        data_directory=str(folder / "log"),
        episode_fn=metadata,
        video={"camera": envlogger.Video(fps=FPS)},
    )
    with contextlib.closing(env):
        for episode in range(EPISODES):
            env.reset(seed=episode)
            script: Any = BipedalWalkerHeuristics()
            begin = int(random.integers(150, 300)) if random.random() < STUMBLES else 400
            for step in itertools.count():
                action = np.clip(
                    script.step_heuristic(walker.state) + random.normal(0, 0.02, 4), -1, 1
                )
                if begin <= step < begin + 30:
                    action[:] = 0
                _, _, terminated, truncated, _ = env.step(np.clip(action, -1, 1).astype(np.float32))
                if terminated or truncated:
                    break
    dataset = folder / "walker"
    rlds.sources.export(folder / "log", "lerobot", dataset, fps=FPS)
    labels = rlds.labels.open(dataset)
    labels.declare(
        rlds.labels.Layer(name="quality", type="choice", choices=("good", "bad"), whole=True)
    )
    return dataset


# --------------------------------------------------------------------------------------------------
# The browser.


@contextlib.contextmanager
def serving(*command: str | Path) -> Iterator[str]:
    """Runs a command of `rlds` that serves pages; yields the address of the first one."""
    server = subprocess.Popen(
        [*RLDS, *map(str, command), "--no-open"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    output = ""
    try:
        for line in server.stdout or ():
            output += line
            if address := re.search(r"http://\S+", line):
                yield address[0]
                return
        raise RuntimeError(f"rlds {command[0]} ended: {output}")
    finally:
        server.terminate()
        server.communicate()


@contextlib.contextmanager
def browsing(width: int, height: int, scale: float = 1) -> Iterator[Page]:
    """Opens a page in Chromium."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        size: Any = {"width": width, "height": height}
        page = browser.new_page(
            viewport=size, device_scale_factor=scale, reduced_motion="reduce", bypass_csp=True
        )
        page.set_default_timeout(120_000)
        yield page
        browser.close()


def save(page: Page, name: str) -> None:
    """Writes a screenshot of the page, with a palette of 256 colors."""
    picture = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
    picture.quantize(256, dither=Image.Dither.NONE).save(IMAGES / name, optimize=True)


class Film:
    """Frames of a page, each with its duration in milliseconds."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.frames: list[tuple[Image.Image, int]] = []

    def shoot(self, milliseconds: int) -> None:
        """Adds a screenshot of the page."""
        self.page.wait_for_load_state("networkidle")
        self.frames.append(
            (Image.open(io.BytesIO(self.page.screenshot())).convert("RGB"), milliseconds)
        )

    def point(self, target: Locator) -> None:
        """Moves the mouse to an element in a few frames."""
        box = target.bounding_box()
        assert box
        start = self.page.evaluate("window.mouse ?? [900, 700]")
        end = [box["x"] + min(box["width"] / 2, 60), box["y"] + box["height"] / 2]
        for fraction in (0.4, 0.8, 1.0):
            self.page.mouse.move(*(a + (b - a) * fraction for a, b in zip(start, end, strict=True)))
            self.shoot(90)
        self.page.evaluate("(end) => { window.mouse = end }", end)

    def click(self, target: Locator) -> None:
        """Moves the mouse to an element, and clicks."""
        self.point(target)
        target.click(
            position={"x": min((target.bounding_box() or {"width": 0})["width"] / 2, 60), "y": 10}
        )

    def save(self, path: Path) -> None:
        """Writes a GIF with one palette, so that only changes take space."""
        last, stays = self.frames[-1]
        frames = [*self.frames[:-1], (last, stays + 1500)]
        width, height = last.size
        samples = [frame for frame, _ in frames[:: max(len(frames) // 8, 1)]] + [last]
        sheet = Image.new("RGB", (width, height * len(samples)))
        for index, frame in enumerate(samples):
            sheet.paste(frame, (0, index * height))
        # The flat colors of the page are kept; the remaining colors get the nearest of the palette.
        color_counts: Any = sorted(sheet.getcolors(width * sheet.height) or (), reverse=True)
        flat = [channel for _, color in color_counts[: COLORS // 2] for channel in color]
        quantized = sheet.quantize(COLORS - COLORS // 2, Image.Quantize.MAXCOVERAGE)
        palette = Image.new("P", (1, 1))
        palette.putpalette(flat + (quantized.getpalette() or []))
        first, *further_frames = [
            frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame, _ in frames
        ]
        first.save(
            path,
            save_all=True,
            append_images=further_frames,
            duration=[milliseconds for _, milliseconds in frames],
            loop=0,
            optimize=True,  # Unchanged pixels are transparent.
            disposal=1,
        )


def wait_for_step(page: Page, step: int) -> None:
    """Waits until the picture of a step is drawn."""
    page.wait_for_selector(f".picture canvas[data-step='{step}']")


def go_to(page: Page, step: int) -> None:
    """Goes to a step, as a drag of the slider does."""
    page.locator(".scrubber").evaluate(
        "(slider, step) => { slider.value = step;"
        " slider.dispatchEvent(new Event('input', { bubbles: true })); }",
        step,
    )
    wait_for_step(page, step)


def play(film: Film, steps: range) -> None:
    """Films steps of an episode, in slow motion."""
    for step in steps:
        go_to(film.page, step)
        film.shoot(90)


# --------------------------------------------------------------------------------------------------
# The pictures.


def draw_view(folder: Path, dataset: Path) -> None:
    """Films a search for a failure, and its label."""
    walks = rlds.sources.open(dataset)
    failures = [index for index, walk in enumerate(walks) if not walk.metadata["success"]]
    with serving("view", dataset, "--by", "ann") as address, browsing(*SIZE, SCALE) as page:
        page.goto(address)
        wait_for_step(page, 0)
        page.click("[aria-label='Curve of observation/joint_angle']")
        divider = page.locator(".divider.is-flat").first
        for _ in range(NUM_DIVIDER_MOVES):
            divider.press("ArrowUp")
        divider.blur()
        page.evaluate(POINTER)
        film = Film(page)
        play(film, range(0, 120, 4))
        search_field = page.get_by_label("Episodes where")
        film.click(search_field)
        for text in ("not", " succ", "ess"):
            search_field.press_sequentially(text)
            film.shoot(160)
        film.click(page.get_by_role("button", name="Filter", exact=True))
        page.get_by_text(f"{len(failures)} episodes").wait_for()
        film.shoot(1000)
        film.click(page.get_by_role("link", name=re.compile(f"Episode {failures[0]}\\b")))
        wait_for_step(page, 0)
        end = int(page.locator(".scrubber").get_attribute("max") or 0)
        play(film, range(end - 80, end + 1, 4))
        bad = page.get_by_role("button", name="bad")
        film.click(bad)
        page.locator(".tag-name", has_text="quality: bad").wait_for()
        film.shoot(1500)
        film.save(IMAGES / "view.gif")
        save(page, "view.png")


def draw_report(folder: Path, dataset: Path) -> None:
    """Draws the beginning of a report."""
    file = folder / "report.html"
    rlds_tools.report(dataset, progress=False).save(file)
    with browsing(1200, 1080) as page:
        page.goto(file.as_uri())
        slider = page.locator("input[type=range]").first
        slider.evaluate(
            "(slider) => { slider.value = slider.max * 0.6;"
            " slider.dispatchEvent(new Event('input')); }"
        )
        page.wait_for_load_state("networkidle")
        save(page, "report.png")


def draw_creator(folder: Path, dataset: Path) -> None:
    """Draws a game with a player."""
    with (
        serving("create", folder / "recordings", "--port", "0") as address,
        browsing(1280, 800) as page,
    ):
        page.goto(address)
        page.get_by_role("link", name="Breakout").first.click()
        page.get_by_role("button", name=re.compile("^Play")).or_(
            page.get_by_role("link", name=re.compile("^Play"))
        ).click()
        page.locator(".play[data-state=ready]").wait_for()
        page.keyboard.press("Space")
        page.locator(".play[data-state=running]").wait_for()
        page.keyboard.down("ArrowRight")
        page.wait_for_function(
            "[...document.querySelectorAll('.play *')].some((one) =>"
            " !one.children.length && Number(one.textContent) >= 45)"
        )
        save(page, "creator.png")


PICTURES: dict[str, Callable[[Path, Path], None]] = {
    "view": draw_view,
    "report": draw_report,
    "creator": draw_creator,
}

if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        dataset = record_walks(Path(folder))
        for name in sys.argv[1:] or PICTURES:
            PICTURES[name](Path(folder), dataset)
