"""Records in other processes, kills them, and checks the remaining data.

    python tests/support/killing.py --kills 200 --seed 1
    python tests/support/killing.py --kills 20 --seed 1 --python PYTHON_WITH_ENVLOGGER_1_2

Every step holds the indices of its episode and of itself. The recording process notes the times of
accepted steps in a file that it shares with this process. They tell the steps that must remain, and
whether an episode is fused, has a hole, or is invented.

The recording process may also have the published envlogger, see `record`.
"""

import argparse
import collections
import dataclasses
import json
import mmap
import os
import pathlib
import random
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time

import dm_env
import numpy as np

import envlogger

# A note: its kind, the episode, the step, the time.
NOTE = struct.Struct("<iiid")
STEP, METADATA, DISCARDING, DISCARDED = 1, 2, 3, 4
NOTES_SIZE = 1 << 24


@dataclasses.dataclass(frozen=True)
class Plan:
    """The plan of a process that records until it is killed."""

    observation: str = "floats"  # Or "frames".
    episode_length: int = 10
    rate: float = 0  # Steps per second, 0 for as fast as it goes.
    discards: bool = False
    drops_first: bool = False
    is_original: bool = False  # Whether it is the published envlogger.
    backend: dict = dataclasses.field(default_factory=dict)

    @property
    def flush_interval(self):
        return self.backend.get("flush_interval", 5.0)

    @property
    def records_alone(self):
        """Whether no other process may record to the same directory.

        The published envlogger names shards after the microsecond of their begin. If two begin in
        the same one, the second process ends, so one shard per episode is too many.
        """
        return self.is_original and self.backend["max_episodes_per_file"] == 1

    def length_of(self, episode):
        """Lengths vary a little, so that episodes and flushes do not align."""
        return self.episode_length + episode % 3

    def is_discarded(self, episode):
        return self.discards and episode % 4 == 1


# --- The process that records.


def make_observation(plan, episode, i):
    if plan.observation == "floats":
        values = np.full(17, i * 0.37, np.float32)
        values[:2] = episode, i
        return values
    frame = np.full((84, 84, 4), i % 251, np.uint8)
    frame[0, :2] = np.frombuffer(struct.pack("<ii", episode, i), np.uint8).reshape(2, 4)
    return frame


def ids_in(observation):
    """Returns the indices of the episode and of the step."""
    if observation.dtype == np.float32:
        return int(observation[0]), int(observation[1])
    return struct.unpack("<ii", observation[0, :2].tobytes())


def record(plan, directory, notes_path, first_episode):
    """Records until the process is killed."""
    with open(notes_path, "r+b") as file:
        notes = mmap.mmap(file.fileno(), NOTES_SIZE)
    offset = 0

    def note(*values):
        nonlocal offset
        NOTE.pack_into(notes, offset, *values, time.monotonic())
        offset += NOTE.size

    scheduler = (lambda data: not data.timestep.first()) if plan.drops_first else None
    writer = envlogger.RiegeliBackendWriter(
        data_directory=directory, metadata={"a": 1}, scheduler=scheduler, **plan.backend
    )
    is_full = NOTES_SIZE - 4 * NOTE.size
    next_time = time.monotonic()
    episode = first_episode
    while offset < is_full:
        length = plan.length_of(episode)
        stop = length // 2 if plan.is_discarded(episode) else length
        for i in range(stop):
            observation = make_observation(plan, episode, i)
            action = np.full(6, 0.5, np.float32)
            if i == 0:
                data = envlogger.StepData(dm_env.restart(observation), None)
            elif i < length - 1:
                data = envlogger.StepData(dm_env.transition(1.0, observation), action)
            else:
                data = envlogger.StepData(dm_env.termination(1.0, observation), action)
            writer.record_step(data, is_new_episode=i == 0)
            if scheduler is None or i > 0:
                note(STEP, episode, i)
            if plan.rate:
                next_time += 1 / plan.rate
                time.sleep(max(0.0, next_time - time.monotonic()))
            if offset >= is_full:
                break
        if plan.is_discarded(episode):
            note(DISCARDING, episode, 0)
            writer.discard_episode()
            note(DISCARDED, episode, 0)
        else:
            writer.set_episode_metadata({"episode": episode})
            note(METADATA, episode, 0)
        episode += 1
    time.sleep(60)


