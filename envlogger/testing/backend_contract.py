"""Contract tests of storage backends; the test case of a new backend inherits them.

    class MyBackendTest(BackendContract, unittest.TestCase):
        def setUp(self):
            self.directory = tempfile.mkdtemp()

        def make_writer(self, **kwargs):
            return MyBackendWriter(self.directory, **kwargs)

        def make_reader(self):
            return MyBackendReader(self.directory)

Run the test case with unittest or pytest.
"""

# Backends may be tested without pytest, and the names of the tests describe the checks.
# ruff: noqa: D102, PT009, PT027

from __future__ import annotations

import unittest
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import dm_env
import numpy as np
from dm_env import specs

from envlogger.backends.backend_reader import BackendReader
from envlogger.backends.backend_writer import BackendWriter
from envlogger.errors import UsageError
from envlogger.reader import Reader
from envlogger.step_data import StepData

__all__ = ["ACTION_SPEC", "CUSTOM_DATA_SPEC", "OBSERVATION_SPEC", "BackendContract"]

# The specs of the recorded steps, for backends that need them in advance. Rewards and
# discounts are `float`; the metadata of an episode is `{"trial": int}`.
OBSERVATION_SPEC = {
    "number": specs.Array((), np.int64),
    "position": specs.Array((3,), np.float32),
    "image": specs.Array((2, 2, 3), np.uint8),
}
ACTION_SPEC = specs.Array((2,), np.float64)
CUSTOM_DATA_SPEC = {"stage": specs.Array((), np.int64)}

if TYPE_CHECKING:
    _Base = unittest.TestCase
else:
    _Base = object


