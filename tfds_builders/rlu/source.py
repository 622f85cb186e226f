"""What the five products of RL Unplugged have in common: episodes as records of TFRecord files.

What a record holds is found out from the first one (`tfds_builders.rlu.records`), and nothing of it
is left out: what is not an observation, an action, a reward or a discount becomes metadata of the
steps, if there is a value for each, or of the episode.
"""

from __future__ import annotations

import abc
import collections
import contextlib
import dataclasses
import itertools
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np
import tensorflow_datasets as tfds
from etils import epath

import rlds
from tfds_builders.alignment import from_rsa, from_sars
from tfds_builders.builder import SourceBuilder
from tfds_builders.nests import put
from tfds_builders.rlu.records import (
    Field,
    FieldError,
    Path,
    Values,
    lay_out,
    num_rows,
    parse_example,
    read_fields,
)
from tfds_builders.source import (
    DamagedEpisode,
    Origin,
    Source,
    SourceEpisode,
    SourceError,
    require_files,
)
from tfds_builders.tfrecord_files import TFRecordReader

__all__ = [
    "ARRIVED",
    "BUCKET",
    "PLACEHOLDERS",
    "RECORDED_ID",
    "Alignment",
    "RluBuilder",
    "RluConfig",
    "RluSource",
    "published",
]

# The order of the rows, see `tfds_builders.alignment`.
Alignment: TypeAlias = Literal["sar", "rsa"]

# Where all is published, for everybody to read.
BUCKET = "gs://rl_unplugged"

RECORDED_ID = "recorded_episode_id"
PLACEHOLDERS = "placeholders"
# Stands before the names of fields that belong to the reward of their row.
ARRIVED = "<arrived>"

_STEP_TYPE = "step_type"
_FIRST, _MID, _LAST = 0, 1, 2
_TRANSITION = (rlds.ACTION, rlds.REWARD, rlds.DISCOUNT, ARRIVED)
_FILE_NAME = re.compile(r"(?P<prefix>.+)-(?P<index>\d{5})-of-(?P<number>\d{5})")


