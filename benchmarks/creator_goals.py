"""What `rlds create` promises, and how each promise is measured; `bench_creator.py` runs this."""

import asyncio
import collections
import contextlib
import dataclasses
import importlib.util
import itertools
import json
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.parse
import zipfile
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import creator_steps
import dm_env
import numpy as np
import processes
from creator_players import KEYS, PATIENCE, Player, Proxy, Seen, Server, begin, drawn, players

import envlogger
from envlogger.converters import spec_codec
from rlds_creator.model import Episode, EpisodeState
from rlds_creator.server.directory import DataDirectory
from rlds_creator.store import Store
from rlds_creator.worker.recording import Recording

HERE = Path(__file__).resolve().parent
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
FPS = 30.0


@dataclasses.dataclass(frozen=True)
class Found:
    """What was measured, beside what is promised.

    Attributes:
      what: What it is, with its unit.
      found: What was measured.
      most: What it is at most, if it is as promised; None if nothing is promised.
      least: What it is at least.
      note: What else was seen.
    """

    what: str
    found: float
    most: float | None = None
    least: float | None = None
    note: str = ""

    @property
    def is_met(self) -> bool:
        """Whether it is as promised."""
        return (self.most is None or self.found <= self.most) and (
            self.least is None or self.found >= self.least
        )


@dataclasses.dataclass(frozen=True)
class Size:
    """How much is measured.

    Attributes:
      is_quick: Whether it is the run of about a minute.
      kills: How often something is killed.
      directory: Where the data is.
    """

    is_quick: bool
    kills: int
    directory: Path

    def of(self, full: float, quick: float) -> float:
        """The one or the other."""
        return quick if self.is_quick else full

    @contextlib.contextmanager
    def folder(self) -> Iterator[Path]:
        """A folder for a goal."""
        with tempfile.TemporaryDirectory(dir=self.directory) as folder:
            yield Path(folder)


Finds = Iterator[Found]


def percentile(values: Sequence[float], percent: float) -> float:
    """A percentile; NaN if there are no values."""
    return float(np.percentile(values, percent)) if len(values) else float("nan")


# --- G1: what a step costs beside the environment ------------------------------------------------


def steps(size: Size) -> Finds:
    """What a worker adds to a step: it makes a file of the picture, records, and hands over."""
    most_of = dict(zip(creator_steps.CASES, (0.5, 0.5, 0.8, 0.8)))
    for case, most in most_of.items():
        if case.startswith("CarRacing") and importlib.util.find_spec("Box2D") is None:
            continue
        command = [sys.executable, str(HERE / "creator_steps.py"), case]
        command.append(str(round(size.of(800, 300))))
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        found = {name: np.array(times)[20:] for name, times in json.loads(done.stdout).items()}
        three = found["encode"] + found["record"] + found["hand over"]
        medians = {name: statistics.median(times) for name, times in found.items()}
        note = ", ".join(f"{name} {medians[name]:.2f}" for name in medians)
        yield Found(f"{case}: median ms", statistics.median(three), most, note=note)
        slow = percentile(found["processor"], 99)
        note = f"processor time of the whole step: p99 {slow:.2f}"
        yield Found(f"{case}: p99 ms", percentile(three, 99), 3.0, note=note)


# --- G2: sixteen players -------------------------------------------------------------------------


def intervals(seen: Sequence[Seen]) -> list[float]:
    """The times between pictures of an episode, in seconds."""
    return [
        later.at - earlier.at
        for earlier, later in itertools.pairwise(seen)
        if not (earlier.frame.is_first or later.frame.is_first)  # Nobody plays at that time.
    ]


@dataclasses.dataclass
class Watched:
    """What was seen of players for a while.

    Attributes:
      seconds: How long.
      seen: What each of them saw in this time.
      cpu: The processor time of the server.
      cpu_of_workers: That of the processes of environments, all together.
    """

    seconds: float
    seen: list[list[Seen]]
    cpu: float
    cpu_of_workers: float = 0.0

    @property
    def fps(self) -> list[float]:
        """The pictures in a second, of each player."""
        times = [intervals(seen) for seen in self.seen]
        return [len(between) / sum(between) if between else 0.0 for between in times]

    @property
    def intervals(self) -> list[float]:
        """The times between pictures of all players, in milliseconds."""
        return [1000 * between for seen in self.seen for between in intervals(seen)]

    @property
    def ages(self) -> list[float]:
        """How old pictures were when they came, in milliseconds."""
        return [1000 * (one.at - one.frame.time) for seen in self.seen for one in seen]