class BackendContract(_Base):
    """The contract of `BackendWriter` and `BackendReader`.

    Subclasses implement `make_writer` and `make_reader`, and set the attributes to False if the
    backend lacks the feature.

    Attributes:
      episode_metadata_is_optional: Whether the metadata of an episode may be missing (None).
      has_dataset_metadata: Whether readers return the metadata of the whole dataset.
    """

    episode_metadata_is_optional = True
    has_dataset_metadata = True

    def make_writer(self, **kwargs: Any) -> BackendWriter:
        """Creates a writer of a new recording.

        Args:
          **kwargs: The arguments of `BackendWriter`: `metadata` and `scheduler`.
        """
        raise NotImplementedError

    def make_reader(self) -> BackendReader | Reader:
        """Creates a reader of the steps that the last writer has recorded so far."""
        raise NotImplementedError

    def test_reads_the_recorded_steps(self) -> None:
        recorded = self._record_episodes([3])
        with self.make_reader() as reader:
            steps = list(reader.episodes[0])
        self.assertEqual(len(steps), 3)
        for step, expected in zip(steps, recorded[0]):
            self.assertIsInstance(step, StepData)
            self.assertIs(step.timestep.step_type, expected.timestep.step_type)
            for value, expected_value in zip(
                _list_values(step), _list_values(expected), strict=True
            ):
                np.testing.assert_array_equal(value, expected_value)
                self.assertEqual(np.asarray(value).dtype, np.asarray(expected_value).dtype)

    def test_separates_episodes(self) -> None:
        self._record_episodes([2, 5, 3])
        self._check_episodes([[0, 1], [10, 11, 12, 13, 14], [20, 21, 22]])
        with self.make_reader() as reader:
            step_ids = [0, 1, 10, 11, 12, 13, 14, 20, 21, 22]
            self.assertEqual(_read_ids(reader.steps), step_ids)

    def test_accepts_an_episode_without_a_last_step(self) -> None:
        with self.make_writer() as writer:
            for begin in (0, 10):
                self._record(writer, _create_episode(begin, 4)[:2])
        self._check_episodes([[0, 1], [10, 11]])

    def test_reads_an_empty_recording(self) -> None:
        self._record_episodes([])
        with self.make_reader() as reader:
            for sequence in (reader.steps, reader.episodes, reader.episode_metadata()):
                self.assertEqual(list(sequence), [])

    def test_checks_indices(self) -> None:
        self._record_episodes([3, 3, 3, 3])
        with self.make_reader() as reader:
            for sequence, size in ((reader.steps, 12), (reader.episodes[1], 3)):
                self.assertEqual(len(sequence), size)
                self.assertEqual(_read_id(sequence[-1]), _read_id(sequence[size - 1]))
                self.assertEqual(_read_id(sequence[-size]), _read_id(sequence[0]))
                numpy_index: Any = np.int64(1)
                self.assertEqual(_read_id(sequence[numpy_index]), _read_id(sequence[1]))
                for index in (size, -size - 1):
                    with self.assertRaises(IndexError):
                        sequence[index]
                for invalid in ("0", 1.0, None):
                    with self.assertRaises(TypeError):
                        sequence[invalid]  # type: ignore[call-overload]

    def test_slices_sequences(self) -> None:
        self._record_episodes([3, 3, 3])
        with self.make_reader() as reader:
            self.assertEqual(_read_ids(reader.steps[2:5]), [2, 10, 11])
            self.assertEqual(_read_ids(reader.steps[::-4]), [22, 11, 0])
            self.assertEqual(_read_ids(reader.steps[-2:]), [21, 22])
            self.assertEqual(_read_ids(reader.steps[5:5]), [])
            self.assertEqual(
                [_read_ids(e) for e in reader.episodes[1:]], [[10, 11, 12], [20, 21, 22]]
            )

    def test_iterators_are_independent(self) -> None:
        self._record_episodes([2, 2])
        with self.make_reader() as reader:
            steps = reader.steps
            next(iter(steps))
            self.assertEqual(_read_ids(steps), [0, 1, 10, 11])
            self.assertEqual(len([1 for _ in reader.episodes for _ in reader.episodes]), 4)

    def test_each_access_returns_a_new_object(self) -> None:
        self._record_episodes([2])
        with self.make_reader() as reader:
            reader.steps[0].timestep.observation["position"][:] = 99
            reader.episode_metadata()[0]["trial"] = 99
            self.assertEqual(reader.steps[0].timestep.observation["position"][0], 0)
            self.assertEqual(reader.episode_metadata()[0], {"trial": 0})

    def test_picks_single_values(self) -> None:
        self._record_episodes([3, 3])
        fields: list[tuple[Any, ...]] = [("step_type",), ("reward",), ("discount",), ("action",)]
        fields += [("observation", "position"), ("custom_data",), ("custom_data", "stage")]
        with self.make_reader() as reader:
            steps = [2, 0, -1]
            rows = list(reader.pick(1, steps, [*fields, ("observation", "x", 0), ("nothing",)]))
            for step, values in zip(steps, rows):
                record = reader.episodes[1][step]
                expected = [*record.timestep[:3], record.action]
                expected += [record.timestep.observation["position"], record.custom_data]
                stage = record.custom_data["stage"] if record.custom_data else None
                np.testing.assert_equal(values, [*expected, stage, None, None])
            with self.assertRaises(IndexError):
                list(reader.pick(1, [3], fields))
            with self.assertRaises(IndexError):
                list(reader.pick(2, [0], fields))

    def test_copies_arrays_that_the_environment_reuses(self) -> None:
        buffer = _create_observation(0)
        action = np.zeros(2)
        with self.make_writer() as writer:
            for i in range(3):
                buffer["position"][:] = action[:] = i
                timestep = dm_env.transition(0.0, buffer) if i else dm_env.restart(buffer)
                step = StepData(timestep, action if i else None, {"stage": i})
                writer.record_step(step, is_new_episode=i == 0)
            writer.set_episode_metadata({"trial": 0})
        with self.make_reader() as reader:
            positions = [step.timestep.observation["position"][0] for step in reader.steps]
            self.assertEqual(positions, [0, 1, 2])
            self.assertEqual([step.action[0] for step in reader.steps[1:]], [1, 2])

    def test_stores_metadata_of_episodes(self) -> None:
        with self.make_writer() as writer:
            for begin in (0, 10, 20):
                self._record(writer, _create_episode(begin, 2), trial=-1)
                writer.set_episode_metadata({"trial": begin})
        self._check_episodes([[0, 1], [10, 11], [20, 21]], trials=[0, 10, 20])

    def test_reads_missing_metadata_as_none(self) -> None:
        if not self.episode_metadata_is_optional:
            self.skipTest("this backend requires metadata of each episode")
        with self.make_writer() as writer:
            for begin in (0, 10, 20):
                self._record(writer, _create_episode(begin, 2), trial=1 if begin == 10 else None)
        with self.make_reader() as reader:
            self.assertEqual(list(reader.episode_metadata()), [None, {"trial": 1}, None])

    def test_stores_metadata_of_the_dataset(self) -> None:
        if not self.has_dataset_metadata:
            self.skipTest("this backend does not store metadata of the dataset")
        with self.make_writer(metadata={"robot": "arm"}) as writer:
            self._record(writer, _create_episode(0, 2))
        with self.make_reader() as reader:
            self.assertEqual(reader.metadata()["robot"], "arm")

    def test_separates_episodes_whose_first_steps_are_dropped(self) -> None:
        self._record_episodes([3, 3], scheduler=lambda step: not step.timestep.first())
        self._check_episodes([[1, 2], [11, 12]])

    def test_drops_whole_episodes(self) -> None:
        self._record_episodes([2, 2, 2], scheduler=lambda step: _read_id(step) // 10 != 1)
        self._check_episodes([[0, 1], [20, 21]], trials=[0, 20])

    def test_discards_episodes(self) -> None:
        with self.make_writer() as writer:
            for begin in (0, 10, 20, 30):
                self._record(writer, _create_episode(begin, 2), trial=begin)
                if begin in (10, 30):
                    writer.discard_episode()
        self._check_episodes([[0, 1], [20, 21]], trials=[0, 20])

    def test_flush_makes_finished_episodes_visible(self) -> None:
        with self.make_writer() as writer:
            for begin in (0, 10, 20):
                self._record(writer, _create_episode(begin, 2))
            writer.flush()
            with self.make_reader() as reader:
                self.assertEqual([_read_ids(e) for e in reader.episodes[:2]], [[0, 1], [10, 11]])
        self._check_episodes([[0, 1], [10, 11], [20, 21]])

    def test_rejects_a_first_step_within_an_episode(self) -> None:
        with self.make_writer() as writer:
            with self.assertRaises(UsageError):
                writer.record_step(_create_episode(0, 2)[1], is_new_episode=False)
            with self.assertRaises(UsageError):
                writer.set_episode_metadata({"trial": 0})

    def test_rejects_steps_after_closing(self) -> None:
        writer = self.make_writer()
        self._record(writer, _create_episode(0, 2))
        writer.close()
        writer.close()
        with self.assertRaises(UsageError):
            self._record(writer, _create_episode(10, 2))
        with self.assertRaises(UsageError):
            writer.set_episode_metadata({"trial": 1})
        self._check_episodes([[0, 1]])

    def test_counts_steps_after_closing(self) -> None:
        self._record_episodes([2, 2])
        reader = self.make_reader()
        reader.close()
        reader.close()
        self.assertEqual((len(reader.steps), len(reader.episodes)), (4, 2))

    def test_copies_of_a_reader_outlive_the_reader(self) -> None:
        self._record_episodes([2])
        with self.make_reader() as reader:
            other = reader.copy()
        self.assertEqual(_read_ids(other.steps), [0, 1])
        other.close()

    def _record_episodes(self, lengths: Sequence[int], **kwargs: Any) -> list[list[StepData]]:
        """Records episodes whose step IDs begin at 0, 10, 20, …; the first ID is the trial."""
        episodes = [_create_episode(10 * i, length) for i, length in enumerate(lengths)]
        with self.make_writer(**kwargs) as writer:
            for i, episode in enumerate(episodes):
                self._record(writer, episode, trial=10 * i)
        return episodes

    def _record(
        self, writer: BackendWriter, episode: list[StepData], trial: int | None = 0
    ) -> None:
        for step in episode:
            writer.record_step(step, is_new_episode=step.timestep.first())
        if trial is not None:
            writer.set_episode_metadata({"trial": trial})

    def _check_episodes(self, step_ids: list[list[int]], trials: list[int] | None = None) -> None:
        with self.make_reader() as reader:
            self.assertEqual([_read_ids(episode) for episode in reader.episodes], step_ids)
            trials_read = [metadata["trial"] for metadata in reader.episode_metadata() if trials]
            self.assertEqual(trials_read, trials or [])


def _create_episode(begin: int, num_steps: int) -> list[StepData]:
    steps = [StepData(dm_env.restart(_create_observation(begin)), None, {"stage": begin})]
    for step_id in range(begin + 1, begin + num_steps):
        create = dm_env.termination if step_id == begin + num_steps - 1 else dm_env.transition
        timestep = create(reward=step_id / 3, observation=_create_observation(step_id))
        steps.append(StepData(timestep, np.array([step_id, 0.1]), {"stage": step_id}))
    return steps


def _create_observation(step_id: int) -> dict[str, Any]:
    return {
        "number": np.int64(step_id),
        "position": np.array([step_id, 1 / 3, -0.0], np.float32),
        "image": np.full((2, 2, 3), step_id, np.uint8),
    }


def _list_values(step: StepData) -> list[Any]:
    timestep = step.timestep
    observation = [timestep.observation[name] for name in OBSERVATION_SPEC]
    values = [*observation, timestep.reward, timestep.discount, step.action]
    return [*(value for value in values if value is not None), step.custom_data["stage"]]


def _read_id(step: StepData) -> int:
    return int(step.timestep.observation["number"])


def _read_ids(steps: Sequence[StepData]) -> list[int]:
    return [_read_id(step) for step in steps]
