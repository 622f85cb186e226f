"""Common behaviour of the storage backends, beyond the contract for custom backends."""

import dm_env
import pytest

import envlogger
from envlogger import BackendType, StepData
from envlogger.backends import schedulers
from envlogger.backends.in_memory_backend import InMemoryBackendWriter


class InMemory:
    def writer(self, **kwargs):
        self._writer = InMemoryBackendWriter(**kwargs)
        return self._writer

    def reader(self):
        return envlogger.Reader(self._writer, backend=BackendType.IN_MEMORY)


class Riegeli:
    def __init__(self, directory):
        self._directory = directory

    def writer(self, **kwargs):
        return envlogger.RiegeliBackendWriter(self._directory, **kwargs)

    def reader(self):
        return envlogger.Reader(self._directory)


@pytest.fixture(params=["in memory", "riegeli"])
def backend(request, tmp_path):
    return InMemory() if request.param == "in memory" else Riegeli(tmp_path)


def first(value):
    return StepData(dm_env.restart(value), None)


def mid(value):
    return StepData(dm_env.transition(0.5, value), value)


def observations_of(steps):
    return [step.timestep.observation for step in steps]


def record(writer, *observations):
    for i, observation in enumerate(observations):
        writer.record_step(mid(observation) if i else first(observation), is_new_episode=i == 0)


def test_sequences_outlive_the_reader(backend):
    with backend.writer() as writer:
        record(writer, 0, 1, 2)
    steps = backend.reader().steps
    episode = backend.reader().episodes[0]
    assert observations_of(steps) == observations_of(episode) == [0, 1, 2]


def test_metadata_of_the_dataset_is_copied(backend):
    metadata = {"robot": {"arms": 2}, "tags": ["a"]}
    with backend.writer(metadata=metadata) as writer:
        metadata["tags"].append("b")
        assert writer.metadata()["robot"] == {"arms": 2}
    with backend.reader() as reader:
        assert reader.metadata() == {"robot": {"arms": 2}, "tags": ["a"]}
        clone = reader.copy()
        clone.metadata()["more"] = 1
        assert "more" in clone.metadata()  # Always the same dict.
        assert "more" not in reader.metadata()


def test_a_recording_without_dataset_metadata_returns_an_empty_dict(backend):
    backend.writer().close()
    assert backend.reader().metadata() == {}


@pytest.mark.parametrize(
    ("make_scheduler", "expected"),
    [
        (lambda: schedulers.ListStepScheduler([1, 2, 4]), [[1, 2], [11]]),
        # Episodes cut by a reset count, too.
        (lambda: schedulers.NEpisodeScheduler(2), [[0, 1, 2], [20, 21, 22]]),
    ],
)
def test_the_scheduler_chooses_the_recorded_episodes(backend, make_scheduler, expected):
    with backend.writer(scheduler=make_scheduler()) as writer:
        for begin in (0, 10, 20):
            record(writer, begin, begin + 1, begin + 2)
    with backend.reader() as reader:
        assert [observations_of(episode) for episode in reader.episodes] == expected


def test_metadata_that_is_set_before_the_first_recorded_step_is_kept(backend):
    metadata = {"list": [1]}
    with backend.writer(scheduler=lambda data: not data.timestep.first()) as writer:
        record(writer, 0, 1)
        writer.record_step(first(10), is_new_episode=True)
        writer.set_episode_metadata(metadata)
        metadata["list"].append(2)
        writer.record_step(mid(11), is_new_episode=False)
    with backend.reader() as reader:
        assert list(reader.episode_metadata()) == [None, {"list": [1]}]


def test_values_in_tuples_are_picked_by_their_index(backend):
    with backend.writer() as writer:
        record(writer, (1, [2.5]), (3, [4.5]))
    with backend.reader() as reader:
        fields = [("observation", 0), ("observation", 1, 0), ("observation", 2), ("action",)]
        assert list(reader.pick(-1, [1, 0], fields)) == [
            [3, 4.5, None, (3, [4.5])],
            [1, 2.5, None, None],
        ]


def test_episodes_can_be_recorded_without_an_environment(backend):
    with backend.writer() as writer:
        with writer.episode(metadata="a") as record_step:
            record_step(first(1))
            record_step(mid(2))
        with pytest.raises(KeyError), writer.episode() as record_step:
            record_step(first(3))
            raise KeyError
        with writer.episode(metadata="c") as record_step:
            record_step(first(4))
            writer.discard_episode()
        with writer.episode(metadata="d") as record_step:
            record_step(first(5))
        with writer.episode():
            pass
    with backend.reader() as reader:
        assert [observations_of(episode) for episode in reader.episodes] == [[1, 2], [3], [5]]
        assert list(reader.episode_metadata()) == ["a", None, "d"]