class RluSource(Source):
    """Episodes in files of RL Unplugged; see the modules of the products.

    A part is a file; the key of an episode is `<file>:<index of the record>`. Ids that the records
    have are kept as `recorded_episode_id`; nothing says that they are unique (see `repeated_ids`).

    Where the rows include the final observation, one action, one reward and one discount of an
    episode belong to no transition. They are kept in `placeholders`, a field of the episode, so
    that nothing is lost.

    Args:
      path: A directory with files, or a file, or a list of files. In a directory the files are
        those with names such as `train-00000-of-00100`.
      prefix: Only files of the directory whose names begin so, up to the first number.
      alignment: The order of the rows; what the module of the product says if None.
      require_unique_ids: Whether repeated ids are an error. To find them all files are read.

    Raises:
      FileNotFoundError: There is no such file, or none in the directory.
      SourceError: The first record is not what the product has; says how.
      ValueError: The product has no such alignment.
    """

    homepage = "https://github.com/google-deepmind/deepmind-research/tree/master/rl_unplugged"
    citation = """@inproceedings{gulcehre2020rl,
  title = {RL Unplugged: A Suite of Benchmarks for Offline Reinforcement Learning},
  author = {Gulcehre, Caglar and Wang, Ziyu and Novikov, Alexander and Paine, Thomas and
            G{\\'o}mez, Sergio and Zolna, Konrad and Agarwal, Rishabh and Merel, Josh S and
            Mankowitz, Daniel J and Paduraru, Cosmin and Dulac-Arnold, Gabriel and Li, Jerry and
            Norouzi, Mohammad and Hoffman, Matthew and Heess, Nicolas and de Freitas, Nando},
  booktitle = {Advances in Neural Information Processing Systems},
  volume = {33},
  pages = {7248--7259},
  year = {2020}
}"""
    finite_fields = (rlds.REWARD, rlds.DISCOUNT)

    # What the products differ in.
    alignments: ClassVar[Sequence[Alignment]]  # The first is the default.
    row_field: ClassVar[str]  # Has one value per row.
    id_fields: ClassVar[Sequence[str]] = ()  # What is meant to tell episodes apart.
    ends_with_observation: ClassVar[bool] = True  # In the order SAR; in RSA that is always so.
    action_led_here: ClassVar[bool] = False  # In the order RSA.
    has_vectors: ClassVar[bool] = False  # Whether observations and actions are vectors of floats.
    unused_reward_is_zero: ClassVar[bool] = False  # Whether that tells one order from the other.

    def __init__(
        self,
        path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        *,
        prefix: str | None = None,
        alignment: Alignment | None = None,
        require_unique_ids: bool = False,
    ) -> None:
        if alignment not in (None, *self.alignments):
            raise ValueError(f"alignment: got {alignment!r}, expected one of {self.alignments}")
        self._files = _find_files(path, prefix)
        self._layout = self._discover()
        self.alignment: Alignment = alignment or self.find_alignment()
        for recorded_id, keys in self.repeated_ids().items() if require_unique_ids else ():
            raise SourceError(
                f"{len(keys)} episodes have the id {recorded_id}: {', '.join(keys)}",
                file=keys[0].rpartition(":")[0],
            )

    # --- What a product says ---------------------------------------------------------------------

    @abc.abstractmethod
    def place(self, name: str) -> Path:
        """Returns where a field of the records goes.

        That is a path in a step if there is a value for each row, or else in the episode; `ARRIVED`
        goes before it if the values belong to the rewards of their rows.
        """

    def find_alignment(self) -> Alignment:
        """Returns the order of the rows if none is given."""
        return self.alignments[0]

    def raw_image_shape(self, name: str) -> tuple[int, int, int] | None:
        """Returns the shape of the images in a field of strings, if they are raw values."""
        del name
        return None

    # --- The source ------------------------------------------------------------------------------

    def step_features(self) -> Mapping[str, Any]:
        """Returns the features of a step; see `Source`."""
        features: dict[str, Any] = {}
        for field in self._layout.values():
            if field.per_row:
                put(features, _without_mark(field.path), field.feature())
        return features

    def episode_features(self) -> Mapping[str, Any]:
        """Returns the features of an episode; see `Source`."""
        features: dict[str, Any] = {}
        for field in self._layout.values():
            if not field.per_row:
                put(features, field.path, field.feature())
            elif self._is_final_observation_known and field.path[0] in _TRANSITION:
                put(features, (PLACEHOLDERS, *_without_mark(field.path)), field.feature())
        return features

    def metadata(self) -> Mapping[str, Any]:
        """Returns the order of the rows, and how many files of each published set there are."""
        files: dict[str, dict[str, int]] = {}
        for file in self._files.values():
            match = _FILE_NAME.fullmatch(file.name)
            if match is not None:
                of_set = files.setdefault(match["prefix"], {"of": int(match["number"]), "found": 0})
                of_set["found"] += 1
        return {"alignment": self.alignment, "raw_files": files}

    def inputs(self) -> Sequence[epath.Path]:
        """Returns the files."""
        return list(self._files.values())

    def options(self) -> Mapping[str, Any]:
        """Returns the order of the rows."""
        return {"alignment": self.alignment}

    def parts(self, split: str) -> Sequence[str]:
        """Returns the names of the files."""
        del split
        return list(self._files)

    def episodes(
        self, split: str, part: str, after: str | None = None
    ) -> Iterator[SourceEpisode | DamagedEpisode]:
        """Yields the episodes of a file; see `Source.episodes`."""
        del split
        begin = 0 if after is None else int(after.rpartition(":")[2]) + 1
        with TFRecordReader(self._files[part], part) as reader:
            for index in itertools.count():
                try:
                    record = reader.read(check=index >= begin)
                    if record is None:
                        return
                    if index < begin:
                        continue
                    episode = self._episode(part, index, record)
                except SourceError as error:
                    if index >= begin:
                        yield DamagedEpisode(f"{part}:{index}", error, ends_part=reader.ended)
                    continue
                yield dataclasses.replace(episode, fraction=reader.fraction)

    def repeated_ids(self) -> dict[tuple[int, ...], list[str]]:
        """Returns ids that several episodes have, and the keys of these. Reads all files."""
        fields = [name for name in self.id_fields if name in self._layout]
        keys = collections.defaultdict(list)
        for part, index, values in self.records() if fields else ():
            keys[tuple(int(values[name][0]) for name in fields)].append(f"{part}:{index}")
        return {recorded_id: found for recorded_id, found in keys.items() if len(found) > 1}

    # --- Records ---------------------------------------------------------------------------------

    @property
    def _is_final_observation_known(self) -> bool:
        return self.alignment == "rsa" or self.ends_with_observation

    def records(self) -> Iterator[tuple[str, int, dict[str, Values]]]:
        """Yields all records: the file, the index, and the fields."""
        for part, file in self._files.items():
            with TFRecordReader(file, part) as reader:
                while (record := reader.read()) is not None:
                    index = reader.index - 1
                    yield part, index, self._values(part, index, record)

    def _values(self, part: str, index: int, record: bytes) -> dict[str, Values]:
        try:
            return parse_example(record)
        except ValueError as error:
            raise SourceError(str(error), file=part, episode=index) from error

    def _discover(self) -> dict[str, Field]:
        """Lays out the fields by the first record with several rows: it tells them from one value.

        If there is none, the first record has to do.
        """
        chosen = None
        for part, index, values in self.records():
            with _errors_of(part, index):
                has_several_rows = num_rows(values, self.row_field) > 1
            if chosen is None or has_several_rows:
                chosen = part, index, values
            if has_several_rows:
                break
        if chosen is None:
            raise SourceError("none of the files has a record", file=next(iter(self._files)))
        part, index, values = chosen
        with _errors_of(part, index):
            return self._lay_out(values)

    def _lay_out(self, values: Mapping[str, Values]) -> dict[str, Field]:
        layout = lay_out(
            values,
            row_field=self.row_field,
            place=self.place,
            is_of_episode=lambda path: path[0] not in (rlds.OBSERVATION, *_TRANSITION, _STEP_TYPE),
            is_vector=lambda path: self.has_vectors and path[0] in (rlds.OBSERVATION, rlds.ACTION),
            raw_image_shape=self.raw_image_shape,
        )
        found = {field.path[0] for field in layout.values()}
        for role in (rlds.OBSERVATION, rlds.ACTION, rlds.REWARD, rlds.DISCOUNT):
            if role not in found:
                raise FieldError(role, f"there is none; the record has {sorted(values)}")
        return layout

    def _episode(self, part: str, index: int, record: bytes) -> SourceEpisode:
        values = self._values(part, index, record)
        with _errors_of(part, index):
            rows, metadata = read_fields(values, self._layout, self.row_field)
            is_complete = _STEP_TYPE not in rows or _is_complete(rows[_STEP_TYPE])
            if self._is_final_observation_known:
                self._check_placeholders(rows)
                metadata[PLACEHOLDERS] = self._placeholders(rows)
            steps = self._aligned(rows)
            self._check_finite(steps)
        return SourceEpisode(
            key=f"{part}:{index}",
            steps=steps,
            origin=Origin(part, index, index + 1),
            truncated=not steps[rlds.IS_TERMINAL][-1],
            final_observation_known=self._is_final_observation_known,
            complete=is_complete,
            metadata=metadata,
        )

    def _aligned(self, rows: Mapping[str, Any]) -> dict[str, Any]:
        others = {
            name: columns
            for name, columns in rows.items()
            if name not in (rlds.OBSERVATION, *_TRANSITION)
        }
        transitions = {name: rows.get(name, {}) for name in _TRANSITION}
        if self.alignment == "sar" and self.ends_with_observation:
            transitions = _map(transitions, lambda column: column[:-1])
        discounts = transitions[rlds.DISCOUNT][1 if self.alignment == "rsa" else 0 :]
        fields: dict[str, Any] = {
            "observation": rows[rlds.OBSERVATION],
            "action": transitions[rlds.ACTION],
            "reward": transitions[rlds.REWARD],
            "discount": transitions[rlds.DISCOUNT],
            "terminal": bool(np.any(discounts[-1:] == 0.0)),
            "transition_metadata": transitions[ARRIVED],
            "observation_metadata": others,
        }
        if self.alignment == "rsa":
            return from_rsa(**fields, action_led_here=self.action_led_here)
        return from_sars(**fields)

    def _placeholders(self, rows: Mapping[str, Any]) -> dict[str, Any]:
        """The values that belong to no transition."""
        row = 0 if self.alignment == "rsa" else -1
        action_row = row if self.alignment == "sar" or self.action_led_here else -1
        return {
            rlds.ACTION: _map(rows[rlds.ACTION], lambda column: column[action_row]),
            rlds.REWARD: rows[rlds.REWARD][row],
            rlds.DISCOUNT: rows[rlds.DISCOUNT][row],
            **_map(rows.get(ARRIVED, {}), lambda column: column[row]),
        }

    def _check_finite(self, steps: Mapping[str, Any]) -> None:
        """Checks rewards and discounts here, where it is known which rows they are from."""
        for name in self.finite_fields:
            wrong = np.flatnonzero(~np.isfinite(steps[name]))
            if len(wrong):
                row = int(wrong[0]) + (self.alignment == "rsa")
                raise FieldError(name, f"{steps[name][wrong[0]]}, expected a finite number", row)

    def _check_placeholders(self, rows: Mapping[str, Any]) -> None:
        """Checks the order of the rows by the reward that belongs to no transition."""
        row = 0 if self.alignment == "rsa" else len(rows[rlds.REWARD]) - 1
        reward = rows[rlds.REWARD][row]
        if self.unused_reward_is_zero and abs(reward) > 0.0:  # NaN is none either.
            raise FieldError(
                rlds.REWARD,
                f"{reward}, but with alignment={self.alignment!r} this reward belongs to no "
                f"transition; expected one of {self.alignments}",
                row,
            )


