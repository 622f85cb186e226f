import os
import shutil

import hostile_sources
import numpy as np
import pytest
from hostile_sources import NAMES, OPENED, OPTIONS

import rlds.sources
from rlds.sources import episode_table, queries, reading
from rlds.sources.digests import digest_of
from rlds.sources.episode_fields import as_converted
from rlds_ecosystem.model.nests import leaves_at

# Fast tests check the complete tables of these formats.
DEEP = ("folder_tfrecord", "lerobot", "logs", "npz", "rlu_rwrl")


class RecordedReads:
    """Records the indices of episodes that are read, and interrupts one read."""

    def __init__(self, monkeypatch, stop_at):
        self.indices, self.stop_at, read = [], stop_at, reading.read

        def record(source, split, index, *args):
            self.indices.append(index)
            if index == self.stop_at:
                raise KeyboardInterrupt
            return read(source, split, index, *args)

        monkeypatch.setattr(reading, "read", record)


@pytest.fixture(scope="module")
def raw_data(tmp_path_factory):
    root = tmp_path_factory.mktemp("raw")
    hostile_sources.write_all(root)
    return root


@pytest.fixture
def dataset(tmp_path):
    """Six episodes of 3, 4, … steps, one npz file each; all rewards of an episode are its index."""
    return write_npz(tmp_path / "data")


def write_npz(folder, count=6):
    folder.mkdir()
    rng = np.random.default_rng(0)
    for index in range(count):
        steps = index + 3
        np.savez(
            folder / f"{index}.npz",
            observation=rng.random((steps, 2)),
            action=rng.random((steps, 1)),
            reward=np.full(steps, index, np.float32),
        )
    return folder


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name in DEEP else pytest.mark.slow) for name in NAMES],
)
def test_rows_describe_the_episodes(raw_data, name, tmp_path, monkeypatch):
    monkeypatch.setenv("RLDS_CACHE_DIR", str(tmp_path))
    path, options = raw_data / name / OPENED[name][0], OPTIONS.get(name, {})
    for split in rlds.sources.open(path, "all", **options).splits:
        episodes = rlds.sources.open(path, split, **options)
        table = episodes.table()
        rows = table.arrow().to_pylist()
        # The folder `.rlds` is no data.
        assert len(rlds.sources.open(path, split, **options)) == len(rows) == len(table)
        stored_lengths = episodes.lengths()
        assert stored_lengths is not None or name not in ("lerobot", "logs")
        summaries = [episode.summary for episode in episodes]
        for lengths, summary_lengths in zip(stored_lengths or (), zip(*summaries)):
            assert lengths is None or lengths.tolist() == [*summary_lengths]
        with_files = rlds.sources.Episodes(
            rlds.sources.reading.with_image_files(episodes.source), split
        )
        for index, row in enumerate(rows):
            assert row["index"] == index
            episode = as_converted(with_files.episode(index))
            assert (row["key"], row["steps"]) == (episode.key, episode.num_steps)
            assert (row["truncated"], row["complete"]) == (episode.truncated, episode.complete)
            assert row["return"] == pytest.approx(episode.total_reward, nan_ok=True)
            assert row["digest"] == digest_of(episode.steps)
            check_statistics(row, episode)


def check_statistics(row, episode):
    for path, column in leaves_at(episode.steps, None):
        statistics = row.get(path)
        if not isinstance(statistics, dict):
            continue
        if path.partition("/")[0] in ("action", "reward", "discount"):
            column = column[:-1] if episode.final_observation_known else column
        values = column[~np.isnan(column)] if column.dtype.kind == "f" else column
        if values.size:
            expected = [float(values.min()), float(values.max()), values.mean(dtype=np.float64)]
            assert [*statistics.values()] == pytest.approx(expected, rel=1e-6)
        elif not column.size:
            assert [*statistics.values()] == [None] * 3