# --- The process that kills.


@dataclasses.dataclass
class Outcome:
    """The outcome of kills: accepted, read, recovered and lost steps.

    `wrong` lists errors. `late` lists data that were not written in time, which a busy machine can
    cause.
    """

    kills: int = 0
    accepted: int = 0
    read: int = 0
    recovered: int = 0
    promised: int = 0
    lost: int = 0
    finished: int = 0
    finished_read: int = 0
    finished_recovered: int = 0
    wrong: list = dataclasses.field(default_factory=list)
    late: list = dataclasses.field(default_factory=list)

    def __add__(self, other):
        pairs = zip(dataclasses.astuple(self), dataclasses.astuple(other))
        return Outcome(*(a + b for a, b in pairs))


class Killed:
    """A process that recorded to a directory until it was killed."""

    def __init__(self, plan, directory, first_episode, python=sys.executable):
        self.plan = plan
        self._notes_file = tempfile.NamedTemporaryFile()  # noqa: SIM115 (kept open)
        self._notes_file.truncate(NOTES_SIZE)
        arguments = [dataclasses.asdict(plan), str(directory), self._notes_file.name, first_episode]
        self._process = subprocess.Popen(
            [python, __file__, "--record", json.dumps(arguments)],
            env={} if plan.is_original else None,  # PYTHONPATH may name this envlogger.
            stderr=subprocess.DEVNULL if plan.is_original else None,
        )

    def wait_for_steps(self):
        deadline = time.monotonic() + 60
        while os.pread(self._notes_file.fileno(), 4, 0) == bytes(4):
            assert self._process.poll() is None, "the recording process ended by itself"
            assert time.monotonic() < deadline
            time.sleep(0.005)

    def send_kill(self):
        self.killed_at = time.monotonic()
        self._process.send_signal(signal.SIGKILL)

    def wait_for_end(self):
        assert self._process.wait() == -signal.SIGKILL, "the recording process ended by itself"
        self._notes_file.seek(0)
        content = self._notes_file.read()
        self._notes_file.close()
        self.steps = collections.defaultdict(dict)  # For each episode, step -> time.
        self.note_times = collections.defaultdict(dict)  # For each episode, kind of note -> time.
        for kind, episode, i, time_of_note in NOTE.iter_unpack(content[: len(content) // 20 * 20]):
            if kind == 0:
                break
            if kind == STEP:
                self.steps[episode][i] = time_of_note
            else:
                self.note_times[episode][kind] = time_of_note


def kill(plans, directory, seconds, python=sys.executable):
    """Starts processes that record to one directory, and kills them after a time."""
    processes = [
        Killed(plan, directory, 100_000 * index, python) for index, plan in enumerate(plans)
    ]
    try:
        for process in processes:
            process.wait_for_steps()
        time.sleep(seconds)
    finally:
        for process in processes:
            process.send_kill()
        for process in processes:
            process.wait_for_end()
    return processes


def check(processes, directory, recovered_directory):
    """Compares the remaining data with the recorded steps."""
    outcome = Outcome(kills=len(processes))
    with envlogger.Reader(directory) as reader:
        for damage in reader.damage():
            assert str(damage)
        read = _episodes(reader)
    report = envlogger.recover(directory, recovered_directory)
    assert str(report)
    with envlogger.Reader(recovered_directory) as reader:
        assert reader.metadata() == {"a": 1}
        assert reader.damage() in ([], _cut_off(reader)), reader.damage()
        recovered = _episodes(reader)
        assert len(reader.steps) == sum(len(steps) for steps, _, _ in recovered)
    for process in processes:
        _check_process(process, read, recovered, outcome)
    recorded_steps = set().union(*(process.steps for process in processes))
    last = {max(process.steps) + 1 for process in processes}  # Accepted, but not noted yet.
    for steps, _, _ in read + recovered:
        if steps[0][0] not in recorded_steps | last:
            outcome.wrong.append(f"invented {steps}")
    return outcome


def _cut_off(reader):
    """The allowed damage: a file that ends within a chunk, which is not in the index."""
    return [damage for damage in reader.damage() if "cut off at byte" in damage.problem]


def _episodes(reader):
    """For each episode: the indices in its steps, its metadata, and whether it is finished."""
    return [
        (
            [ids_in(step.timestep.observation) for step in episode],
            metadata,
            episode[-1].timestep.last(),
        )
        for episode, metadata in zip(reader.episodes, reader.episode_metadata(), strict=True)
    ]


def _check_process(process, read, recovered, outcome):
    plan = process.plan
    limit = process.killed_at - plan.flush_interval
    first_step = 1 if plan.drops_first else 0
    own_indices = range(min(process.steps), max(process.steps) + 2)
    all_by_index = []
    for name, episodes in (("read", read), ("recovered", recovered)):
        by_index = {}
        for steps, metadata, is_finished in episodes:
            episode_index = steps[0][0]
            if episode_index not in own_indices:
                continue
            expected = [(episode_index, i) for i in range(first_step, first_step + len(steps))]
            if steps != expected:
                outcome.wrong.append(f"{name}: fused or with a hole: {steps}")
            if episode_index in by_index:
                outcome.wrong.append(f"{name}: episode {episode_index} is there twice")
            if name == "read" and not plan.is_original and not is_finished:
                outcome.wrong.append(f"{name}: episode {episode_index} is visible but not finished")
            if is_finished is not (len(steps) == plan.length_of(episode_index) - first_step):
                outcome.wrong.append(f"{name}: episode {episode_index} has {len(steps)} steps")
            if metadata not in (None, {"episode": episode_index}):
                outcome.wrong.append(f"{name}: episode {episode_index} has metadata {metadata}")
            if process.note_times[episode_index].get(DISCARDED, np.inf) < limit:
                outcome.late.append(f"{name}: discarded episode {episode_index} is there")
            by_index[episode_index] = (len(steps), metadata, is_finished)
        if list(by_index) != sorted(by_index):
            outcome.wrong.append(f"{name}: episodes are not in order: {list(by_index)}")
        all_by_index.append(by_index)
    read_by_index, recovered_by_index = all_by_index
    outcome.accepted += sum(map(len, process.steps.values()))
    outcome.read += sum(length for length, _, _ in read_by_index.values())
    outcome.recovered += sum(length for length, _, _ in recovered_by_index.values())
    for episode_index, times in process.steps.items():
        episode_notes = process.note_times[episode_index]
        if DISCARDING in episode_notes or (
            plan.is_discarded(episode_index) and episode_index == max(process.steps)
        ):
            continue
        num_promised = sum(time_of_note < limit for time_of_note in times.values())
        num_recovered, metadata, _ = recovered_by_index.get(episode_index, (0, None, False))
        is_finished = len(times) == plan.length_of(episode_index) - first_step
        outcome.finished += is_finished
        outcome.finished_read += episode_index in read_by_index and is_finished
        outcome.finished_recovered += is_finished and num_recovered == len(times)
        if plan.is_original:
            continue
        outcome.promised += num_promised
        num_lost = max(0, num_promised - num_recovered)
        outcome.lost += num_lost
        if num_lost:
            outcome.late.append(f"{num_lost} steps of episode {episode_index} are lost")
        if episode_notes.get(METADATA, np.inf) < limit and metadata is None:
            outcome.late.append(f"the metadata of episode {episode_index} are lost")


# --- Many kills.

OPTIONS = ["zstd:3,chunk_size:1M", "transpose,brotli:6", "uncompressed,chunk_size:10k"]


def random_plan(rng):
    return Plan(
        observation=rng.choice(["floats", "frames"]),
        episode_length=rng.choice([10, 1000]),
        rate=rng.choice([0, 0, 100]),
        discards=rng.random() < 0.3,
        drops_first=rng.random() < 0.2,
        backend={
            "max_episodes_per_file": rng.choice([1, 10000]),
            "writer_options": rng.choice(OPTIONS),
            "sync": rng.random() < 0.5,
            "flush_interval": rng.choice([0.2, 0.2, 0.5, 5.0]),
        },
    )


def random_original_plan(rng):
    return Plan(
        observation=rng.choice(["floats", "frames"]),
        episode_length=rng.choice([10, 1000]),
        rate=rng.choice([0, 0, 100]),
        is_original=True,
        backend={
            "max_episodes_per_file": rng.choice([1, 10000]),
            "writer_options": rng.choice(["transpose,brotli:6,chunk_size:1M", "zstd:3"]),
        },
    )


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--record")
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--python", help="one with the published envlogger")
    options = parser.parse_args()
    if options.record:
        plan, directory, notes_path, first_episode = json.loads(options.record)
        record(Plan(**plan), directory, notes_path, first_episode)
        return
    outcomes = collections.defaultdict(Outcome)
    num_kills = 0
    seed = options.seed
    while num_kills < options.kills:
        seed += 1
        outcome, plans = run(seed, options.python)
        num_kills += outcome.kills
        print(f"seed {seed}: {outcome.accepted} steps, lost {outcome.lost}, {plans}", flush=True)
        for problem in (*outcome.wrong[:5], *outcome.late[:5]):
            print(f"    {problem[:300]}", flush=True)
        for key in (
            "all",
            plans[0].observation,
            f"episodes of {plans[0].episode_length}",
            *(f"{name}={value}" for name, value in plans[0].backend.items()),
            f"rate {plans[0].rate}",
        ):
            outcomes[key] += outcome
    print_table(outcomes)


def run(seed, python=None, seconds=None, flush_interval=None):
    """Kills one recording process, or two at once, with a plan drawn by the seed.

    Args:
      seed: Draws the plan, and the seconds by default.
      python: A Python with the published envlogger, for its recorder.
      seconds: The time to record.
      flush_interval: The interval of the recorder.
    """
    rng = random.Random(seed)
    plan = random_original_plan(rng) if python else random_plan(rng)
    if flush_interval is not None:
        plan.backend["flush_interval"] = flush_interval
    plans = [plan] * (2 if rng.random() < 0.15 and not plan.records_alone else 1)
    if seconds is None:
        seconds = rng.uniform(0.05, 2.5 if plan.flush_interval < 5 else 9)
    root = pathlib.Path(tempfile.mkdtemp())
    try:
        directory = root / "recording"
        directory.mkdir()
        processes = kill(plans, directory, seconds, python or sys.executable)
        outcome = check(processes, directory, root / "recovered")
    except BaseException:
        print(f"seed {seed}: see {root}", flush=True)
        raise
    shutil.rmtree(root)
    return outcome, plans


def print_table(outcomes):
    print(
        "| | kills | steps accepted | read at once | after recover | promised | lost of these "
        "| finished episodes read at once | after recover | fused, holed, invented |\n"
        "|---|---|---|---|---|---|---|---|---|---|"
    )
    for key, o in outcomes.items():
        print(
            f"| {key} | {o.kills} | {o.accepted} | {o.read / o.accepted:.1%} "
            f"| {o.recovered / o.accepted:.1%} | {o.promised} | {o.lost} "
            f"| {o.finished_read}/{o.finished} | {o.finished_recovered}/{o.finished} "
            f"| {len(o.wrong)} |"
        )


if __name__ == "__main__":
    main()