async def watch(server: Server, group: Sequence[Player], seconds: float) -> Watched:
    """Watches players for a while."""
    starts = [len(player.seen) for player in group]
    workers = server.workers()

    def cpu() -> tuple[float, float]:
        return processes.cpu_time_of(server.pid), sum(map(processes.cpu_time_of, workers))

    begin, before = time.monotonic(), cpu()
    await asyncio.sleep(seconds)
    took, after = time.monotonic() - begin, cpu()
    seen = [player.seen[start:] for player, start in zip(group, starts)]
    return Watched(took, seen, after[0] - before[0], after[1] - before[1])


async def _sixteen(size: Size, folder: Path) -> AsyncIterator[Found]:
    count = round(size.of(16, 4))
    with Server(folder, is_shared=True) as server:
        study = server.study(
            name="Breakout",
            family="atari",
            options={"id": "ALE/Breakout-v5"},
            mode="async",
            fps=FPS,
        )
        async with players(server, study, server.people(count)) as group:
            await asyncio.sleep(2)
            found = await watch(server, group, size.of(20, 5))
            workers = [processes.memory_of(process) for process in server.workers()]
            of_server = processes.memory_of(server.pid)
    late = sorted(found.ages)
    yield Found(
        f"{count} players of Atari: p99 ms between pictures",
        percentile(found.intervals, 99),
        1.5 * 1000 / FPS,
        note=f"median {percentile(found.intervals, 50):.1f}, age of pictures: "
        f"p50 {percentile(late, 50):.1f}, p95 {percentile(late, 95):.1f} ms",
    )
    yield Found("pictures in a second, the slowest player", min(found.fps), least=0.98 * FPS)
    num_steps = sum(map(len, found.seen))
    note = f"{1000 * found.cpu / num_steps:.2f} ms for a picture"
    yield Found(
        "% of a core, the server", 100 * found.cpu / found.seconds, 30 * count / 16, note=note
    )
    note = f"{1000 * found.cpu_of_workers / num_steps:.2f} ms for a step, with that of the game"
    yield Found("% of a core, all workers", 100 * found.cpu_of_workers / found.seconds, note=note)
    yield Found("MB of a worker (PSS), the largest", max(workers), 60)
    yield Found("MB of the server (PSS)", of_server, 100)


def sixteen(size: Size) -> Finds:
    """Sixteen players of Atari, at 30 steps a second."""
    yield from _all(_sixteen, size)


def _all(goal: Callable[[Size, Path], AsyncIterator[Found]], size: Size) -> Finds:
    async def collected() -> list[Found]:
        with size.folder() as folder:
            return [found async for found in goal(size, folder)]

    yield from asyncio.run(collected())


# --- G3: from the key to the picture -------------------------------------------------------------

# The time of a key, until the frame of the browser after that in which its picture was drawn.
_CLOCK = """
window.latencies = [];
window.drawn = [];
let pressed = null;
addEventListener("keydown", (event) => { if (!event.repeat) pressed = event.timeStamp; }, true);
const draw = CanvasRenderingContext2D.prototype.drawImage;
CanvasRenderingContext2D.prototype.drawImage = function (...drawn) {
  draw.apply(this, drawn);
  if (pressed === null) return;
  const since = pressed;
  pressed = null;
  window.drawn.push(performance.now() - since);
  requestAnimationFrame(() => window.latencies.push(performance.now() - since));
};
"""


def keys(size: Size) -> Finds:
    """From a key to its picture, in Chromium."""
    if CHROMIUM is None or importlib.util.find_spec("playwright") is None:
        raise NotImplementedError("there is no Chromium, or no Playwright")
    from playwright.sync_api import sync_playwright

    with size.folder() as folder, Server(folder) as server, sync_playwright() as playwright:
        # As large as CartPole and drawn as it is; its episodes do not end at once.
        study = server.study(
            name="MountainCar", family="gymnasium", options={"id": "MountainCar-v0"}, mode="sync"
        )
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page()
        page.add_init_script(_CLOCK)
        page.goto(f"{server.address}/play/{study}")
        # Not by `wait_for_function`: the page does not allow what it does.
        deadline = time.monotonic() + PATIENCE
        while page.evaluate("document.querySelector('canvas')?.width") != 600:
            if time.monotonic() > deadline:
                raise RuntimeError("the page shows no picture")
            page.wait_for_timeout(100)
        page.wait_for_timeout(1000)
        for number in range(round(size.of(190, 60))):
            key = ("ArrowLeft", "ArrowRight")[number % 2]
            page.keyboard.down(key)
            page.wait_for_timeout(20)
            page.keyboard.up(key)
            page.wait_for_timeout(20)
        page.wait_for_timeout(500)
        found, drawn_after = page.evaluate("[window.latencies, window.drawn]")
        browser.close()
    if len(found) < 20:
        raise RuntimeError(f"only {len(found)} keys led to a picture")
    note = f"{len(found)} keys; drawn after {percentile(drawn_after, 50):.1f} ms"
    yield Found("a key to its picture: p50 ms", percentile(found, 50), 15, note=note)
    yield Found("a key to its picture: p95 ms", percentile(found, 95), 30)