def test_conditions_select_episodes(dataset):
    episodes = rlds.sources.open(dataset, where="steps > 4 and reward.max <> 3")
    assert [episode.num_steps for episode in episodes] == [5, 7, 8]
    assert repr(episodes).endswith("3 episodes)")
    (episode,) = rlds.sources.open(dataset, "train[3:5]", where="steps > 6")
    assert episode.num_steps == 7
    # Selections can be narrowed, and have tables.
    fewer = episodes.where('"return" > 20')
    assert fewer.table().arrow(["index", "steps"]).to_pydict() == {"index": [4, 5], "steps": [7, 8]}
    assert [episode.key for episode in fewer] == [episodes[1].key, episodes[2].key]
    reopened = rlds.sources.open(dataset).select([5, 0])
    assert [episode.num_steps for episode in reopened] == [8, 3]
    with pytest.raises(IndexError):
        reopened.select([2])
    with pytest.raises(IndexError, match="got index 2"):
        reopened.select(np.array([0, 2]))
    joined = rlds.sources.open(dataset, "train[4:]+train[:2]").select(np.array([2, 0, -1, 1]))
    assert [episode.num_steps for episode in joined] == [3, 7, 4, 8]


def test_comparisons_are_false_for_nan(tmp_path):
    """Like in NumPy; `not` and `<>` are false, too, like for NULL."""
    rewards = [[1.0, 2], [np.nan, np.nan], [np.nan, 5], [-1.0, 0], [np.inf, 0]]
    for index, reward in enumerate(rewards):
        steps = {"observation": np.zeros((2, 1)), "action": np.zeros((2, 1))}
        np.savez(tmp_path / f"{index}.npz", reward=np.array(reward), **steps)
    table = rlds.sources.open(tmp_path).table()
    by_episode = [np.array(reward)[~np.isnan(reward)] for reward in rewards]
    biggest = np.array([values.max() if len(values) else np.nan for values in by_episode])
    returns = np.array([np.sum(reward) for reward in rewards])
    for name, values in (("reward.max", biggest), ('"return"', returns)):
        for sign, holds in ((">", values > 1), ("<=", values <= 1), ("=", values == 2)):
            bound = 2 if sign == "=" else 1
            assert table.where(f"{name} {sign} {bound}").tolist() == np.flatnonzero(holds).tolist()
        unknown = np.flatnonzero(np.isnan(values)).tolist()
        assert table.where(f"{name} is null").tolist() == unknown
        assert not {*unknown} & {*table.where(f"not ({name} > 1) or {name} <> 1").tolist()}
    with pytest.raises(ValueError, match="NaN is NULL in the table: write `x is null`"):
        table.where('isnan("return")')


def test_number_counts_the_selected_episodes(dataset):
    episodes = rlds.sources.open(dataset)
    joined = rlds.sources.open(dataset, "train[4:]+train[:2]")
    for chosen in (joined, episodes.select([4, 5, 0, 1]), episodes.select([4, 4, 0, 0])):
        table = chosen.table()
        indices = np.array(table.arrow(["index"])["index"])
        assert table.where("number in (1, 2)").tolist() == [1, 2]
        assert table.where("index = 0").tolist() == np.flatnonzero(indices == 0).tolist()


@pytest.mark.parametrize(
    "condition",
    [
        *("step > 1", "steps >", "", "steps > 1; drop table x", "steps limit 1"),
        *("1=1 union all select 1", "steps in (select 1 from read_csv('/etc/passwd'))"),
        *("exists (from glob('/etc/*'))", "1=1; copy (select 1) to '/tmp/x'"),
        *("1=1; attach '/tmp/x.db'", "key in (from read_text('/etc/passwd'))", "steps > 100"),
        "(select count(*) from range(100000000000) a, range(1000) b where a.range % 7 = 1) > 0",
    ],
)
def test_invalid_or_dangerous_conditions_are_refused(dataset, condition, monkeypatch):
    monkeypatch.setattr("rlds.sources.queries._TIME_LIMIT_S", 0.5)
    with pytest.raises(ValueError, match="where: "):
        rlds.sources.open(dataset, where=condition)


