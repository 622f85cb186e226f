"""The configuration of bags: the topics of fields, the clock of steps, the bounds of episodes.

A configuration is written in TOML or in Python; a dataset keeps it in its metadata.
"""

from __future__ import annotations

import dataclasses
import json
import os
import tomllib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import rlds
from rlds_ecosystem.model.nests import conflicts, root_of

__all__ = ["BagConfig", "Clock", "EpisodeBounds", "FieldConfig"]

Policy = Literal["hold", "nearest", "linear", "slerp", "window", "first", "next_state"]
Missing = Literal["drop", "null", "error"]
Stamp = Literal["header", "log_time", "publish_time"]
By = Literal["bag", "marker", "metadata", "gap"]


@dataclasses.dataclass(frozen=True)
class Clock:
    """The clock of steps: either a topic or a fixed rate.

    Attributes:
      topic: Each message of this topic is a step.
      rate: The steps per second, between the first and the last time at which all fields have
        values.
      stamp: The time of a message of the topic; see `FieldConfig`.
    """

    topic: str = ""
    rate: float = 0.0
    stamp: Stamp = "header"


@dataclasses.dataclass(frozen=True)
class FieldConfig:
    """A field of a step, and its messages.

    Attributes:
      field: The path of the field, such as `observation/joints`.
      topic: The topic; empty for the policy `next_state`.
      path: The path of a value in the message, such as `pose/position`, or several paths, whose
        numbers are concatenated. A nested message of numbers becomes a vector. Empty for the
        complete message, such as an image; `bytes` for the encoded message.
      order: The names of joints, in the order of the field: values are matched by name, independent
        of their position in a message. By default, the order of the first message.
      names: The path of the names in a message. By default, `name` or `joint_names` if there is a
        name for each value; "none" to match values by position.
      policy: The resampling policy for the value of a step at time t.
        "hold": the last message at or before t. "nearest": the nearest message. "linear":
        interpolation between the two messages around t; "slerp": the same for quaternions
        (x, y, z, w). "window": the last `size` messages at or before t, the oldest first. "first":
        the first message in [t, t + dt), for actions. "next_state": the value of the field `source`
        at the next step, for actions without a recording; the last step has no action, and is the
        final observation.
      size: The number of messages in a "window".
      max_age: The largest distance of a message from t, in seconds.
      missing: The treatment of a step without a value: "drop" drops the step, "null" inserts NaN,
        zeros or empty text, with an age of NaN, and "error" makes the episode damaged.
      stamp: The time of a message. "header" is the stamp in the message, or the log time if the
        stamp is missing or zero.
      source: The field with the values of "next_state".
      dtype: The dtype of numbers; by default, the dtype of the message. JSON has no dtypes.
      unit: The unit of the numbers.
    """

    field: str
    topic: str = ""
    path: str | tuple[str, ...] = ""
    order: tuple[str, ...] = ()
    names: str = ""
    policy: Policy = "hold"
    size: int = 0
    max_age: float = float("inf")
    missing: Missing = "drop"
    stamp: Stamp = "header"
    source: str = ""
    dtype: str = ""
    unit: str = ""


@dataclasses.dataclass(frozen=True)
class EpisodeBounds:
    """The rule that bounds episodes, by the log times of messages.

    Attributes:
      by: "bag": a bag is an episode. "marker": messages of a topic mark episodes. "metadata":
        metadata records of an MCAP file mark episodes. "gap": a pause or a backward jump of the
        clock ends an episode.
      topic: The topic of the markers. `NAME/_service_event` has the calls of a service.
      path: The path of the value in a marker.
      start: The value of a marker at the begin of an episode; by default, any true value.
      stop: The value of a marker at the end of an episode; by default, any value except `start`.
        Without such a marker, an episode ends at the next one, or with the bag; if other episodes
        have such a marker, it is incomplete.
      name: The name of the metadata records.
      begin_key: The key of the begin time of an episode, in nanoseconds.
      end_key: The key of the end time.
      seconds: The length of a pause of the clock that ends an episode.
    """

    by: By = "bag"
    topic: str = ""
    path: str = "data"
    start: Any = None
    stop: Any = None
    name: str = "episode"
    begin_key: str = "start_time"
    end_key: str = "end_time"
    seconds: float = 1.0


