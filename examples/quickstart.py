"""The main job, end to end: record a simulator, read it back, make a dataset, train on it.

    python examples/quickstart.py [--episodes 30] [--output DIRECTORY]

A hand-written controller swings up dm_control's cartpole. Its episodes are recorded with EnvLogger,
read back and compared with what the environment returned, turned into an RLDS dataset, and cloned
by a small Keras model, which then controls the cartpole itself.
"""

import argparse
import datetime
import functools
import os
import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

# Before the libraries are loaded that look at these: fewer messages, and no windows to draw in.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("MUJOCO_GL", "off")
os.environ.setdefault("MPLBACKEND", "agg")

import absl.logging
import dm_env
import keras
import numpy as np
import tensorflow as tf
import tensorflow_datasets as tfds
from dm_control import suite
from matplotlib import pyplot
from rich.console import Console
from rich.progress import Progress, track
from rich.table import Table

import envlogger
import rlds
import tfds_builders
from envlogger.environment_wrapper import EnvironmentWrapper

# TFDS warns about its own use of an old name for each feature that it loads.
absl.logging.set_verbosity(absl.logging.ERROR)

console = Console()

# --------------------------------------------------------------------------------------------------
# The simulator, and somebody to control it.


def make_environment(seed: int) -> dm_env.Environment:
    """The cartpole, whose pole hangs down at the beginning of an episode of 1000 steps of 10 ms."""
    return suite.load("cartpole", "swingup", task_kwargs={"random": seed})


class SwingUp:
    """Pumps energy into the pole until it is nearly upright, then balances it."""

    def __init__(self, seed: int, noise: float) -> None:
        self._random = np.random.default_rng(seed)
        self._noise = noise

    def __call__(self, observation: dict[str, np.ndarray]) -> np.ndarray:
        """The force on the cart, in [-1, 1], for an observation."""
        x, cosine, sine = observation["position"]
        x_velocity, angular_velocity = observation["velocity"]
        if cosine > 0.966:
            force = 1.2 * x + 1.7 * x_velocity + 10.8 * sine + 2.3 * angular_velocity
        else:
            energy = cosine - 1.0 + 0.051 * angular_velocity**2  # Zero when upright and at rest.
            force = 2.2 * energy * angular_velocity * cosine - 1.4 * x - 0.2 * x_velocity
        force += self._noise * self._random.normal()
        return np.clip([force], -1.0, 1.0)


class Remembering(EnvironmentWrapper):
    """Keeps copies of all that went in and out of the environment, to compare the log with."""

    def __init__(self, environment: dm_env.Environment) -> None:
        super().__init__(environment)
        self.steps: list[tuple[dm_env.TimeStep, np.ndarray | None]] = []

    def reset(self) -> dm_env.TimeStep:
        """Resets the environment."""
        return self._remember(super().reset(), None)

    def step(self, action: np.ndarray) -> dm_env.TimeStep:
        """Steps the environment."""
        return self._remember(super().step(action), np.copy(action))

    def _remember(self, timestep: dm_env.TimeStep, action: np.ndarray | None) -> dm_env.TimeStep:
        self.steps.append((tf.nest.map_structure(np.copy, timestep._asdict()), action))
        return timestep


# --------------------------------------------------------------------------------------------------
# 1. Record.


def record(environment: dm_env.Environment, logs: Path, num_episodes: int, seed: int) -> int:
    """Records episodes, every fifth of which is given up half-way; returns the number of steps."""
    random = np.random.default_rng(seed)
    episode: dict[str, float] = {}

    def step_metadata(timestep, action, env):
        del timestep, action
        return {"simulation_time": env.physics.time()}  # In seconds.

    def episode_metadata(timestep, action, env):
        del action, env
        episode["return"] += timestep.reward or 0.0
        return dict(episode)

    num_steps = 0
    with envlogger.EnvLogger(
        environment,
        data_directory=logs,
        max_episodes_per_file=10,
        metadata={"environment": "dm_control cartpole swingup", "agent_id": "energy controller"},
        step_fn=step_metadata,
        episode_fn=episode_metadata,
    ) as env:
        for number in track(range(num_episodes), "Recording", console=console):
            episode = {"noise": random.uniform(0.0, 0.4), "return": 0.0}
            agent = SwingUp(seed + number, episode["noise"])
            given_up_after = random.integers(300, 700) if number % 5 == 4 else np.inf
            timestep = env.reset()
            length = 1
            while not timestep.last() and length < given_up_after:
                timestep = env.step(agent(timestep.observation))
                length += 1
            num_steps += length
    return num_steps


# --------------------------------------------------------------------------------------------------
# 2. Read back, and compare.