@pytest.mark.parametrize(
    "condition",
    [
        "len(repeat('x', 400000000)) > 0",
        "len(main.\"Repeat\"('x', 2000000000)) > 0",
        "len(range(1000000000)) > 0",
        "len(generate_series(1, 1000000000)) > 0",
        "len(lpad('x', 2000000000, 'y')) > 0",
        "len(list_resize([1], 500000000, 1)) > 0",
        "len(regexp_replace(regexp_replace(key, '', repeat('x', 9), 'g'), '', key, 'g')) > 0",
        "len(replace(replace(key, '', 'xxxxxxxxx'), 'x', 'yyyyyyyyy')) > 0",
        "len(format('{:>2000000000}', key)) > 0",
        "len(printf('%2000000000d', 1)) > 0",
        "len(bar(1, 0, 1, 1000000000)) > 0",
        "sleep_ms(100000) is null",
        "len(list_transform([1, 2], x -> x + 1)) > 0",
        "steps > (select max(steps) from range(3))",
        "sum(steps) over () > 0",
        "len(key::blob::bit::varchar) > 0",
        "cast(null as float[100000000]) is null",
        "len(" + "concat(key, " * 30 + "key" + ")" * 31 + " > 0",
        "(" * 50_000 + "true" + ")" * 50_000,
        "not " * 5_000 + "true",
        "true) or (true",
        "true) limit (1",
        "steps > 1 group by (steps",
    ],
)
def test_conditions_without_bounds_are_refused(dataset, condition):
    with pytest.raises(ValueError, match="where: "):
        rlds.sources.open(dataset, where=condition)


@pytest.mark.parametrize(
    "condition",
    [
        "lower(key) like '%npz%' or upper(key) ilike 'A%'",
        "contains(key, '1') and starts_with(key, '1') and key not like '2_'",
        "regexp_matches(key, '^[0-9]+') and key similar to '[0-9].*' and key ~ '.*'",
        "regexp_extract(key, '([0-9]+)', 1)::int >= 1",
        "split_part(key, '.', 1) in ('0', '1') and len(string_split(key, '.')) >= 1",
        "abs(reward.max) + round(reward.mean, 2) * 2 ** 2 % 3 // 1 >= -100",
        'coalesce("return", 0) between 0 and 100 and steps is not null',
        "case when steps > 3 then true else false end",
        "try_cast(key as integer) is null or cast(steps as double) / 2 > 1",
        "list_contains([3, 4, 5], steps) and steps in (3, 4, 5) and [1, 2][1] = 1",
        "greatest(steps, 3) = steps and sqrt(steps) > 1 and not (steps < 2) and mod(steps, 2) < 2",
        "now() > timestamp '2020-01-01' and date_part('year', current_date) > 2000",
        "key || 'a' <> 'b' and trim(key) = key and substr(key, 1, 1) <> '' and key[1] <> ''",
        " or ".join(f"steps = {steps}" for steps in range(400)),
        f"number in ({', '.join(map(str, range(20_000)))})",
        "true -- a comment",
    ],
)
def test_ordinary_conditions_are_accepted(dataset, condition):
    rlds.sources.open(dataset).where(condition)


def test_errors_suggest_the_intended_columns(dataset):
    for condition, message in (
        ("retur > 1", "no column 'retur'; did you mean 'return'"),
        ("rewards > 1", "no column 'rewards'; did you mean 'reward.min'"),
        ("lenght > 1 and length > 3", r"no column 'lenght'; did you mean 'steps'\? There are: "),
        ("robot = 1", "no column 'robot'; there are: split, index, key, steps, "),
        ("reward = 1", r"""'reward' has min, max, mean: write "reward"\.min$"""),
        (
            "reward.max > 1 and not observation",
            r"""'observation' has .*: write "observation"\.min$""",
        ),
        ("steps > 3 and", "'steps > 3 and': the condition ends too early"),
        ("steps > > 3", "'>' is not expected here"),
        ("key = 'a", "a quote is not closed"),
        ("steps > 'a'", "the text 'a' is compared with a number"),
        ("steps like 'a'", "'like' does not accept a number"),
    ):
        with pytest.raises(ValueError, match=message):
            rlds.sources.open(dataset, where=condition)


