"""The main job, end to end: record a simulator, read it back, make a dataset, train on it.

    python examples/quickstart.py [--episodes 30] [--output DIRECTORY]

A linear controller balances two poles on a cart, in Gymnasium's MuJoCo, and now and then they fall,
as it is disturbed. The episodes are recorded with EnvLogger, read back and compared with what the
environment returned, turned into an RLDS dataset, and cloned by a small Keras model, which then
balances the poles itself. A report shows the dataset.
"""

import argparse
import datetime
import functools
import os
import sys
from pathlib import Path

# Before the libraries are loaded: no windows to draw in, and no messages that are not ours.
# ruff: noqa: E402
os.environ.setdefault("MUJOCO_GL", "off")
os.environ.setdefault("MPLBACKEND", "agg")

from tfds_builders.quiet import quiet_libraries

quiet_libraries()

import dm_env
import gymnasium
import keras
import numpy as np
import tensorflow as tf
import tensorflow_datasets as tfds
from matplotlib import pyplot
from rich.console import Console
from rich.progress import track
from rich.table import Table

import envlogger
import rlds
import rlds_tools
import tfds_builders
from envlogger.environment_wrapper import EnvironmentWrapper
from envlogger.gymnasium_adapter import GymnasiumAdapter

console = Console()

# --------------------------------------------------------------------------------------------------
# The simulator, and somebody to control it.


def make_environment(seed: int) -> dm_env.Environment:
    """A cart that carries two poles; an episode ends when they fall, or after 1000 steps."""
    return GymnasiumAdapter(gymnasium.make("InvertedDoublePendulum-v5"), seed=seed)


class Balance:
    """Pushes the cart in proportion to how far, and how fast, it and the poles are off."""

    # A linear quadratic regulator for the environment, linearised where the poles stand upright:
    # position of the cart, angles of the poles, and the velocities of the three.
    _GAINS = np.array([0.24, 2.1, 6.1, 0.36, 1.02, 0.93])

    def __init__(self, seed: int, noise: float) -> None:
        self._random = np.random.default_rng(seed)
        self._noise = noise

    def __call__(self, observation: np.ndarray) -> np.ndarray:
        """The force on the cart, in [-1, 1], for an observation."""
        position, sines, cosines = observation[:1], observation[1:3], observation[3:5]
        state = np.concatenate([position, np.arctan2(sines, cosines), observation[5:8]])
        force = -self._GAINS @ state + self._noise * self._random.normal()
        return np.clip([force], -1.0, 1.0).astype(np.float32)


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
        return {"simulation_time": env.unwrapped.data.time}  # In seconds.

    def episode_metadata(timestep, action, env):
        del action, env
        episode["return"] += timestep.reward or 0.0
        return dict(episode)

    num_steps = 0
    with envlogger.EnvLogger(
        environment,
        data_directory=logs,
        max_episodes_per_file=10,
        metadata={"environment": environment.spec.id, "agent_id": "linear controller"},
        step_fn=step_metadata,
        episode_fn=episode_metadata,
    ) as env:
        for index in track(range(num_episodes), "Recording", console=console):
            is_given_up = index % 5 == 4
            episode = {"noise": 0.0 if is_given_up else random.uniform(0.0, 0.3), "return": 0.0}
            agent = Balance(seed + index, episode["noise"])
            given_up_after = random.integers(300, 700) if is_given_up else np.inf
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


def episode_statistics(dataset: tf.data.Dataset) -> dict[str, np.ndarray]:
    """Return and length of each episode, and all actions."""
    statistics: dict[str, list] = {"return": [], "length": [], "actions": []}
    for episode in track(dataset, "Counting", len(dataset), console=console):
        (steps,) = episode[rlds.STEPS].batch(10_000)
        # The action and the reward of the last step are placeholders.
        statistics["return"].append(steps[rlds.REWARD].numpy()[:-1].sum())
        statistics["length"].append(len(steps[rlds.REWARD]) - 1)
        statistics["actions"].append(steps[rlds.ACTION].numpy()[:-1, 0])
    return {
        "return": np.array(statistics["return"]),
        "length": np.array(statistics["length"]),
        "actions": np.concatenate(statistics["actions"]),
    }


