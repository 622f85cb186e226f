"""Checks of the conversion of any source."""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow_datasets as tfds

import rlds
from rlds.conversion import parts
from rlds.sources import reading
from rlds.sources.source import AnySource, DamagedEpisode, Source, SourceEpisode
from rlds.tfds import load
from rlds.tfds.loading import leaves_of_features
from tfds_builders.builder import SourceBuilder, convert


class Interrupted(BaseException):
    """Stands for the end of the process."""


def check_conversion(
    make_source: Callable[[], AnySource],
    directory: Path,
    *,
    builder: type[SourceBuilder] | None = None,
    path: Any = None,
    config: str | None = None,
) -> tfds.core.DatasetBuilder:
    """Converts a source, and checks that the dataset holds it.

    Args:
      make_source: Makes the source anew.
      directory: An empty directory.
      builder: The registered builder that makes the dataset; without one, `convert` does.
      path: The path for that builder.
      config: The config for that builder.

    Returns:
      The dataset.
    """
    if builder is None:
        converted = convert(make_source(), name="converted", data_dir=directory)
    else:
        converted = builder(path=path, config=config, data_dir=directory)
        converted.download_and_prepare()
        loaded = tfds.load(
            f"{builder.name}/{config}" if config else builder.name,
            data_dir=directory,
            split=next(iter(converted.info.splits)),
        )
        assert loaded.cardinality() > 0
    check_against_source(converted, make_source())
    return converted


def check_against_source(builder: tfds.core.DatasetBuilder, source: AnySource) -> None:
    """Checks that a dataset holds the episodes of its source, and is valid."""
    for split in source.splits:
        expected = {
            episode.key: episode
            for part in reading.parts(source, split)
            for episode in reading.episodes(source, split, part)
            if not isinstance(episode, DamagedEpisode)
        }
        dataset = load(builder, split, decode=_stored_in_full(builder))
        report = rlds.validation.validate(dataset)
        assert report.is_valid, report
        assert report.num_episodes == len(expected)
        for episode in dataset.as_numpy_iterator():
            _check_episode(episode, expected[episode["episode_id"].decode()])


def check_resumes(
    make_source: Callable[[], AnySource], directory: Path, expected: dict[str, str]
) -> None:
    """Checks that an interrupted conversion resumes, with the expected result."""
    source = make_source()
    total = sum(
        1
        for split in source.splits
        for part in reading.parts(source, split)
        for _ in reading.episodes(source, split, part)
    )
    read: list[str] = []
    for stop in sorted({1, total // 2}):
        with pytest.raises(Interrupted):
            convert(
                interrupted(make_source(), stop - len(read), read),
                name="converted",
                data_dir=directory / "b",
            )
    resumed = convert(
        interrupted(make_source(), None, read), name="converted", data_dir=directory / "b"
    )
    assert len(set(read)) == total
    assert contents(resumed.data_path) == expected
    paths = list(Path(resumed.data_path).parent.iterdir())
    assert paths == [Path(resumed.data_path)]


def interrupted(source: Source, after: int | None, read: list[str]) -> Source:
    """Returns a source that raises `Interrupted` after some episodes, and notes its reads."""
    num_left = [after]

    def note(split: str, key: str) -> None:
        if num_left[0] == 0:
            raise Interrupted
        read.append(f"{split}/{key}")
        if num_left[0] is not None:
            num_left[0] -= 1

    read_one = source.read

    def read_noted(split: str, index: int, *args: Any) -> SourceEpisode:
        note(split, source.key(split, index))
        return read_one(split, index, *args)

    source.read = read_noted  # type: ignore[method-assign]
    return source


def cut_finely(monkeypatch: pytest.MonkeyPatch, max_episodes: int = 4) -> None:
    """Lowers the episodes of a part, so that a dataset has several parts."""
    for name in ("_MAX_EPISODES", "_MAX_UNKNOWN_EPISODES"):
        monkeypatch.setattr(parts, name, max_episodes)


def contents(directory: Any) -> dict[str, str]:
    """Returns digests of all files of a dataset by name, without those of subfolders."""
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(Path(directory).iterdir())
        if path.is_file()
    }


def records(directory: Any) -> list[str]:
    """Returns digests of the files with the episodes of a dataset."""
    return [digest for name, digest in contents(directory).items() if not name.endswith(".json")]


def _stored_in_full(builder: tfds.core.DatasetBuilder) -> list[str]:
    """The fields to decode: all except images, which are compared as files."""
    leaves = leaves_of_features(builder.info.features[rlds.STEPS].feature)
    return [path for path, feature in leaves if not isinstance(feature, tfds.features.Image)]


def _check_episode(episode: dict[str, Any], expected: SourceEpisode) -> None:
    assert episode["truncated"] == expected.truncated
    assert episode["complete"] == expected.complete
    assert episode["final_observation_known"] == expected.final_observation_known
    assert episode["source"]["begin"] == expected.origin.begin
    _check_equal(expected.steps, episode["steps"], expected.key)
    for name, value in expected.metadata.items():
        _check_equal(value, episode[name], f"{expected.key}/{name}")


def _check_equal(expected: Any, actual: Any, where: str) -> None:
    if isinstance(expected, dict):
        assert expected.keys() == actual.keys(), where
        for name, child in expected.items():
            _check_equal(child, actual[name], f"{where}/{name}")
        return
    if hasattr(actual, "to_list"):  # A ragged tensor.
        assert actual.to_list() == [np.asarray(row).tolist() for row in expected], where
        return
    expected, actual = np.asarray(expected), np.asarray(actual)
    if actual.dtype == object and expected.dtype == np.uint8:
        return  # An image that was encoded.
    if expected.dtype.kind in "US" or expected.dtype == object:
        encoded = [item.encode() if isinstance(item, str) else item for item in expected.flat]
        assert encoded == list(actual.flat), where
        return
    assert actual.dtype == expected.dtype, where
    np.testing.assert_array_equal(actual, expected, err_msg=where)


def to_lists(value: Any) -> Any:
    """Returns a nest of arrays in a form that can be compared, with the dtypes."""
    if isinstance(value, dict):
        return {name: to_lists(child) for name, child in value.items()}
    if isinstance(value, list | tuple):
        return [to_lists(child) for child in value]
    if isinstance(value, np.ndarray | np.generic):
        bits = value.tolist() if value.dtype == object else value.tobytes()
        return str(value.dtype), value.shape, bits
    return value
