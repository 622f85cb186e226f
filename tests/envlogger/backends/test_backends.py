"""What every storage backend does: the same stories, told to each."""

import dm_env
import numpy as np
import pytest

import envlogger
from envlogger import StepData
from envlogger.backends import schedulers
from envlogger.backends.in_memory_backend import InMemoryBackendReader, InMemoryBackendWriter
from envlogger.errors import UsageError


class InMemory:
    def writer(self, **kwargs):
        self._writer = InMemoryBackendWriter(**kwargs)
        return self._writer

    def reader(self):
        return InMemoryBackendReader(self._writer)


class Riegeli:
    def __init__(self, directory, **options):
        self._directory = directory
        self._options = options

    def writer(self, **kwargs):
        return envlogger.RiegeliBackendWriter(self._directory, **self._options, **kwargs)

    def reader(self):
        return envlogger.Reader(self._directory)


@pytest.fixture(
    params=["in_memory", "riegeli", "riegeli, two episodes per file", "flushing", "parallel"]
)
def backend(request, tmp_path):
    always = schedulers.NStepScheduler(1)
    return {
        "in_memory": InMemory(),
        "riegeli": Riegeli(tmp_path),
        "riegeli, two episodes per file": Riegeli(tmp_path, max_episodes_per_file=2),
        "parallel": Riegeli(tmp_path, writer_options="transpose,chunk_size:300,parallelism:3"),
        "flushing": Riegeli(tmp_path, flush_scheduler=always, max_episodes_per_file=0),
    }[request.param]


def first(number):
    return StepData(dm_env.restart(np.array([number])), None)


def mid(number):
    return StepData(dm_env.transition(0.5, np.array([number])), np.int32(number))


def last(number):
    return StepData(dm_env.termination(1.0, np.array([number])), np.int32(number))


def record_episode(writer, begin, num_steps=3):
    writer.record_step(first(begin), is_new_episode=True)
    for number in range(begin + 1, begin + num_steps - 1):
        writer.record_step(mid(number), is_new_episode=False)
    writer.record_step(last(begin + num_steps - 1), is_new_episode=False)


def number(step):
    return int(step.timestep.observation[0])


def numbers(steps):
    return [number(step) for step in steps]


def episodes_of(reader):
    return [numbers(episode) for episode in reader.episodes]


def test_steps_come_back_as_they_were(backend):
    with backend.writer() as writer:
        record_episode(writer, 10)
    with backend.reader() as reader:
        begin, middle, end = reader.steps
    assert begin == (dm_env.restart(np.array([10])), None, None)
    assert middle == (dm_env.transition(0.5, np.array([11])), 11, None)
    assert end.timestep.last()
    assert (end.timestep.reward, end.timestep.discount, end.action) == (1.0, 0.0, 12)
    assert isinstance(end, StepData)
    assert isinstance(end.timestep, dm_env.TimeStep)
    assert end.timestep.step_type is dm_env.StepType.LAST


