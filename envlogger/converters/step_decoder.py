"""Decodes stored steps with templates of earlier steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import dm_env
from google.protobuf.message import DecodeError

from envlogger.converters import codec
from envlogger.converters.step_template import NoMatchError, Template
from envlogger.errors import DamagedDataError
from envlogger.proto.storage_pb2 import Data
from envlogger.step_data import StepData

__all__ = ["StepDecoder"]

# The maximum number of templates of a decoder: in total, and for records of one size. The codec
# decodes all other steps. (Strings, and integers of various sizes, need many templates.)
_MAX_TEMPLATES = 256
_MAX_TEMPLATES_OF_SIZE = 8
# After some parsed records, templates are learned only while at least one of 8 records matches a
# template: records with video packets would need a template each.
_MIN_PARSED, _MAX_MISSES = 16, 8


class StepDecoder:
    """Decodes steps that `StepEncoder` or any version of EnvLogger has stored.

    Threads may share a decoder.

    >>> record = codec.encode(StepData(dm_env.restart(1.5), action=None)).SerializeToString()
    >>> StepDecoder().decode(record).timestep.observation
    np.float64(1.5)
    """

    def __init__(self) -> None:
        # Templates by record size. The tuples are immutable, because threads may iterate.
        self._templates: dict[int, tuple[Template, ...]] = {}
        self._num_templates = self._num_matched = self._num_parsed = 0

    def __reduce__(self) -> tuple[type[StepDecoder], tuple[()]]:
        return StepDecoder, ()  # Templates are not pickled: they are learned quickly.

    def decode(self, record: bytes) -> StepData:
        """Decodes a step.

        Args:
          record: A serialized step.

        Returns:
          A new step. Its arrays are writable, and share no memory with other objects.

        Raises:
          DamagedDataError: `record` is not a step.
          UnsupportedTypeError: `record` holds an array of integers of any size.
        """
        for template in self._templates.get(len(record), ()):
            try:
                step = template.decode(record)
            except NoMatchError:
                continue
            self._num_matched += 1
            return step
        step = _decode(record)
        self._num_parsed += 1
        if self._num_parsed < _MIN_PARSED or self._num_matched * _MAX_MISSES > self._num_parsed:
            self.learn(record)
        return step

    def learn(self, record: bytes) -> Template | None:
        """Learns a template from a record without one; returns None if there are too many."""
        templates = self.get_templates(len(record))
        if self._num_templates >= _MAX_TEMPLATES or len(templates) >= _MAX_TEMPLATES_OF_SIZE:
            return None
        self._num_templates += 1  # Failed templates count, because they take time, too.
        try:
            template = Template(record)
        except NoMatchError:
            return None
        self._templates[len(record)] = (*templates, template)
        return template

    def get_templates(self, size: int) -> Sequence[Template]:
        """Returns the learned templates of records of a size."""
        return self._templates.get(size, ())


def _decode(record: bytes) -> StepData:
    try:
        data = Data.FromString(record)
    except DecodeError as e:
        raise DamagedDataError(f"a record is not a {Data.DESCRIPTOR.full_name}: {e}") from e
    return _to_step(codec.decode(data))


def _to_step(value: Any) -> StepData:
    match value:
        case ((int(step_type), reward, discount, observation), action, custom_data):
            try:
                kind = dm_env.StepType(step_type)
            except ValueError as e:
                raise DamagedDataError(str(e)) from e
            timestep = dm_env.TimeStep(kind, reward, discount, observation)
            return StepData(timestep, action, custom_data)
    raise DamagedDataError("the record is not a step")
