"""Contenders that choose some of very many episodes, and make a batch of these.

Each does it in a new process. The table of episodes is there, and so is what a feed keeps.
"""

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from worker import Work

STEPS = 3  # The number of steps of an episode.
FEW = 500  # The number of different episodes, which are repeated.
WHERE = "steps > 2 and \"return\" > 1.5 and key like '%7%'"
# The code of a process, which then prints its peak memory.
FILTER = """from rlds.sources import queries
matches = queries.matching_rows(PATH / TABLE, WHERE, range(10**9))"""
BATCH = """import rlds.feeds
table = rlds.feeds.open(PATH, where=WHERE)
matches = rlds.feeds.Feed(table.steps(), batch_size=256, seed=0)[0]["action"]"""
TABLE = ".rlds/episodes-train.parquet"


def choose(data: Path, size: int, *, code: str) -> Work:
    """Runs code in a separate process."""
    arguments = f"PATH, TABLE, WHERE = Path({str(data / 'many')!r}), {TABLE!r}, {WHERE!r}"
    lines = f"""import sys; sys.path.append({str(Path(__file__).parent)!r})
from pathlib import Path; import worker
{arguments}
{code}
assert len(matches)
print(worker.peak_memory())"""

    def work(_: Path) -> tuple[int, dict[str, float]]:
        command = [sys.executable, "-c", lines]
        output = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout
        return 1, {"megabytes": float(output)}

    return work


def _repeat_table(folder: Path, size: int) -> None:
    """Makes the table of many episodes from that of few, with other returns and digests."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    import rlds.sources
    from rlds.sources import episode_table

    few, rng = rlds.sources.open(folder / "few").table(jobs=1).arrow(), np.random.default_rng(1)
    table = few.take(np.arange(size) % FEW)
    for name, values in {
        "index": np.arange(size),
        "key": np.char.mod("%d", np.arange(size)),
        "return": np.round(rng.random(size) * 3, 3),
        "digest": [*map(bytes, rng.integers(0, 256, (size, 16), np.uint8))],
    }.items():
        column_index = few.schema.get_field_index(name)
        table = table.set_column(column_index, name, pa.array(values, few.schema.field(name).type))
    key = episode_table.key_of(rlds.sources.open(folder / "many").source)
    table = table.unify_dictionaries().replace_schema_metadata({episode_table._METADATA_KEY: key})
    file = folder / "many" / TABLE
    file.parent.mkdir(exist_ok=True)
    pq.write_table(table, file, compression="zstd", row_group_size=episode_table._ROW_GROUP_SIZE)


def write_tfds(folder: Path, size: int) -> None:
    """Writes a dataset of TFDS."""
    import dataset_jobs

    import tfds_files

    dataset_jobs.EPISODE_LENGTH = STEPS
    dataset_jobs.make_dataset(folder / "few", STEPS * FEW)
    features = tfds_files.open_folder(folder / "few").features
    [file] = (folder / "few").glob("*.tfrecord*")
    records = tfds_files.open_record_file(str(file), "tfrecord")
    examples = [records.read(index) for index in range(FEW)]
    options = {"max_examples_per_shard": 50_000}
    with tfds_files.append_to(folder / "many", features, "many", **options) as writer:
        for index in range(size):
            writer.add(examples[index % FEW])
    _repeat_table(folder, size)


def write_lerobot(folder: Path, size: int) -> None:
    """Writes a LeRobot dataset of version 3.0, with the statistics of each episode."""
    import shutil

    import pyarrow as pa
    import pyarrow.parquet as pq
    import raw_lerobot as raw

    names = ("action", raw.STATE, "next.reward", *raw._SCALARS)
    features = {name: raw.FEATURES[name] for name in names}

    def columns_of(lengths: Any) -> list[Mapping[str, Any]]:
        return [{name: episode[name] for name in names} for episode in raw.episodes(lengths)]

    options = {"lengths": (STEPS,) * FEW, "files": (tuple(range(FEW)),), "columns_of": columns_of}
    raw.write_v3(folder / "few", features=features, **options)
    shutil.copytree(folder / "few", folder / "many")
    episodes, file = np.arange(size), "chunk-000/file-000.parquet"
    begins = {"dataset_from_index": STEPS * episodes, "dataset_to_index": STEPS * (episodes + 1)}
    rows = {"episode_index": np.repeat(episodes, STEPS), "index": np.arange(STEPS * size)}
    for name, changed in (
        (f"data/{file}", rows),
        (f"meta/episodes/{file}", {"episode_index": episodes, **begins}),
    ):
        table = pq.read_table(folder / "few" / name)
        table = table.take(np.arange(len(changed["episode_index"])) % len(table))
        for column, values in changed.items():
            table = table.set_column(table.schema.get_field_index(column), column, pa.array(values))
        pq.write_table(table, folder / "many" / name, row_group_size=1000 * STEPS)
    info = folder / "many/meta/info.json"
    text = json.loads(info.read_text()) | {"splits": {"train": f"0:{size}"}}
    info.write_text(json.dumps({**text, "total_episodes": size, "total_frames": STEPS * size}))
    _repeat_table(folder, size)


def write_log(folder: Path, size: int) -> None:
    """Records a log."""
    import recording_jobs

    import envlogger

    seen = recording_jobs.observations("floats")
    for name, count in {"few": FEW, "many": size}.items():
        directory, env = str(folder / name), recording_jobs.Environment(seen, STEPS - 1)
        with envlogger.EnvLogger(env, data_directory=directory) as logger:
            recording_jobs.take_steps(logger, STEPS * count)
    _repeat_table(folder, size)