def compare(logs: Path, remembered: list[tuple[dm_env.TimeStep, np.ndarray | None]]) -> int:
    """Checks that the log is what the environment returned; returns the number of steps seen."""
    with envlogger.Reader(logs) as reader:
        if len(reader.steps) != len(remembered):
            raise AssertionError(f"{len(remembered)} steps went in, {len(reader.steps)} came out")
        recorded = (step for episode in reader.episodes for step in episode)
        total = len(remembered)
        for i, step in enumerate(track(recorded, "Comparing", total, console=console)):
            timestep, action = remembered[i]
            tf.nest.map_structure(
                functools.partial(np.testing.assert_array_equal, err_msg=f"step {i}", strict=True),
                {**timestep, "action": action},
                {**step.timestep._asdict(), "action": step.action},
            )
    return i + 1


# --------------------------------------------------------------------------------------------------
# 3. and 4. Convert, load, and look at it.


def flat_observation(observation: dict[str, tf.Tensor]) -> tf.Tensor:
    """All numbers of an observation in one vector."""
    return tf.concat([observation["position"], observation["velocity"]], axis=-1)


def episode_statistics(dataset: tf.data.Dataset) -> dict[str, np.ndarray]:
    """Return, length and rewards of each episode."""
    statistics: dict[str, list] = {"return": [], "length": [], "rewards": []}
    for episode in track(dataset, "Counting", len(dataset), console=console):
        (rewards,) = episode[rlds.STEPS].map(lambda step: step[rlds.REWARD]).batch(10_000)
        rewards = rewards.numpy()[:-1]  # That of the last step is a placeholder.
        statistics["return"].append(rewards.sum())
        statistics["length"].append(len(rewards))
        statistics["rewards"].append(rewards)
    return {
        "return": np.array(statistics["return"]),
        "length": np.array(statistics["length"]),
        "rewards": np.concatenate(statistics["rewards"]),
    }


def draw(statistics: dict[str, np.ndarray], path: Path) -> None:
    """Writes the distributions of return, length and reward as a PNG file."""
    figure, axes = pyplot.subplots(1, 3, figsize=(12, 3.5), layout="constrained")
    for axis, (title, key, label) in zip(
        axes,
        [
            ("Return", "return", "sum of rewards of an episode"),
            ("Length", "length", "transitions of an episode"),
            ("Reward", "rewards", "reward of a transition"),
        ],
        strict=True,
    ):
        axis.hist(statistics[key], bins=30, color="#34608d")
        axis.set(title=title, xlabel=label, ylabel="count")
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


# --------------------------------------------------------------------------------------------------
# 5. Train.


def transitions(dataset: tf.data.Dataset, mean: np.ndarray, std: np.ndarray) -> tf.data.Dataset:
    """Normalised observation, action and next observation of each transition."""

    def normalised(observation):
        return tf.cast((flat_observation(observation) - mean) / std, tf.float32)

    def to_transition(pair):
        observations = normalised(pair[rlds.OBSERVATION])
        return {
            "observation": observations[0],
            "action": tf.cast(pair[rlds.ACTION][0], tf.float32),
            "next_observation": observations[1],
        }

    def pairs(episode):
        return rlds.transformations.batch(
            episode[rlds.STEPS], size=2, shift=1, drop_remainder=True
        ).map(to_transition)

    return dataset.flat_map(pairs)


def clone(pairs: tf.data.Dataset, num_pairs: int, epochs: int) -> tuple[keras.Model, list[float]]:
    """Fits a model that gives the action for an observation; returns it and its loss per epoch."""
    model = keras.Sequential(
        [
            keras.layers.Input((5,)),
            keras.layers.Dense(128, activation="relu"),
            keras.layers.Dense(128, activation="relu"),
            keras.layers.Dense(1, activation="tanh"),
        ]
    )
    model.compile("adam", "mse")
    examples = (
        pairs.map(lambda pair: (pair["observation"], pair["action"]))
        .apply(tf.data.experimental.assert_cardinality(num_pairs))
        .cache()
        .shuffle(num_pairs, seed=0)
        .batch(256)
        .prefetch(tf.data.AUTOTUNE)
    )
    with Progress(console=console) as progress:
        task = progress.add_task("Fitting", total=epochs)
        step = keras.callbacks.LambdaCallback(
            on_epoch_end=lambda epoch, logs: progress.advance(task)
        )
        history = model.fit(examples, epochs=epochs, verbose=0, callbacks=[step], shuffle=False)
    return model, history.history["loss"]


def play(environment: dm_env.Environment, agent) -> float:
    """The return of one episode."""
    timestep, total = environment.reset(), 0.0
    while not timestep.last():
        timestep = environment.step(agent(timestep.observation))
        total += timestep.reward
    return total


# --------------------------------------------------------------------------------------------------