def test_table_is_rebuilt_if_a_file_changes(dataset):
    assert len(rlds.sources.open(dataset).table()) == 6
    file = dataset / ".rlds" / "episodes-train.parquet"
    written_at = file.stat().st_mtime_ns
    assert len(rlds.sources.open(dataset, where="true")) == 6
    assert file.stat().st_mtime_ns == written_at
    content = dict(np.load(dataset / "2.npz"))
    np.savez(dataset / "2.npz", **{**content, "reward": content["reward"] + 100})
    assert rlds.sources.open(dataset).table().where("reward.max > 100").tolist() == [2]
    shutil.copy(dataset / "2.npz", dataset / "6.npz")
    assert len(rlds.sources.open(dataset).table()) == 7
    file.write_bytes(file.read_bytes()[:-10])
    assert len(rlds.sources.open(dataset).table()) == 7


def test_the_table_is_cached_elsewhere_if_the_dataset_folder_cannot_be_written(
    dataset, tmp_path, monkeypatch
):
    monkeypatch.setenv("RLDS_CACHE_DIR", str(tmp_path / "cache"))
    (dataset / ".rlds").write_text("This file prevents a folder.")
    assert len(rlds.sources.open(dataset, where="steps > 3")) == 5
    (file,) = (tmp_path / "cache").rglob("*.parquet")
    assert file.name == "episodes-train.parquet"


def test_a_damaged_episode_has_an_error_and_no_values(dataset):
    content = (dataset / "1.npz").read_bytes()
    (dataset / "1.npz").write_bytes(
        content[: len(content) // 2] + b"\xff" + content[len(content) // 2 + 1 :]
    )
    table = rlds.sources.open(dataset).table()
    row = table.arrow().to_pylist()[1]
    assert "1.npz" in row["error"]
    assert row["steps"] is row["digest"] is row["reward"]["max"] is None
    assert table.where("error is null").tolist() == [0, 2, 3, 4, 5]


def test_two_readers_at_the_same_time_build_the_same_table(dataset, tmp_path, monkeypatch):
    """The first removes the drafts of both, and the second does not start again."""
    monkeypatch.setenv("RLDS_CACHE_DIR", str(tmp_path / "cache"))
    read, tables = reading.read, []

    def read_after_other(source, split, index, *args):
        if not tables:
            tables.append(None)
            tables[0] = rlds.sources.open(dataset).table()
        return read(source, split, index, *args)

    monkeypatch.setattr(reading, "read", read_after_other)
    assert rlds.sources.open(dataset).table().arrow() == tables[0].arrow()
    assert [path.name for path in (dataset / ".rlds").iterdir()] == ["episodes-train.parquet"]
    assert not (tmp_path / "cache").exists()


def test_fields_may_have_names_of_functions(dataset):
    queries.check_repeatable("age > 30 and today")


def test_processes_and_tasks_give_the_same_table(dataset, monkeypatch):
    expected = rlds.sources.open(dataset).table().arrow()
    shutil.rmtree(dataset / ".rlds")
    monkeypatch.setattr(episode_table, "_MAX_TASK_EPISODES", 2)
    monkeypatch.setattr(episode_table, "_SERIAL_SECONDS", 0)
    assert rlds.sources.open(dataset).table(jobs=2).arrow().equals(expected)
    assert os.listdir(dataset / ".rlds") == ["episodes-train.parquet"]


def test_interrupted_table_resumes(dataset, monkeypatch):
    expected = rlds.sources.open(dataset).table().arrow()
    shutil.rmtree(dataset / ".rlds")
    monkeypatch.setattr(episode_table, "_MAX_TASK_EPISODES", 2)
    read = RecordedReads(monkeypatch, stop_at=4)
    with pytest.raises(KeyboardInterrupt):
        rlds.sources.open(dataset).table()
    read.stop_at = None
    assert rlds.sources.open(dataset).table().arrow().equals(expected)
    assert read.indices == [0, 1, 2, 3, 4, 4, 5]
