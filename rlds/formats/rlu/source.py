"""The reader of all RL Unplugged products: records of TFRecord files as episodes.

The first record defines the fields (`rlds.formats.rlu.records`), without loss: fields other than
observation, action, reward and discount become metadata of the steps, if they have a value for each
step, or else of the episode.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import itertools
import operator
from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from etils import epath
from typing_extensions import override

import rlds
import tfds_files
from rlds.alignment import from_rsa, from_sars
from rlds.formats.rlu.files import PathOrPaths, count_sets, find_files
from rlds.formats.rlu.products import builder_for
from rlds.formats.rlu.records import (
    ARRIVED,
    STEP_TYPE,
    TRANSITION,
    Alignment,
    FieldError,
    Level,
    Path,
    RecordContents,
    RecordField,
    Values,
    are_whole,
    count,
    field_of_strings,
    num_rows,
    read_fields,
)
from rlds.raw_files.tfrecord_files import TFRecordReader
from rlds.raw_files.untrusted import source_errors
from rlds.sources.source import (
    DamagedEpisode,
    Fields,
    Origin,
    SourceEpisode,
    SourceError,
    SourceInfo,
    Stream,
)
from rlds_ecosystem.model.columns import map_columns
from rlds_ecosystem.model.nests import put

__all__ = ["IS_WINDOW", "PLACEHOLDERS", "RECORDED_ID", "RluSource", "product_of"]

_CITATION = """@inproceedings{gulcehre2020rl,
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
_FINITE_FIELDS = (rlds.REWARD, rlds.DISCOUNT)
RECORDED_ID = "recorded_episode_id"
PLACEHOLDERS, IS_WINDOW = "placeholders", "is_window"


class RluSource(Stream):
    """Episodes in files of RL Unplugged; see the modules of the products.

    A part is a file; the key of an episode is `<file>:<index of the record>`. Ids of the records
    are kept as `recorded_episode_id`; they may be ambiguous (see `repeated_ids`).

    If the rows include the final observation, one action, one reward and one discount of an episode
    belong to no transition. The field `placeholders` of the episode keeps these values.

    Args:
      path: A directory with files, or a file, or a list of files. In a directory the files are
        those with names such as `train-00000-of-00100`.
      prefix: The prefix of the names of the files, up to the first number; None for all files.
      alignment: The order of the rows; None for the default of the product.
      require_unique_ids: Whether repeated ids are an error; the check reads all files.

    Raises:
      FileNotFoundError: There is no such file, or none in the directory.
      SourceError: The first record does not fit the product, for the given reason. The records may
        belong to another builder.
      ValueError: The product has no such alignment.
    """

    # The differences of the products.
    _DESCRIPTION: ClassVar[str]
    builder_name: ClassVar[str]  # The TFDS builder of the product.
    alignments: ClassVar[Sequence[Alignment]]  # The first alignment is the default.
    row_field: ClassVar[str]  # The field with one value a row.
    id_fields: ClassVar[Sequence[str]] = ()  # Fields with a separate value per episode.
    ends_with_observation: ClassVar[bool] = True  # For SAR; always true for RSA.
    action_led_here: ClassVar[bool] = False  # For RSA only.
    has_vectors: ClassVar[bool] = False  # True if observations and actions are float vectors.
    unused_reward_is_zero: ClassVar[bool] = False  # Evidence of the alignment.
    image_fields: ClassVar[Sequence[str]] = ()  # Fields whose values must be PNG files.
    # True if records are pieces of episodes: the last row may lack action, reward and discount.
    are_pieces: ClassVar[bool] = False
    # Paths of fields: in a step if there is a value for each row, or else in the episode; `ARRIVED`
    # is the first name if the values belong to the rewards of their rows. Paths of other fields are
    # their names, split at the separator.
    field_paths: ClassVar[Mapping[str, Path]] = {}
    separator: ClassVar[str] = "/"

    def __init__(
        self,
        path: PathOrPaths,
        *,
        prefix: str | None = None,
        alignment: Alignment | None = None,
        require_unique_ids: bool = False,
    ) -> None:
        if alignment not in (None, *self.alignments):
            raise ValueError(f"alignment: got {alignment!r}, expected one of {self.alignments}")
        self._files = find_files(path, prefix)
        with source_errors(next(iter(self._files))):
            self._check_product()
            self._fields = self._find_fields()
            self.alignment: Alignment = alignment or self.find_alignment()
        for recorded_id, keys in self.repeated_ids().items() if require_unique_ids else ():
            raise SourceError(
                f"{len(keys)} episodes have the id {recorded_id}: {', '.join(keys)}",
                file=keys[0].rpartition(":")[0],
            )

    # --- Declarations of products ----------------------------------------------------------------

    def field_path(self, name: str) -> Path:
        """Returns the path of a field of the records in the dataset; see `field_paths`."""
        return self.field_paths.get(name) or tuple(name.split(self.separator))

    def find_alignment(self) -> Alignment:
        """Returns the order of the rows if none is given."""
        return self.alignments[0]

    def raw_image_shape(self, name: str) -> tuple[int, int, int] | None:
        """Returns the shape of the images in a field of strings, if they are raw values."""
        del name
        return None

    def prepare(self, values: dict[str, Values]) -> dict[str, Values]:
        """Returns the fields of a record with the names of `field_path` and `row_field`.

        Raises:
          FieldError: A field is invalid.
        """
        return values

    # --- The source ------------------------------------------------------------------------------

    @functools.cached_property
    @override
    def fields(self) -> Fields:
        steps: dict[str, Any] = {}
        episode: dict[str, Any] = {}
        for field in self._fields.values():
            if field.level == "episode":
                put(episode, field.path, field.declared())
                continue
            put(steps, _without_mark(field.path), field.declared())
            if self._has_placeholder(field):
                put(episode, (PLACEHOLDERS, *_without_mark(field.path)), field.declared())
        return Fields(steps, {**episode, **({IS_WINDOW: np.bool_} if self.are_pieces else {})})

    @functools.cached_property
    @override
    def source_info(self) -> SourceInfo:
        files = count_sets(self._files.values())
        return SourceInfo(
            description=self._DESCRIPTION,
            homepage="https://github.com/google-deepmind/deepmind-research/tree/master/rl_unplugged",
            citation=_CITATION,
            finite_fields=_FINITE_FIELDS,
            metadata={"alignment": self.alignment, "raw_files": files},
            options={"alignment": self.alignment},
        )

    def inputs(self) -> Sequence[epath.Path]:
        """Returns the files."""
        return list(self._files.values())

    def parts(self, split: str) -> Sequence[str]:
        """Returns the names of the files."""
        del split
        return list(self._files)

    def episodes(
        self, split: str, part: str, after: str | None = None
    ) -> Iterator[SourceEpisode | DamagedEpisode]:
        """Yields the episodes of a file; see `Stream.episodes`."""
        del split
        start = 0 if after is None else int(after.rpartition(":")[2]) + 1
        with TFRecordReader(self._files[part], part) as reader:
            for index in itertools.count():
                try:
                    record = reader.read(check=index >= start)
                    if record is None:
                        return
                    if index < start:
                        continue
                    episode = self._episode(part, index, record, reader.fraction)
                except SourceError as error:
                    if index >= start:
                        yield DamagedEpisode(f"{part}:{index}", error, ends_part=reader.ended)
                    continue
                yield episode

    def repeated_ids(self) -> dict[tuple[int, ...], list[str]]:
        """Returns the ids of several episodes, with the keys of these. Reads all files."""
        fields = [name for name in self.id_fields if name in self._fields]
        keys = collections.defaultdict(list)
        for part, index, values in self.records() if fields else ():
            keys[tuple(int(values[name][0]) for name in fields)].append(f"{part}:{index}")
        return {key: locations for key, locations in keys.items() if len(locations) > 1}

    # --- Records ---------------------------------------------------------------------------------

    def records(self) -> Iterator[tuple[str, int, dict[str, Values]]]:
        """Yields all records: the file, the index, and the fields."""
        for part, index, values in _raw_records(self._files):
            with _errors_of(part, index):
                fields = self.prepare(values)
            yield part, index, fields

    def _check_product(self) -> None:
        """Checks that the records do not belong to another product."""
        builder = _builder_of(self._files)
        if builder not in (None, self.builder_name):
            raise SourceError(
                f"the records belong to another product of RL Unplugged: use the builder "
                f"{builder!r}, not {self.builder_name!r}",
                file=next(iter(self._files)),
            )

    def _find_fields(self) -> dict[str, RecordField]:
        """Returns the fields of the first record with several rows, or else of the first record.

        Only several rows show whether a field has a value for each row or one for all.
        """
        example = None
        for part, index, values in self.records():
            with _errors_of(part, index):
                has_several_rows = num_rows(values, self.row_field) > 1
            if example is None or has_several_rows:
                example = part, index, values
            if has_several_rows:
                break
        if example is None:
            raise SourceError("the files have no records", file=next(iter(self._files)))
        part, index, values = example
        with _errors_of(part, index):
            return self._find_layouts(values)

    def _find_layouts(self, values: Mapping[str, Values]) -> dict[str, RecordField]:
        """Returns the layout of the fields of a record, by name.

        A single value belongs to the episode, except in fields of steps. In pieces of episodes, a
        field may lack the value of the last row. With `has_vectors`, floats are vectors: one value
        per row is a vector of one element, not a scalar, and no value is an empty vector, as of
        walkers without such sensors.

        Raises:
          FieldError: A field does not fit the number of rows, or a required field is missing.
        """
        rows = num_rows(values, self.row_field)
        fields = {}
        for name, column in sorted(values.items()):
            path = self.field_path(name)
            level: Level = "row"
            if len(column) == 1 and path[0] not in (rlds.OBSERVATION, *TRANSITION, STEP_TYPE):
                level = "episode"
            elif self.are_pieces and path[0] in TRANSITION and len(column) == rows - 1 > 0:
                level = "transition"
            width, remainder = divmod(len(column), count(level, rows))
            is_floats = isinstance(column, np.ndarray) and column.dtype == np.float32
            is_vector = self.has_vectors and path[0] in (rlds.OBSERVATION, rlds.ACTION)
            if remainder or not (width or (is_floats and is_vector)):
                problem = f"{len(column)} values, expected a multiple of {rows}"
                raise FieldError(name, f"{problem}, the rows of {self.row_field!r}")
            if isinstance(column, np.ndarray):
                shape = () if width == 1 and not (is_floats and is_vector) else (width,)
                fields[name] = RecordField(path, level, shape, column.dtype, column.dtype)
            elif width > 1:
                raise FieldError(name, f"{width} strings per row, expected one")
            else:
                raw_shape = self.raw_image_shape(name)
                fields[name] = field_of_strings(name, path, level, column, raw_shape)
        roles = {field.path[0] for field in fields.values()}
        for role in (rlds.OBSERVATION, rlds.ACTION, rlds.REWARD, rlds.DISCOUNT):
            if role not in roles:
                raise FieldError(role, f"missing; the record has {sorted(values)}")
        for name, field in fields.items():
            if name in self.image_fields and field.png is None:
                first = values[name][0]
                start = first[:8] if isinstance(first, bytes) else first
                raise FieldError(name, f"not a PNG image: it begins with {start!r}", row=0)
            if field.path[0] in (rlds.REWARD, rlds.DISCOUNT, STEP_TYPE) and field.dtype == object:
                raise FieldError(name, "strings, expected numbers")
        return fields

    def _episode(self, part: str, index: int, record: bytes, fraction: float) -> SourceEpisode:
        values = _parse(part, index, record)
        with _errors_of(part, index):
            contents = read_fields(self.prepare(values), self._fields, self.row_field)
            is_complete = not self.are_pieces
            if STEP_TYPE in contents.rows:
                is_complete = are_whole(contents.rows[STEP_TYPE], is_piece=self.are_pieces)
            metadata = {**contents.episode, **self._placeholders(contents.rows)}
            steps = self._steps(contents)
            self._check_finite(steps)
        return SourceEpisode(
            key=f"{part}:{index}",
            steps=steps,
            origin=Origin(part, index, index + 1),
            truncated=not steps[rlds.IS_TERMINAL][-1],
            final_observation_known=self._is_final_observation_known,
            complete=is_complete,
            metadata={**metadata, **({IS_WINDOW: np.True_} if self.are_pieces else {})},
            fraction=fraction,
        )

    @property
    def _is_final_observation_known(self) -> bool:
        """Whether there is an observation after the last transition."""
        return self.alignment == "rsa" or self.ends_with_observation

    @property
    def _unused_row(self) -> int:
        """The row whose reward belongs to no transition, if there is such a row."""
        return 0 if self.alignment == "rsa" else -1

    def _steps(self, contents: RecordContents) -> dict[str, Any]:
        """Returns the columns of the steps, in the order of RLDS."""
        rows = contents.rows
        transitions = {name: rows.get(name, {}) for name in TRANSITION}
        if self.alignment == "sar" and self.ends_with_observation:
            transitions = map_columns(lambda column: column[:-1], transitions)
        transitions = _merge(transitions, contents.transitions)
        discounts = transitions[rlds.DISCOUNT][1 if self.alignment == "rsa" else 0 :]
        steps: dict[str, Any] = {
            "observation": rows[rlds.OBSERVATION],
            "action": transitions[rlds.ACTION],
            "reward": transitions[rlds.REWARD],
            "discount": transitions[rlds.DISCOUNT],
            "terminal": bool(np.any(discounts[-1:] == 0.0)),
            "transition_metadata": transitions[ARRIVED],
            "observation_metadata": {
                name: columns
                for name, columns in rows.items()
                if name not in (rlds.OBSERVATION, *TRANSITION)
            },
        }
        if self.alignment == "rsa":
            return from_rsa(**steps, action_led_here=self.action_led_here)
        return from_sars(**steps)

    def _has_placeholder(self, field: RecordField) -> bool:
        """Whether one value of a field is a placeholder of no transition."""
        is_known = self._is_final_observation_known
        return is_known and field.level == "row" and field.path[0] in TRANSITION

    def _placeholders(self, rows: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the values of the rows that belong to no transition."""
        if not any(map(self._has_placeholder, self._fields.values())):
            return {}
        self._check_unused_reward(rows)
        placeholders = {}
        for name in TRANSITION:
            is_after = name == rlds.ACTION and not self.action_led_here
            row = -1 if is_after else self._unused_row
            if name in rows:
                placeholders[name] = map_columns(operator.itemgetter(row), rows[name])
        arrived = placeholders.pop(ARRIVED, {})
        return {PLACEHOLDERS: {**placeholders, **arrived}}

    def _check_finite(self, steps: Mapping[str, Any]) -> None:
        """Checks that rewards and discounts are finite; errors name the row in the file."""
        for name in _FINITE_FIELDS:
            invalid = np.flatnonzero(~np.isfinite(steps[name]))
            if len(invalid):
                row = int(invalid[0]) + (self.alignment == "rsa")
                raise FieldError(name, f"{steps[name][invalid[0]]}, expected a finite number", row)

    def _check_unused_reward(self, rows: Mapping[str, Any]) -> None:
        """Checks the order of the rows by the reward that belongs to no transition."""
        if not self.unused_reward_is_zero:
            return
        row = self._unused_row
        reward = rows[rlds.REWARD][row]
        if abs(reward) > 0.0:  # NaN is accepted.
            raise FieldError(
                rlds.REWARD,
                f"{reward}, expected 0: with alignment={self.alignment!r} this reward belongs to "
                f"no transition. Pass one of the alignments {self.alignments}",
                row % len(rows[rlds.REWARD]),
            )


def product_of(path: PathOrPaths) -> str:
    """Returns the name of the format for the records of files."""
    name, file = next(iter(find_files(path, None).items()))
    return (_builder_of({name: file}) or "").removeprefix("rlds_")


def _raw_records(files: Mapping[str, epath.Path]) -> Generator[tuple[str, int, dict[str, Values]]]:
    for part, file in files.items():
        with TFRecordReader(file, part) as reader:
            while (record := reader.read()) is not None:
                index = reader.index - 1
                yield part, index, _parse(part, index, record)


def _builder_of(files: Mapping[str, epath.Path]) -> str | None:
    """Returns the builder for the records of files; None if undecided."""
    with contextlib.closing(_raw_records(files)) as records:

        def read_undamaged() -> Iterator[dict[str, Values]]:
            with contextlib.suppress(SourceError):  # Reading the record raises the error.
                for _, _, values in records:
                    yield values

        return builder_for(read_undamaged())


def _parse(part: str, index: int, record: bytes) -> dict[str, Values]:
    try:
        return tfds_files.parse_example(record)
    except ValueError as error:
        raise SourceError(str(error), file=part, episode=index) from error


@contextlib.contextmanager
def _errors_of(part: str, index: int) -> Iterator[None]:
    """Locates errors in the fields of a record."""
    try:
        yield
    except FieldError as error:
        raise SourceError(
            str(error), file=part, episode=index, row=error.row, field=error.field
        ) from error


def _without_mark(path: Path) -> Path:
    return path[1:] if path[0] == ARRIVED else path


def _merge(columns: Any, additions: Any) -> Any:
    """Merges nested columns."""
    if not isinstance(additions, Mapping):
        return additions
    return {
        **columns,
        **{name: _merge(columns.get(name, {}), child) for name, child in additions.items()},
    }