@dataclasses.dataclass
class RluConfig(tfds.core.BuilderConfig):  # type: ignore[misc]
    """Which files are converted, and how.

    Attributes:
      directory: Their folder in the bucket that RL Unplugged is published in.
      prefix: What their names begin with, up to `-00000-of-...`; None for all files.
      num_files: How many were published.
      alignment: The order of their rows; None for that of the product.
    """

    directory: str = ""
    prefix: str | None = None
    num_files: int | None = None
    alignment: Alignment | None = None


class RluBuilder(SourceBuilder, skip_registration=True):  # type: ignore[call-arg]
    """A builder for a product of RL Unplugged.

    There is a config for each published dataset. The default, `files`, is for any other files of
    the product, and needs a `path`. Another order of rows is asked for with a config of one's own,
    such as `config=RluConfig(name="shifted", alignment="rsa")`.
    """

    VERSION = tfds.core.Version("1.0.0")
    RELEASE_NOTES: ClassVar[dict[str, str]] = {"1.0.0": "Initial release."}
    source_class: ClassVar[type[RluSource]]

    def make_source(self, path: epath.Path) -> RluSource:
        """Returns the source for the files of the config, see `SourceBuilder`."""
        config = self.builder_config
        return self.source_class(path, prefix=config.prefix, alignment=config.alignment)

    def raw_name(self) -> str:
        """Returns the folder of the files below the `manual_dir`, as in the bucket."""
        return str(self.builder_config.directory)

    def url(self) -> str | None:
        """Returns where the files were published."""
        directory = self.builder_config.directory
        return f"{BUCKET}/{directory}" if directory else None