def test_episodes_are_kept_apart(backend):
    with backend.writer() as writer:
        for begin in (0, 10, 20, 30, 40):
            record_episode(writer, begin, num_steps=2 + begin // 10)
    with backend.reader() as reader:
        assert [len(episode) for episode in reader.episodes] == [2, 3, 4, 5, 6]
        assert episodes_of(reader)[2] == [20, 21, 22, 23]
        assert len(reader.steps) == 20
        assert numbers(reader.steps)[:6] == [0, 1, 10, 11, 12, 20]


def test_an_episode_may_end_without_a_last_step(backend):
    with backend.writer() as writer:
        writer.record_step(first(0), is_new_episode=True)
        writer.record_step(first(1), is_new_episode=True)
        writer.record_step(mid(2), is_new_episode=False)
    with backend.reader() as reader:
        assert episodes_of(reader) == [[0], [1, 2]]


def test_nothing_recorded(backend):
    with backend.writer():
        pass
    with backend.reader() as reader:
        assert list(reader.steps) == list(reader.episodes) == list(reader.episode_metadata()) == []


def test_indices_and_slices(backend):
    with backend.writer() as writer:
        for begin in range(0, 60, 10):
            record_episode(writer, begin)
    with backend.reader() as reader:
        for sequence, size in ((reader.steps, 18), (reader.episodes, 6), (reader.episodes[1], 3)):
            assert len(sequence) == size
            np.testing.assert_equal(list(sequence[-1]), list(sequence[size - 1]))
            np.testing.assert_equal(list(sequence[-size]), list(sequence[0]))
            np.testing.assert_equal(list(sequence[np.int64(1)]), list(sequence[1]))
            for index in (size, -size - 1):
                with pytest.raises(IndexError, match=f"index {index} is out of range for {size}"):
                    sequence[index]
            for index in ("0", 1.0, None, (0, 1)):
                with pytest.raises(TypeError):
                    sequence[index]
        assert isinstance(reader.steps[2:5], list)
        assert numbers(reader.steps[2:5]) == [2, 10, 11]
        assert numbers(reader.steps[::-6]) == [52, 32, 12]
        assert numbers(reversed(reader.episodes[0])) == [2, 1, 0]
        assert [numbers(episode) for episode in reader.episodes[4:]] == [[40, 41, 42], [50, 51, 52]]


def test_iterations_do_not_share_a_position(backend):
    with backend.writer() as writer:
        for begin in (0, 10):
            record_episode(writer, begin)
    with backend.reader() as reader:
        steps = reader.steps
        next(step for step in steps if number(step) == 2)
        assert numbers(steps) == [0, 1, 2, 10, 11, 12]
        assert all(number(one) == number(other) for one, other in zip(steps, steps))
        pairs = [(numbers(a), numbers(b)) for a in reader.episodes for b in reader.episodes]
        assert len(pairs) == 4


def test_sequences_outlive_the_reader(backend):
    with backend.writer() as writer:
        record_episode(writer, 0)
    steps = backend.reader().steps
    episode = backend.reader().episodes[0]
    assert numbers(steps) == numbers(episode) == [0, 1, 2]


def test_every_access_makes_a_new_object(backend):
    with backend.writer() as writer:
        record_episode(writer, 0)
        writer.set_episode_metadata({"a": [1]})
    with backend.reader() as reader:
        reader.steps[0].timestep.observation[:] = 99
        reader.episode_metadata()[0]["a"].append(2)
        reader.episode_metadata()[0]["b"] = 3
        assert number(reader.steps[0]) == 0
        assert reader.episode_metadata()[0] == {"a": [1]}


def test_buffers_may_be_reused_by_the_environment(backend):
    buffer = np.array([0])
    metadata = {"list": [1]}
    with backend.writer() as writer:
        for i in range(3):
            buffer[0] = i
            writer.record_step(StepData(dm_env.restart(buffer), buffer), is_new_episode=i == 0)
        writer.set_episode_metadata(metadata)
        metadata["list"].append(2)
    with backend.reader() as reader:
        assert numbers(reader.steps) == [0, 1, 2]
        assert [step.action.tolist() for step in reader.steps] == [[0], [1], [2]]
        assert reader.episode_metadata()[0] == {"list": [1]}


def test_metadata_of_episodes(backend):
    with backend.writer() as writer:
        for begin in range(0, 50, 10):
            record_episode(writer, begin)
            if begin != 20:
                writer.set_episode_metadata({"overwritten": True})
                writer.set_episode_metadata({"begin": begin})
    with backend.reader() as reader:
        assert [m and int(m["begin"]) for m in reader.episode_metadata()] == [0, 10, None, 30, 40]


def test_metadata_of_the_dataset(backend):
    given = {"robot": {"arms": 2}, "tags": ["a"]}
    with backend.writer(metadata=given) as writer:
        given["tags"].append("b")
        assert writer.metadata()["robot"] == {"arms": 2}
    with backend.reader() as reader:
        assert reader.metadata() == {"robot": {"arms": 2}, "tags": ["a"]}
        reader.metadata()["more"] = 1
        assert reader.metadata()["more"] == 1


def test_no_metadata_of_the_dataset(backend):
    with backend.writer():
        pass
    with backend.reader() as reader:
        assert reader.metadata() == {}


def test_copies_of_readers_are_independent(backend):
    with backend.writer(metadata={"a": 1}) as writer:
        record_episode(writer, 0)
    with backend.reader() as reader:
        other = reader.copy()
        other.metadata()["a"] = 2
        assert reader.metadata() == {"a": 1}
    assert numbers(other.steps) == [0, 1, 2]
    assert numbers(other.copy().steps) == [0, 1, 2]
    other.close()


def test_closing_a_reader_again_does_nothing(backend):
    with backend.writer(metadata={"a": 1}) as writer:
        record_episode(writer, 0)
    reader = backend.reader()
    reader.close()
    reader.close()
    assert len(reader.steps) == 3
    assert reader.metadata() == {"a": 1}


# --- Schedulers.


def test_a_scheduler_chooses_steps(backend):
    with backend.writer(scheduler=schedulers.NStepScheduler(2)) as writer:
        for begin in (0, 10):
            record_episode(writer, begin, num_steps=4)
    with backend.reader() as reader:
        assert episodes_of(reader) == [[0, 2], [10, 12]]


def test_an_episode_whose_first_step_is_dropped_stays_an_episode(backend):
    with backend.writer(scheduler=lambda data: not data.timestep.first()) as writer:
        for begin in (0, 10, 20):
            record_episode(writer, begin)
    with backend.reader() as reader:
        assert episodes_of(reader) == [[1, 2], [11, 12], [21, 22]]
        assert numbers(reader.steps) == [1, 2, 11, 12, 21, 22]


def test_the_very_first_step_may_be_dropped(backend):
    with backend.writer(scheduler=schedulers.ListStepScheduler([1, 2])) as writer:
        record_episode(writer, 0)
    with backend.reader() as reader:
        assert episodes_of(reader) == [[1, 2]]


def test_episodes_that_are_dropped_leave_nothing_behind(backend):
    with backend.writer(scheduler=schedulers.NEpisodeScheduler(2)) as writer:
        for begin in (0, 10, 20):
            record_episode(writer, begin)
            writer.set_episode_metadata(begin)
    with backend.reader() as reader:
        assert episodes_of(reader) == [[0, 1, 2], [20, 21, 22]]
        assert list(reader.episode_metadata()) == [0, 20]


def test_metadata_that_is_set_before_the_first_recorded_step_is_kept(backend):
    with backend.writer(scheduler=lambda data: not data.timestep.first()) as writer:
        record_episode(writer, 0)
        writer.record_step(first(10), is_new_episode=True)
        writer.set_episode_metadata("early")
        writer.record_step(mid(11), is_new_episode=False)
    with backend.reader() as reader:
        assert list(reader.episode_metadata()) == [None, "early"]


@pytest.mark.parametrize("seed", range(5))
def test_random_episodes_are_recorded_completely_or_not_at_all(backend, seed):
    scheduler = schedulers.BernoulliEpisodeScheduler(0.5, seed=seed)
    with backend.writer(scheduler=scheduler) as writer:
        for begin in range(0, 100, 10):
            record_episode(writer, begin)
    with backend.reader() as reader:
        recorded = episodes_of(reader)
        assert 0 < len(recorded) < 10
        assert all(episode == [episode[0] + i for i in range(3)] for episode in recorded)


def test_a_choice_of_episodes_counts_those_that_are_cut_off(backend):
    with backend.writer(scheduler=schedulers.NEpisodeScheduler(2)) as writer:
        for begin in range(0, 60, 10):
            writer.record_step(first(begin), is_new_episode=True)
            writer.record_step(mid(begin + 1), is_new_episode=False)
    with backend.reader() as reader:
        assert episodes_of(reader) == [[0, 1], [20, 21], [40, 41]]


# --- Misuse.


def test_the_first_step_must_begin_an_episode(backend):
    with backend.writer() as writer:
        with pytest.raises(UsageError, match="must be recorded with is_new_episode=True"):
            writer.record_step(mid(0), is_new_episode=False)
        with pytest.raises(UsageError, match="there is no episode yet"):
            writer.set_episode_metadata("lost")
    with backend.reader() as reader:
        assert len(reader.steps) == 0


def test_a_closed_writer_refuses_steps(backend):
    writer = backend.writer()
    record_episode(writer, 0)
    writer.close()
    writer.close()
    with pytest.raises(UsageError, match="Writer is closed; make a new one to record more"):
        record_episode(writer, 10)
    with pytest.raises(UsageError, match="Writer is closed"):
        writer.set_episode_metadata("late")
    with backend.reader() as reader:
        assert episodes_of(reader) == [[0, 1, 2]]


def test_unknown_arguments_are_refused(backend):
    with pytest.raises(TypeError, match="unexpected keyword argument 'bogus'"):
        backend.writer(bogus=1)


# --- Recording without an environment.


def test_episodes_without_an_environment(backend):
    with backend.writer() as writer:
        with writer.episode(metadata="a") as record_step:
            record_step(first(1))
            record_step(last(2))
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
        found = [[int(s.timestep.observation[0]) for s in episode] for episode in reader.episodes]
        assert found == [[1, 2], [3], [5]]
        assert list(reader.episode_metadata()) == ["a", None, "d"]


def test_discarding(backend):
    with backend.writer() as writer:
        for number in range(6):
            writer.record_step(first(number), is_new_episode=True)
            writer.set_episode_metadata(number)
            if number % 3 == 1:
                writer.discard_episode()
    with backend.reader() as reader:
        assert [int(step.timestep.observation[0]) for step in reader.steps] == [0, 2, 3, 5]
        assert list(reader.episode_metadata()) == [0, 2, 3, 5]