@dataclasses.dataclass(frozen=True)
class BagConfig:
    """The configuration of the conversion from recordings to episodes.

    Attributes:
      clock: The clock of the steps.
      fields: The fields of a step.
      episodes: The rule that bounds episodes.
      types: Definitions (.msg) of message types, for files without definitions.

    >>> text = '''
    ... clock = {topic = "/joint_states"}
    ... [[fields]]
    ... field = "observation/joints"
    ... topic = "/joint_states"
    ... path = "position"
    ... '''
    >>> BagConfig.from_toml(text).fields[0].policy
    'hold'
    """

    clock: Clock
    fields: tuple[FieldConfig, ...]
    episodes: EpisodeBounds = EpisodeBounds()
    types: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        _check_values(self.clock, "clock")
        _check_values(self.episodes, "episodes")
        if bool(self.clock.topic) == bool(self.clock.rate) or not self.clock.rate >= 0:
            raise ValueError(f"clock: got {self.clock}, expected either a topic or a rate")
        if self.episodes.by == "marker" and not self.episodes.topic:
            raise ValueError('episodes: by = "marker" needs a topic; set episodes.topic')
        if self.episodes.by == "gap" and (not self.clock.topic or not self.episodes.seconds > 0):
            raise ValueError('episodes: by = "gap" needs clock.topic, and seconds above 0')
        if not self.fields:
            raise ValueError("fields: expected at least one field")
        earlier_fields: dict[str, Any] = {}
        for field in self.fields:
            self._check_field(field, earlier_fields)
            earlier_fields[field.field] = field
        actions = [f for f in self.fields if root_of(f.field) == rlds.ACTION]
        if len({field.policy == "next_state" for field in actions}) > 1:
            raise ValueError("action: expected the policy next_state for all of its fields or none")

    @classmethod
    def load(cls, config: str | os.PathLike[str] | Mapping[str, Any] | BagConfig) -> BagConfig:
        """Returns a bag configuration from a file, a mapping or an object.

        Args:
          config: A configuration, its JSON from `to_json`, its TOML, or the path of a TOML file.

        Raises:
          FileNotFoundError: There is no such file.
          ValueError: The configuration is invalid; the message has the key.
        """
        if isinstance(config, BagConfig):
            return config
        if isinstance(config, Mapping):
            return cls.from_json(config)
        text = os.fspath(config)
        if "\n" not in text:
            text = Path(text).read_text(encoding="utf-8")
        return cls.from_toml(text)

    @classmethod
    def from_toml(cls, text: str) -> BagConfig:
        """Reads TOML; see `load`."""
        return cls.from_json(tomllib.loads(text))

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> BagConfig:
        """Reads the JSON of `to_json`; see `load`."""
        defaults: dict[str, Any] = {"clock": {}, "fields": [], "episodes": {}, "types": {}}
        _check_names(content, defaults, "bag_config")
        clock, fields, episodes, types = {**defaults, **content}.values()
        if not isinstance(fields, list | tuple) or not isinstance(types, Mapping):
            raise ValueError("fields: expected tables [[fields]]; types: expected a table")
        return cls(
            _read(Clock, clock, "clock"),
            tuple(_read(FieldConfig, item, f"fields[{i}]") for i, item in enumerate(fields)),
            _read(EpisodeBounds, episodes, "episodes"),
            {str(name): str(text) for name, text in types.items()},
        )

    def to_json(self) -> dict[str, Any]:
        """Returns the bag configuration in the types of JSON, without defaults."""
        content: dict[str, Any] = {
            "clock": _drop_defaults(self.clock),
            "fields": [_drop_defaults(field) for field in self.fields],
        }
        if episodes := _drop_defaults(self.episodes):
            content["episodes"] = episodes
        if self.types:
            content["types"] = dict(self.types)
        return content

    def to_toml(self) -> str:
        """Returns the bag configuration in TOML."""
        lines = []
        for name, table in self.to_json().items():
            for item in table if name == "fields" else [table]:
                lines.append(f"[[{name}]]" if name == "fields" else f"[{name}]")
                lines += [f"{_key(key)} = {json.dumps(value)}" for key, value in item.items()]
                lines.append("")
        return "\n".join(lines)

    def field(self, path: str) -> FieldConfig:
        """Returns the configuration of a field.

        Raises:
          KeyError: There is no such field.
        """
        return next(field for field in self.fields if field.field == path)

    def _check_field(self, field: FieldConfig, earlier_fields: Mapping[str, Any]) -> None:
        label = f"field {field.field!r}"
        _check_values(field, label)
        reserved_names = (*rlds.STEP_FLAGS, "stamps", "ages", "timestamp", "video")
        if not field.field or root_of(field.field) in reserved_names:
            raise ValueError(f"{label}: the name is reserved or empty; choose another")
        if field.field in earlier_fields or conflicts(earlier_fields, field.field):
            raise ValueError(f"{label}: two fields have this name, or one lies below the other")
        if field.policy != "next_state":
            if not field.topic:
                raise ValueError(f"{label}: the topic is missing")
        else:
            sources = [other.field for other in self.fields if other.policy != "next_state"]
            if field.source not in sources or root_of(field.field) != rlds.ACTION:
                raise ValueError(
                    f"{label}: next_state makes an action from an observation field; source: "
                    f"got {field.source!r}, expected one of {sources}"
                )
        if (field.policy == "window") != (field.size > 0):
            raise ValueError(
                f"{label}: size: got {field.size}; only the policy window has a size, and needs it"
            )
        if not field.max_age >= 0:
            raise ValueError(f"{label}: max_age: got {field.max_age}, expected 0 seconds or more")