def published(configs: Iterable[RluConfig]) -> list[RluConfig]:
    """Returns the configs of a builder: these, and the default."""
    made = [RluConfig(name="files", description="Files that are given by their path.")]
    for config in configs:
        name = f"{config.prefix}-00000-of-{config.num_files:05d}"
        config.description = f"The files {BUCKET}/{config.directory}/{name} and following."
        made.append(config)
    return made


@contextlib.contextmanager
def _errors_of(part: str, index: int) -> Iterator[None]:
    """Tells in which record a field is not as it has to be."""
    try:
        yield
    except FieldError as error:
        raise SourceError(
            str(error), file=part, episode=index, row=error.row, field=error.field
        ) from error


def _is_complete(step_types: np.ndarray) -> bool:
    """Whether the last row is that of the end.

    Raises:
      FieldError: Another row is that of the end, or of a beginning; or the first one is not.
    """
    expected = np.full(len(step_types), _MID)
    expected[-1] = _LAST
    expected[0] = _FIRST  # An episode of one row has only begun.
    wrong = np.flatnonzero(step_types != expected)
    if wrong.tolist() == [len(step_types) - 1] and step_types[-1] == _MID:
        return False
    if len(wrong):
        row = int(wrong[0])
        raise FieldError(
            _STEP_TYPE, f"{step_types[row]:g}, expected {expected[row]} (0 first, 1, 2 last)", row
        )
    return len(step_types) > 1


def _find_files(
    path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]], prefix: str | None
) -> dict[str, epath.Path]:
    """Returns files by names that are the same wherever they are."""
    if not isinstance(path, (str, os.PathLike)):
        return _named(require_files(*path))
    directory = epath.Path(path)
    if not directory.is_dir():
        return _named(require_files(directory))
    names = sorted(file.name for file in directory.iterdir())
    matches = [match for match in map(_FILE_NAME.fullmatch, names) if match]
    chosen = [match[0] for match in matches if prefix in (None, match["prefix"])]
    if not chosen:
        raise FileNotFoundError(
            f"{os.fspath(directory)!r} has no file with a name such as "
            f"{prefix or 'train'}-00000-of-00100; it has {names[:5]}."
        )
    return {name: directory / name for name in chosen}


def _named(files: Sequence[epath.Path]) -> dict[str, epath.Path]:
    """Names files by as much of the ends of their paths as it takes to tell them apart."""
    if not files:
        raise FileNotFoundError("No files were given.")
    for depth in range(1, 1 + max(len(file.parts) for file in files)):
        names = {"/".join(file.parts[-depth:]): file for file in files}
        if len(names) == len(files):
            return names
    raise ValueError(f"a file is there twice: {[os.fspath(file) for file in files]}")


def _without_mark(path: Path) -> Path:
    return path[1:] if path[0] == ARRIVED else path


def _map(columns: Any, fn: Callable[[Any], Any]) -> Any:
    if isinstance(columns, Mapping):
        return {name: _map(child, fn) for name, child in columns.items()}
    return fn(columns)