class Stopwatch:
    """Prints a heading for each part, and knows how long it took."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def part(self, title: str) -> Iterator[None]:
        """Times what is inside."""
        console.rule(title, align="left")
        begin = time.perf_counter()
        yield
        self.seconds[title] = time.perf_counter() - begin


def table(title: str, rows: dict[str, object]) -> None:
    """Prints a table with two columns."""
    grid = Table(title=title, show_header=False, title_justify="left")
    for key, value in rows.items():
        grid.add_row(key, str(value))
    console.print(grid)


def megabytes(directory: Path) -> str:
    """The size of all files in a directory."""
    return f"{sum(f.stat().st_size for f in directory.rglob('*') if f.is_file()) / 1e6:.2f} MB"


def main() -> None:
    """Runs all parts and prints what came out."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--episodes", type=int, default=30, help="episodes to record")
    parser.add_argument("--epochs", type=int, default=20, help="passes of the fit over the data")
    parser.add_argument("--seed", type=int, default=1, help="seed of everything random")
    parser.add_argument(
        "--output",
        type=Path,
        default=Path("out") / f"quickstart-{datetime.datetime.now():%Y%m%d-%H%M%S}",
        help="new directory for the log, the dataset and the picture",
    )
    arguments = parser.parse_args()
    if arguments.episodes < 1:
        parser.error("--episodes must be at least 1")
    logs = arguments.output / "logs"
    try:
        logs.mkdir(parents=True)
    except FileExistsError:
        parser.error(f"{logs} exists already; name a new directory")
    keras.utils.set_random_seed(arguments.seed)
    watch = Stopwatch()

    with watch.part("1. Record with EnvLogger"):
        environment = Remembering(make_environment(arguments.seed))
        num_steps = record(environment, logs, arguments.episodes, arguments.seed)
    seconds = watch.seconds["1. Record with EnvLogger"]
    table(
        "Recorded",
        {
            "episodes": arguments.episodes,
            "steps": num_steps,
            "steps per second": f"{num_steps / seconds:,.0f}",
            "size of the log": megabytes(logs),
            "log": logs,
        },
    )

    with watch.part("2. Read back with Reader"):
        num_same = compare(logs, environment.steps)
        with envlogger.Reader(logs) as reader:
            episode_metadata = list(reader.episode_metadata())
            observation_spec = reader.observation_spec()
    table(
        "Read back",
        {
            "steps equal to what the environment returned": f"{num_same} of {num_steps}",
            "episodes with metadata": sum(map(bool, episode_metadata)),
            "observation spec": {key: spec.shape for key, spec in observation_spec.items()},
        },
    )

    with watch.part("3. Convert to an RLDS dataset"):
        built = tfds_builders.build_from_logs(
            logs, name="cartpole_swingup", data_dir=arguments.output / "datasets"
        )
    dataset_directory = Path(built.data_dir)
    table(
        "Dataset",
        {"directory": dataset_directory, "size": megabytes(dataset_directory)},
    )

    with watch.part("4. Load with TFDS"):
        dataset = tfds.builder_from_directory(dataset_directory).as_dataset(split="train")
        statistics = episode_statistics(dataset)
        mean, std = rlds.transformations.mean_and_std(dataset, rlds.transformations.sar_fields_mask)
        picture = arguments.output / "distributions.png"
        draw(statistics, picture)
    recorded_returns = np.array([metadata["return"] for metadata in episode_metadata])
    table(
        "Statistics of the dataset",
        {
            "episodes": len(dataset),
            "transitions": statistics["length"].sum(),
            "return, mean and largest": f"{statistics['return'].mean():.1f}, "
            f"{statistics['return'].max():.1f}",
            "largest difference to the recorded returns": np.abs(
                statistics["return"] - recorded_returns
            ).max(),
            "action, mean ± std": f"{mean['action'][0]:.3f} ± {std['action'][0]:.3f}",
            "position, mean": np.round(mean["observation"]["position"], 3),
            "position, std": np.round(std["observation"]["position"], 3),
            "picture": picture,
        },
    )

    with watch.part("5. Train on transitions"):
        center = np.asarray(flat_observation(mean["observation"]))
        scale = np.maximum(flat_observation(std["observation"]), 1e-3)
        num_pairs = int(statistics["length"].sum())
        pairs = transitions(dataset, center, scale)
        model, losses = clone(pairs, num_pairs, arguments.epochs)
        act = tf.function(model)

        def cloned(observation):
            vector = (np.asarray(flat_observation(observation)) - center) / scale
            return act(tf.constant(vector[None], tf.float32))[0].numpy()

        cloned_return = play(make_environment(arguments.seed + 1), cloned)
    table(
        "Behaviour cloning",
        {
            "transitions": num_pairs,
            "loss, first and last epoch": f"{losses[0]:.4f}, {losses[-1]:.4f}",
            "return of the clone": f"{cloned_return:.1f}",
        },
    )
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    table(
        "Time and memory",
        {title: f"{seconds:.1f} s" for title, seconds in watch.seconds.items()}
        | {"peak memory": f"{peak:.2f} GB"},
    )
    console.print(f"The picture: {picture}", soft_wrap=True)


if __name__ == "__main__":
    main()