# --- G4: kills -----------------------------------------------------------------------------------


@dataclasses.dataclass
class Toll:
    """What kills have cost.

    Attributes:
      kills: How many there were, of each kind.
      shown: Steps that were shown.
      finished: Episodes that the server has said are completed.
      lost_steps: Those that were shown and are not recorded, or are recorded otherwise.
      lost_episodes: Those that were completed and are not, or have another number of steps.
      differences: Where the database and the files do not agree.
      empty: Logs without a step, which the database does not know.
    """

    kills: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    shown: int = 0
    finished: int = 0
    lost_steps: int = 0
    lost_episodes: int = 0
    differences: int = 0
    empty: set[str] = dataclasses.field(default_factory=set)


async def _lane(folder: Path, seed: int, count: int, toll: Toll) -> None:
    """Kills something, again and again, while somebody plays short episodes."""
    chance = random.Random(seed)
    server = Server(folder)
    await asyncio.to_thread(server.start)
    known: set[str] = set()
    finished: dict[str, int] = {}
    study = server.study(**drawn(fps=60, size=96, num_steps=chance.choice([20, 40])))
    try:
        for _ in range(count):
            play = await asyncio.to_thread(begin, server, study)
            async with Player(server, play, keeps=True) as player:
                await player.until(lambda player=player: player.seen)
                player.do(player.fidget(seed))
                await player.resume()
                await asyncio.sleep(chance.uniform(0.02, 1.5))
                what = chance.choice(["server", "worker", "both"])
                workers = server.workers()
                if what != "worker":
                    server.kill()
                if what != "server":
                    for process in workers:
                        with contextlib.suppress(ProcessLookupError):
                            os.killpg(process, signal.SIGKILL)
                await asyncio.wait_for(player.is_over.wait(), PATIENCE)
            toll.kills[what] += 1
            if what != "worker":
                await asyncio.to_thread(server.start)
            finished |= player.completed()
            toll.shown += await asyncio.to_thread(_check, server, player, known, toll)
        rows = await asyncio.to_thread(_rows, server)
        toll.finished += len(finished)
        for identifier, num_steps in finished.items():
            row = rows.get(identifier, {})
            kept = (row.get("state"), row.get("num_steps"))
            toll.lost_episodes += kept != ("completed", num_steps)
    finally:
        server.stop()


def _rows(server: Server) -> dict[str, dict[str, Any]]:
    rows: dict[str, dict[str, Any]] = {}
    while True:
        path = f"/api/episodes?limit=1000&sort=started&offset={len(rows)}"
        found = server.ask("GET", path)["episodes"]
        rows |= {row["id"]: row for row in found}
        if len(found) < 1000:
            return rows


def _check(server: Server, player: Player, known: set[str], toll: Toll) -> int:
    """Compares logs with what was shown, and with the database; returns how much was shown."""
    rows = _rows(server)
    directories = {one.name for one in (server.directory / "episodes").iterdir()}
    recorded: dict[float, tuple[int, bytes]] = {}
    for identifier in directories - known:
        known.add(identifier)
        with envlogger.Reader(server.directory / "episodes" / identifier) as reader:
            num_steps = len(reader.steps)
            for number, step in enumerate(reader.steps):
                recorded[step.custom_data["time"]] = number, step.custom_data["image"]
                toll.differences += int(step.timestep.observation["step"]) != number
            toll.differences += len(reader.episodes) > 1
        if not num_steps and identifier not in rows:  # Nothing of it was shown.
            toll.empty.add(identifier)
            continue
        annotations = server.directory / "episodes" / identifier / "annotations.json"
        said = json.loads(annotations.read_bytes())
        row = rows.get(identifier, {})
        is_over = row.get("state") not in (None, "playing", "ended")
        toll.differences += not is_over
        toll.differences += row.get("num_steps") != num_steps or said["state"] != row.get("state")
    toll.differences += len((directories ^ set(rows)) - toll.empty)
    shown = [
        one.frame
        for one, after in zip(player.seen, [*player.seen[1:], None])
        # The picture of the reset is recorded with the first step.
        if one.frame.step or (after and after.frame.step)
    ]
    for frame in shown:
        toll.lost_steps += recorded.get(frame.time) != (frame.step, frame.picture)
    return len(shown)