def _read(kind: Any, content: Any, label: str) -> Any:
    """Converts a table to a dataclass; an error names the invalid key."""
    fields = dataclasses.fields(kind)
    _check_names(content, [field.name for field in fields], label)
    required_names = [field.name for field in fields if field.default is dataclasses.MISSING]
    if missing := [name for name in required_names if name not in content]:
        raise ValueError(f"{label}: {missing[0]} is missing")
    values = {
        name: tuple(map(str, value)) if isinstance(value, list) else value
        for name, value in content.items()
    }
    return kind(**values)


def _check_names(content: Any, names: Collection[str], label: str) -> None:
    """Checks that a table has no unexpected keys."""
    if not isinstance(content, Mapping):
        raise ValueError(f"{label}: got {content!r}, expected a table")
    if unknown_names := [name for name in content if name not in names]:
        raise ValueError(f"{label}: got {unknown_names[0]!r}, expected one of {', '.join(names)}")


def _check_values(item: Any, label: str) -> None:
    """Checks the types of the attributes of a dataclass."""
    for name, hint in get_type_hints(type(item)).items():
        value, choices = getattr(item, name), get_args(hint)
        if get_origin(hint) is Literal and value not in choices:
            raise ValueError(f"{label}: {name}: got {value!r}, expected {', '.join(choices)}")
        if not isinstance(value, _TYPES_OF_HINTS.get(hint, object)):
            raise ValueError(f"{label}: {name}: got {value!r}, expected {hint}")


_TYPES_OF_HINTS: Mapping[Any, Any] = {
    **{str: str, int: int, float: (int, float), tuple[str, ...]: tuple},
    str | tuple[str, ...]: (str, tuple),
}


def _drop_defaults(item: Any) -> dict[str, Any]:
    """Returns the attributes of a dataclass that differ from the defaults, in types of JSON."""
    values = {}
    for field in dataclasses.fields(item):
        value = getattr(item, field.name)
        if value != field.default:
            values[field.name] = list(value) if isinstance(value, tuple) else value
    return values


def _key(name: str) -> str:
    return name if name.replace("_", "").isalnum() else json.dumps(name)