def draw(statistics: dict[str, np.ndarray], path: Path) -> None:
    """Writes the distributions of return, length and action as a PNG file."""
    figure, axes = pyplot.subplots(1, 3, figsize=(12, 3.5), layout="constrained")
    for axis, (title, key, label) in zip(
        axes,
        [
            ("Return", "return", "sum of rewards of an episode"),
            ("Length", "length", "transitions of an episode"),
            ("Action", "actions", "force on the cart in a transition"),
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
        return tf.cast((observation - mean) / std, tf.float32)

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
            keras.layers.Input((9,)),
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
    with console.status("Fitting"):
        history = model.fit(examples, epochs=epochs, verbose=0, shuffle=False)
    return model, history.history["loss"]


def play(environment: dm_env.Environment, agent) -> float:
    """The return of one episode."""
    timestep, total = environment.reset(), 0.0
    while not timestep.last():
        timestep = environment.step(agent(timestep.observation))
        total += timestep.reward
    return total


# --------------------------------------------------------------------------------------------------


def table(title: str, rows: dict[str, object]) -> None:
    """Prints a table with two columns, and below it the paths, which a table would cut."""
    grid = Table(title=title, show_header=False, title_justify="left")
    for key, value in rows.items():
        if not isinstance(value, Path):
            grid.add_row(key, str(value))
    console.print(grid)
    for key, value in rows.items():
        if isinstance(value, Path):
            console.print(f"{key}: {value}", soft_wrap=True)


def megabytes(directory: Path) -> str:
    """The size of all files in a directory."""
    return f"{sum(f.stat().st_size for f in directory.rglob('*') if f.is_file()) / 1e6:.2f} MB"


def main() -> None:
    """Runs all steps and prints the results."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--episodes", type=int, default=30, help="episodes to record")
    parser.add_argument("--epochs", type=int, default=20, help="passes of the fit over the data")
    parser.add_argument("--seed", type=int, default=1, help="seed of all random choices")
    parser.add_argument(
        "--output",
        type=Path,
        default=Path("out") / f"quickstart-{datetime.datetime.now():%Y%m%d-%H%M%S}",
        help="new directory for the log, the dataset and the figure",
    )
    arguments = parser.parse_args()
    if arguments.episodes < 1:
        parser.error("--episodes must be at least 1")
    logs = arguments.output / "logs"
    try:
        logs.mkdir(parents=True)
    except FileExistsError:
        parser.error(f"{logs} exists. Give a new directory.")
    keras.utils.set_random_seed(arguments.seed)

    console.rule("1. Record with EnvLogger", align="left")
    environment = Remembering(make_environment(arguments.seed))
    num_steps = record(environment, logs, arguments.episodes, arguments.seed)
    table(
        "Recorded",
        {
            "episodes": arguments.episodes,
            "steps": num_steps,
            "size of the log": megabytes(logs),
            "log": logs,
        },
    )

    console.rule("2. Read back with Reader", align="left")
    num_same = compare(logs, environment.steps)
    with envlogger.Reader(logs) as reader:
        episode_metadata = list(reader.episode_metadata())
        observation_spec = reader.observation_spec()
    table(
        "Read back",
        {
            "steps equal to what the environment returned": f"{num_same} of {num_steps}",
            "episodes with metadata": sum(map(bool, episode_metadata)),
            "observation spec": f"{observation_spec.dtype} of shape {observation_spec.shape}",
        },
    )

    console.rule("3. Convert to an RLDS dataset", align="left")
    built = tfds_builders.build_from_logs(
        logs, name="inverted_double_pendulum", data_dir=arguments.output / "datasets"
    )
    dataset_directory = Path(built.data_dir)
    table(
        "Dataset",
        {"directory": dataset_directory, "size": megabytes(dataset_directory)},
    )

    console.rule("4. Load with TFDS", align="left")
    dataset = tfds.builder_from_directory(dataset_directory).as_dataset(split="train")
    statistics = episode_statistics(dataset)
    mean, std = rlds.transformations.mean_and_std(dataset, rlds.transformations.sar_fields_mask)
    picture = arguments.output / "distributions.png"
    draw(statistics, picture)
    recorded_returns = np.array([metadata["return"] for metadata in episode_metadata])
    num_equal = np.isclose(statistics["return"], recorded_returns).sum()
    table(
        "Statistics of the dataset",
        {
            "episodes": len(dataset),
            "transitions": statistics["length"].sum(),
            "return, mean and largest": f"{statistics['return'].mean():.1f}, "
            f"{statistics['return'].max():.1f}",
            "returns equal to the recorded ones": f"{num_equal} of {len(dataset)}",
            "action, mean ± std": f"{mean['action'][0]:.3f} ± {std['action'][0]:.3f}",
            "position of the cart, mean ± std": f"{mean['observation'][0]:.3f} ± "
            f"{std['observation'][0]:.3f}",
            "picture": picture,
        },
    )

    console.rule("5. Train on transitions", align="left")
    center = mean["observation"]
    scale = np.maximum(std["observation"], 1e-3)
    num_pairs = int(statistics["length"].sum())
    pairs = transitions(dataset, center, scale)
    model, losses = clone(pairs, num_pairs, arguments.epochs)
    act = tf.function(model)

    def cloned(observation):
        return act(tf.constant((observation - center)[None] / scale, tf.float32))[0].numpy()

    cloned_return = play(make_environment(arguments.seed + 1), cloned)
    table(
        "Behaviour cloning",
        {
            "transitions": num_pairs,
            "loss, first and last epoch": f"{losses[0]:.4f}, {losses[-1]:.4f}",
            "return of the clone": f"{cloned_return:.1f}",
        },
    )
    console.rule("6. Report", align="left")
    report = arguments.output / "report.html"
    rlds_tools.report(dataset_directory, progress=False).save(report)
    console.print(f"Figure: {picture}", soft_wrap=True)
    console.print(f"The report, for your browser: {report}", soft_wrap=True)
    command = os.path.relpath(Path(sys.executable).with_name("rlds"))
    console.print(f"Next: {command} inspect {dataset_directory} --episode 0", soft_wrap=True)


if __name__ == "__main__":
    main()