def kills(size: Size) -> Finds:
    """Whatever is killed, what was shown is recorded, and what was finished stays so."""
    toll = Toll()
    lanes = 1 if size.is_quick else 2  # Each with a server of its own.

    async def both(folder: Path) -> None:
        counts = [size.kills // lanes + (lane < size.kills % lanes) for lane in range(lanes)]
        works = [_lane(folder / str(n), n, count, toll) for n, count in enumerate(counts)]
        await asyncio.gather(*works)

    with size.folder() as folder:
        asyncio.run(both(folder))
    note = ", ".join(f"{what}: {count}" for what, count in sorted(toll.kills.items()))
    yield Found("kills", toll.kills.total(), least=size.kills, note=note)
    yield Found("shown steps that are lost", toll.lost_steps, 0, note=f"of {toll.shown}")
    yield Found(
        "finished episodes that are lost", toll.lost_episodes, 0, note=f"of {toll.finished}"
    )
    note = f"{len(toll.empty)} logs without a step were left"
    yield Found("differences between database and files", toll.differences, 0, note=note)


# --- G5: a page that was away --------------------------------------------------------------------


async def _away(size: Size, folder: Path) -> AsyncIterator[Found]:
    seconds = size.of(30, 4)
    with Server(folder) as server:
        study = server.study(**drawn(fps=FPS))
        async with Proxy(server.port) as proxy:
            play = await asyncio.to_thread(begin, server, study)
            wrong, shown = 0, []
            cuts = ("reload", f"{seconds:.0f} s without network")
            for number, cut in enumerate((*cuts, "")):
                again = await asyncio.to_thread(begin, server, study)
                wrong += again != play
                async with Player(server, play, port=proxy.port) as player:
                    await player.until(lambda player=player: player.seen)
                    before = shown[-1].frame.step if shown else 0
                    first = player.seen[0].frame.step
                    # What was made while nobody saw it is recorded, but not played again.
                    wrong += not before <= first <= before + FPS * 3
                    await player.resume()
                    target = first + 40
                    await player.until(lambda p=player, t=target: p.seen[-1].frame.step >= t)
                    if number == 1:
                        proxy.is_cut = True
                        await asyncio.sleep(seconds)
                    elif not cut:
                        await player.say("control", do="end")
                        await player.until_state("ended")
                        await player.say("control", do="confirm", value="completed")
                        await player.until(player.completed)
                        ((identifier, num_steps),) = player.completed().items()
                    shown += [one for one in player.seen if one.frame.step or not number]
                proxy.is_cut = False
        with envlogger.Reader(folder / "episodes" / identifier) as reader:
            (episode,) = reader.episodes
            numbers = [int(step.timestep.observation["step"]) for step in episode]
            times = {step.custom_data["time"]: n for n, step in enumerate(episode)}
            gaps = json.loads(reader.episode_metadata()[0]["gaps"])
    missing = sum(times.get(one.frame.time) != one.frame.step for one in shown)
    order = [one.frame.step for one in shown]
    wrong += sum(later < earlier for earlier, later in itertools.pairwise(order))
    away = [gap[1] for gap in gaps]
    note = f"{order[-1]} steps"
    yield Found("times that it did not continue where it was", wrong, 0, note=note)
    faults = missing + (numbers != list(range(len(numbers)))) + (len(numbers) != num_steps)
    yield Found("steps that are missing, or there twice", faults, 0, note=f"of {len(numbers)}")
    yield Found("gaps in the metadata", len(gaps), least=2, note=f"{away} s")


def away(size: Size) -> Finds:
    """A page that is loaded anew, or without a network, goes on at the same step."""
    yield from _all(_away, size)


# --- G6: a slow network --------------------------------------------------------------------------


async def _slow(size: Size, folder: Path) -> AsyncIterator[Found]:
    rate, seconds = 50_000, size.of(15, 5)
    with Server(folder, is_shared=True) as server:
        # Pictures of CartPole would be small enough for it.
        study = server.study(**drawn(fps=FPS, size=1200))
        cookies = server.people(3)
        async with (
            players(server, study, cookies[:1]) as group,
            Proxy(server.port, rate) as proxy,
        ):
            await asyncio.sleep(1)
            before = await watch(server, group, seconds)
            memory = processes.memory_of(server.pid, "Private_Dirty")
            play = await asyncio.to_thread(begin, server, study, cookies[1])
            async with Player(server, play, cookies[1], port=proxy.port) as slow:
                await slow.until(lambda: slow.seen)
                await slow.resume()
                await asyncio.sleep(2)
                during = await watch(server, [*group, slow], seconds)
                grown = processes.memory_of(server.pid, "Private_Dirty") - memory
            await asyncio.to_thread(server.ask, "DELETE", f"/api/plays/{play}", cookie=cookies[1])
            play = await asyncio.to_thread(begin, server, study, cookies[2])
            async with Player(server, play, cookies[2], acks=False) as silent:
                await silent.until(lambda: silent.seen)
                await silent.resume()
                resumed = time.monotonic()
                await silent.until_state("paused")
                paused = time.monotonic() - resumed
                why = silent.state["why"]
    slow_seen = during.seen[1]
    picture = statistics.median(one.size for one in slow_seen)
    # Two pictures are under way, and then their acks: that is a round trip.
    trip = 1000 * 2 * picture / rate
    ages = [1000 * (one.at - one.frame.time) for one in slow_seen]
    made = slow_seen[-1].frame.number - slow_seen[0].frame.number + 1
    yield Found(
        "MB more in the server, for a player at 50 kB/s",
        grown,
        1.0,
        note=f"pictures of {picture / 1000:.0f} kB",
    )
    yield Found(
        "p95 of the age of its pictures, in round trips",
        percentile(ages, 95) / trip,
        2.0,
        note=f"a round trip is {trip:.0f} ms; {len(slow_seen)} of {made} pictures were sent",
    )
    yield Found(
        "% fewer pictures in a second for another player",
        100 * (1 - during.fps[0] / before.fps[0]),
        2.0,
        note=f"{before.fps[0]:.1f}, then {during.fps[0]:.1f}",
    )
    yield Found("s until the game pauses, without acks", paused, 3.0, note=f"why: {why}")


def slow_network(size: Size) -> Finds:
    """A player whose network is slow costs nobody anything."""
    yield from _all(_slow, size)


# --- G7: long episodes, many episodes ------------------------------------------------------------


async def _long(size: Size, folder: Path) -> AsyncIterator[Found]:
    num_steps = round(size.of(100_000, 5_000))
    with Server(folder) as server:
        study = server.study(**drawn("sync", size=96))
        play = await asyncio.to_thread(begin, server, study)
        async with Player(server, play) as player:
            await player.until(lambda: player.seen)
            (worker,) = server.workers()
            early, sent, num_presses = 0.0, 0, 50
            presses = [(KEYS[0], value) for _ in range(num_presses) for value in (1.0, 0.0)]
            while sent < num_steps:
                await player.press(*presses)
                sent += num_presses
                await player.until(lambda end=sent - 500: player.seen[-1].frame.step > end)
                if not early and sent >= 2000:
                    early = processes.memory_of(worker, "Pss_Anon")
            await player.until(lambda: player.seen[-1].frame.step == sent)
            grown = processes.memory_of(worker, "Pss_Anon") - early
            await player.say("control", do="end")
            await player.until_state("ended")
            await player.say("control", do="confirm", value="completed")
            await player.until(player.completed)
            ((identifier, recorded),) = player.completed().items()
        await asyncio.to_thread(server.ask, "DELETE", f"/api/plays/{play}")
    data = DataDirectory(folder)
    num_rows = round(size.of(10_000, 1_000))
    with Store.open(data.database) as store:
        known = store.episode(identifier)
        for number in range(num_rows):
            store.save_episode(
                Episode(
                    id=f"row{number}",
                    study=study,
                    environment=known.environment,
                    session=known.session,
                    person=known.person,
                    number=number,
                    state=EpisodeState.COMPLETED,
                    num_steps=number % 997,
                    total_reward=float(number % 89),
                    started=1.7e9 + number,
                )
            )
    chance = random.Random(0)
    with Server(folder) as server:  # Anew: nothing of it is in memory.
        view = f"/api/episodes/{identifier}/view"

        def timed(path: str) -> float:
            begin = time.perf_counter()
            status, _, content = server.fetch("GET", path)
            if status != 200:
                raise RuntimeError(f"{path}: {status} {content[:200]!r}")
            return 1000 * (time.perf_counter() - begin)

        server.ask("GET", "/api/studies")
        opened = timed(view)
        again = timed(view)
        at = [chance.randrange(recorded) for _ in range(round(size.of(100, 30)))]
        steps = [timed(f"{view}/steps/{step}") for step in at]
        pictures = [timed(f"{view}/pictures/{step}/{urllib.parse.quote('image')}") for step in at]
        tables = [
            timed(f"/api/episodes?limit=50&sort={sort}&offset={chance.randrange(num_rows)}")
            for sort in ("-started", "total_reward", "-num_steps") * 5
        ]
    yield Found(
        f"MB more in the worker after {recorded:,} steps", grown, 20, note=f"from {early:.0f}"
    )
    yield Found("replay opens: ms", opened, 1000, note=f"again: {again:.0f} ms")
    yield Found("a step of it: p95 ms", percentile(steps, 95), 100)
    yield Found("a picture of it: p95 ms", percentile(pictures, 95), 100)
    yield Found(f"a page of the table of {num_rows:,}: p95 ms", percentile(tables, 95), 300)


def long_episodes(size: Size) -> Finds:
    """An episode of 100,000 steps, and a table of 10,000 episodes."""
    yield from _all(_long, size)


# --- G8: a large download while others play ------------------------------------------------------


class _Noise(dm_env.Environment):  # type: ignore[misc]  # dm_env is untyped.
    def reset(self) -> dm_env.TimeStep:
        raise NotImplementedError

    def step(self, action: Any) -> dm_env.TimeStep:
        raise NotImplementedError

    def observation_spec(self) -> dm_env.specs.Array:
        return dm_env.specs.Array((210, 160, 3), np.uint8)

    def action_spec(self) -> dm_env.specs.Array:
        return dm_env.specs.DiscreteArray(4)


_STEPS_OF_NOISE = 250


def _noise(seed: int) -> Iterator[tuple[dm_env.TimeStep, int | None]]:
    """The steps of an episode that cannot be made smaller."""
    chance = np.random.default_rng(seed)
    for number in range(_STEPS_OF_NOISE):
        picture = chance.integers(0, 256, (210, 160, 3), np.uint8)
        if not number:
            yield dm_env.restart(picture), None
        elif number < _STEPS_OF_NOISE - 1:
            yield dm_env.transition(float(number), picture, 1.0), number % 4
        else:
            yield dm_env.termination(float(number), picture), number % 4


def _write_noise(data: DataDirectory, study: str, num_bytes: float) -> list[str]:
    """Adds episodes of about so many bytes; returns their identifiers."""
    specs = spec_codec.encode_environment_specs(_Noise())
    ids = []
    with Store.open(data.database) as store:
        (environment,) = store.environments(study).values()
        person = store.people()[0].id
        for number in range(max(1, round(num_bytes / (_STEPS_OF_NOISE * 210 * 160 * 3)))):
            recording = Recording(str(data.episodes), specs, {"agent_id": "a", "seed": number})
            for index, (timestep, action) in enumerate(_noise(number)):
                more = {"image": b"", "keys": "{}", "info": "{}", "inputs": "[]"}
                more |= {"camera": "", "quality": "medium"}
                recording.add(timestep, action, {**more, "time": float(index), "fps": 0.0})
            recording.close(reason="terminated", gaps="[]")
            episode = Episode(
                id=recording.id,
                study=study,
                environment=environment.id,
                session="bench",
                person=person,
                number=number,
                state=EpisodeState.COMPLETED,
                reason="terminated",
                num_steps=recording.num_steps,
                total_reward=recording.total_reward,
                started=1.7e9 + number,
            )
            store.save_episode(episode)
            said = {"state": "completed", "reason": "terminated", "success": None, "notes": ""}
            said |= {"tags": [], "study": {"id": study, "name": "Study"}}
            said |= {"environment": {"id": environment.id, "name": environment.name}}
            (data.episode(recording.id) / "annotations.json").write_text(json.dumps(said))
            ids.append(recording.id)
    return ids


async def _largest(server: Server, done: asyncio.Event) -> float:
    """The most memory that a process of an export takes until it is over."""
    most = 0.0
    while not done.is_set():
        for process in server.workers():
            with contextlib.suppress(OSError):
                line = Path(f"/proc/{process}/cmdline").read_bytes()
                if b"rlds_creator.exporting" in line:
                    most = max(most, processes.memory_of(process))
        await asyncio.sleep(0.2)
    return most


async def _download(size: Size, folder: Path) -> AsyncIterator[Found]:
    num_bytes = size.of(1e9, 6e7)
    if shutil.disk_usage(folder).free < 5 * num_bytes:
        raise NotImplementedError("there is no room for it on the disk")
    server = Server(folder, is_shared=True)
    with server:
        study = server.study(**drawn())
        archive = server.study(**drawn())
        cookies = server.people(round(size.of(8, 3)))
    ids = await asyncio.to_thread(_write_noise, DataDirectory(folder), archive, num_bytes)
    with server:
        async with players(server, study, cookies) as group:
            await asyncio.sleep(2)
            before = await watch(server, group, size.of(12, 4))
            done = asyncio.Event()
            largest = asyncio.create_task(_largest(server, done))
            wish = {"format": "log", "episodes": ids, "name": "noise"}
            begin = time.monotonic()
            export = await asyncio.to_thread(server.ask, "POST", "/api/exports", wish)
            path = f"/api/exports/{export['id']}"
            starts, cpu = [len(p.seen) for p in group], processes.cpu_time_of(server.pid)
            while (state := await asyncio.to_thread(server.ask, "GET", path))["state"] in (
                "queued",
                "running",
            ):
                await asyncio.sleep(0.2)
            took = time.monotonic() - begin
            if state["state"] != "done":
                raise RuntimeError(f"the export {state['state']}: {state['error']}")
            cpu = processes.cpu_time_of(server.pid) - cpu
            during = Watched(took, [p.seen[s:] for p, s in zip(group, starts)], cpu)
            done.set()
            of_export = await largest
            of_server = processes.memory_of(server.pid)
            # It is fetched in two parts, as a browser does whose network was away.
            half = state["num_bytes"] // 2
            file = folder / "fetched.zip"
            parts = (f"bytes=0-{half - 1}", f"bytes={half}-")
            with open(file, "wb") as output:
                for part in parts:
                    status, _, content = await asyncio.to_thread(
                        server.fetch, "GET", f"{path}/file", headers={"range": part}
                    )
                    if status != 206:
                        raise RuntimeError(f"a part of the download: {status}")
                    output.write(content)
            other = await asyncio.to_thread(server.ask, "POST", "/api/exports", wish)
            await asyncio.sleep(1.5)
            other = await asyncio.to_thread(server.ask, "DELETE", f"/api/exports/{other['id']}")
        left = [one for one in (folder / "exports").iterdir() if one.name != export["id"]]
        left = [one for one in left if any(one.iterdir())]
    different = await asyncio.to_thread(_compare, file, folder)
    lost = [1 - b / a for a, b in zip(before.fps, during.fps)]
    yield Found(
        f"% fewer pictures in a second, {len(group)} players, while {num_bytes / 1e9:.2g} GB"
        " are exported",
        100 * statistics.fmean(lost),
        5.0,
        note=f"{statistics.fmean(before.fps):.1f}, then {statistics.fmean(during.fps):.1f}; "
        f"the export took {took:.0f} s",
    )
    yield Found("p99 ms between pictures meanwhile", percentile(during.intervals, 99))
    yield Found("MB of the process that exports (PSS)", of_export, 200)
    yield Found("MB of the server (PSS)", of_server, 200)
    yield Found("steps that are not as recorded", different, 0)
    note = f"state {other.get('state')}"
    yield Found("files that a cancelled export leaves", len(left), 0, note=note)


def _compare(file: Path, folder: Path) -> int:
    """How many steps of a download differ from those that were written."""
    target = folder / "unpacked"
    with zipfile.ZipFile(file) as packed:
        packed.extractall(target)
    (described,) = target.rglob("metadata.json")
    log = next(one for one in described.parent.iterdir() if one.is_dir())
    different = 0
    with envlogger.Reader(log) as reader:
        for number, episode in enumerate(reader.episodes):
            wanted = list(_noise(number))
            different += abs(len(episode) - len(wanted))
            for step, (timestep, action) in zip(episode, wanted):
                same = (
                    np.array_equal(step.timestep.observation, timestep.observation)
                    and step.timestep.reward == timestep.reward
                    and step.timestep.step_type == timestep.step_type
                    and (action is None or step.action == action)
                )
                different += not same
    return different


def download(size: Size) -> Finds:
    """A download of a gigabyte while eight people play."""
    yield from _all(_download, size)


# --- G9: a player who means harm -----------------------------------------------------------------


async def _flood(player: Player) -> int:
    """Says as much as it can, much of it wrong; returns how much that was."""
    said = ['{"op": "input", "seq": 1, "events": []}', '{"op": "ack", "frame": 4294967295}']
    said += ['{"op": "set", "fps": 60}', '{"op": "control", "do": "resume"}']
    events = [{"t": 1, "name": f"Key{n}", "value": n % 2} for n in range(100)]
    said.append(json.dumps({"op": "input", "seq": 2, "events": events}))
    count = 0
    with contextlib.suppress(Exception):
        while True:
            await player.socket.send(said[count % len(said)])
            count += 1
            if count % 100 == 0:  # About 10,000 in a second.
                await asyncio.sleep(0.01)
    return count


async def _harm(size: Size, folder: Path) -> AsyncIterator[Found]:
    seconds = size.of(15, 5)
    with Server(folder, is_shared=True) as server:
        study = server.study(**drawn(fps=FPS))
        cookies = server.people(2)
        async with players(server, study, cookies[:1]) as group:
            await asyncio.sleep(2)
            before = await watch(server, group, seconds)
            memory = processes.memory_of(server.pid, "Private_Dirty")
            play = await asyncio.to_thread(begin, server, study, cookies[1])
            async with Player(server, play, cookies[1]) as other:
                await other.until(lambda: other.seen)
                flood = asyncio.create_task(_flood(other))
                await asyncio.sleep(1)
                during = await watch(server, group, seconds)
                grown = processes.memory_of(server.pid, "Private_Dirty") - memory
                flood.cancel()
                await asyncio.gather(flood, return_exceptions=True)
            after = await watch(server, group, seconds / 2)
    base = statistics.fmean([before.fps[0], after.fps[0]])
    yield Found(
        "% fewer pictures in a second for another player, in a flood of messages",
        100 * (1 - during.fps[0] / base),
        1.0,
        note=f"{base:.2f}, then {during.fps[0]:.2f}; the list of other harm is in "
        "tests/rlds_creator/server/test_malicious.py",
    )
    yield Found("p99 ms between its pictures", percentile(during.intervals, 99))
    yield Found("MB more in the server", grown, 2.0)
    yield Found("% of a core, the server", 100 * during.cpu / during.seconds)


def harm(size: Size) -> Finds:
    """A player who floods the server does not disturb others."""
    yield from _all(_harm, size)


# --- G10: from nothing to the first picture ------------------------------------------------------


async def _first(size: Size, folder: Path) -> AsyncIterator[Found]:
    answered, shown = [], []
    for number in range(round(size.of(5, 2))):
        start = time.monotonic()
        server = Server(folder / str(number))
        await asyncio.to_thread(server.start)
        with contextlib.ExitStack() as stack:
            stack.callback(server.stop)
            answered.append(time.monotonic() - start)
            studies = server.ask("GET", "/api/studies")["studies"]
            (study,) = [one["id"] for one in studies if one["name"] == "CartPole"]
            play = await asyncio.to_thread(begin, server, study)
            async with Player(server, play) as player:
                await player.until_state("ready")
                await player.until(lambda player=player: player.seen)
                shown.append(time.monotonic() - start)
    import rlds_creator

    where = "site-packages" in (rlds_creator.__file__ or "")
    note = f"answers after {statistics.median(answered):.1f} s; "
    note += "installed" if where else "from the checkout"
    yield Found("s from the command to a picture to play", statistics.median(shown), 5.0, note=note)


def first_picture(size: Size) -> Finds:
    """How long a first start takes."""
    yield from _all(_first, size)


GOALS: dict[str, Callable[[Size], Finds]] = {
    "G1": steps,
    "G2": sixteen,
    "G3": keys,
    "G4": kills,
    "G5": away,
    "G6": slow_network,
    "G7": long_episodes,
    "G8": download,
    "G9": harm,
    "G10": first_picture,
}
