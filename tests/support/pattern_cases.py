"""Cases of patterns as plain data: their form, random cases, and expected outputs.

A case is written as in `golden/rlds/pattern_golden.json`, whose `about` explains it.
"""

import functools
import itertools
import operator
import random
import warnings
from typing import Any

import numpy as np
import tensorflow as tf
import tree

DTYPES = {
    "a": "int32",
    "flag": "bool",
    "is_last": "bool",
    "obs": {"p": "int64", "s": "string"},
    "t": {"$tuple": ["uint8", "float32"]},
}

OPERATORS = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def decode(value: Any) -> Any:
    """Decodes the tuples."""
    if isinstance(value, dict) and "$tuple" in value:
        return tuple(map(decode, value["$tuple"]))
    if isinstance(value, dict):
        return {key: decode(item) for key, item in value.items()}
    return [decode(item) for item in value] if isinstance(value, list) else value


def field(structure: Any, path: str) -> Any:
    """Follows a path such as 'observation/image' or 't/0'."""
    for key in path.split("/"):
        structure = structure[int(key) if key.isdigit() else key]
    return structure


def map_references(pattern: Any, function: Any) -> Any:
    """Replaces the references of a pattern."""
    if isinstance(pattern, list):
        return [map_references(item, function) for item in pattern]
    if "$tuple" in pattern:
        return tuple(map_references(item, function) for item in pattern["$tuple"])
    if "$ref" in pattern:
        return function(pattern)
    return {key: map_references(item, function) for key, item in pattern.items()}


def key_of(reference: dict[str, Any]) -> Any:
    """The index of a reference to a field."""
    return slice(*reference["slice"]) if "slice" in reference else reference["index"]


def config_of(config: dict[str, Any], spec: Any, structured_writer: Any) -> Any:
    """Builds a config, with a module that has the functions of `reverb.structured_writer`."""
    pattern = structured_writer.pattern_from_transform(
        spec,
        lambda step: map_references(
            config["pattern"], lambda ref: field(step, ref["$ref"])[key_of(ref)]
        ),
    )
    conditions = [
        condition_of(condition, spec, structured_writer.Condition)
        for condition in config["conditions"]
    ]
    return structured_writer.create_config(pattern, config["table"], conditions)


def condition_of(condition: dict[str, Any], spec: Any, condition_class: Any) -> Any:
    """Builds a condition, with a class that has the functions of `reverb`'s `Condition`."""
    subject = condition["on"]
    if subject == "is_end_episode":
        return condition_class.is_end_episode()
    if isinstance(subject, dict):
        quantity = field(condition_class.data(spec), subject["data"])
    else:
        quantity = getattr(condition_class, subject)()
    if "mod" in condition:
        quantity = quantity % condition["mod"]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".* holds: the remainder is")
        return OPERATORS[condition["op"]](quantity, condition["value"])


def expected_outputs(case: dict[str, Any]) -> list[Any]:
    """Returns the expected outputs of a case: applies the rules step by step."""
    outputs = []
    buffer: list[Any] = []
    step_index = 0
    since_applied = [0] * len(case["configs"])
    for step in itertools.chain(*decode(case["episodes"])):
        buffer.append(step)
        fired: set[int] = set()
        since_applied = [count + 1 for count in since_applied]
        for is_end in (False, True) if step["is_last"] else (False,):
            for index, config in enumerate(case["configs"]):
                values = {
                    "step_index": step_index,
                    "steps_since_applied": since_applied[index],
                    "is_end_episode": is_end,
                }
                references: list[Any] = []
                map_references(config["pattern"], references.append)
                enough = max(map(_reach, references)) <= len(buffer)
                all_hold = all(_holds(c, step, values) for c in config["conditions"])
                if index in fired or not (enough and all_hold):
                    continue
                value_of = functools.partial(_value, buffer)
                outputs.append(map_references(config["pattern"], value_of))
                fired.add(index)
                since_applied[index] = 0
        step_index += 1
        if step["is_last"]:
            step_index = 0
            if case["respect_episode_boundaries"]:
                buffer = []
    return outputs


def _reach(reference: dict[str, Any]) -> int:
    return -(reference["slice"][0] if "slice" in reference else reference["index"])


def _value(buffer: list[Any], reference: dict[str, Any]) -> Any:
    return [field(step, reference["$ref"]) for step in buffer][key_of(reference)]


def _holds(condition: dict[str, Any], step: Any, values: dict[str, Any]) -> bool:
    subject = condition["on"]
    if subject == "is_end_episode":
        return bool(values[subject])
    value = int(field(step, subject["data"]) if isinstance(subject, dict) else values[subject])
    if "mod" in condition:
        value = abs(value) % condition["mod"] * (1 if value >= 0 else -1)
    return bool(OPERATORS[condition["op"]](value, condition["value"]))


def random_case(rng: random.Random) -> dict[str, Any]:
    """Makes a case without known errors of reverb.

    Reverb is wrong if windows have a stride, if configs are not sorted by the length of their
    history, or if a remainder is compared by an operator other than == and !=.
    """
    fields = [
        ("obs/p" if rng.random() < 0.2 else rng.choice(["a", "flag", "obs/s", "t/0", "t/1"]))
        for _ in range(3)
    ]
    are_windows = [rng.random() < 0.5 for _ in fields]
    patterns = [
        [
            _random_window(rng, name) if is_window else _random_index(rng, name)
            for name, is_window in zip(fields, are_windows)
        ]
        for _ in range(rng.choice([1, 1, 2, 3]))
    ]
    patterns.sort(key=lambda references: max(map(_reach, references)))
    return {
        "respect_episode_boundaries": rng.random() < 0.7,
        "dtypes": DTYPES,
        "episodes": _random_episodes(rng),
        "configs": [
            {
                "pattern": {"x": x, "pair": {"$tuple": [y, z]}},
                "conditions": [_random_condition(rng) for _ in range(rng.choice([0, 1, 1, 2]))],
                "table": "t",
            }
            for x, y, z in patterns
        ],
    }


def _random_index(rng: random.Random, name: str) -> dict[str, Any]:
    return {"$ref": name, "index": -rng.randint(1, 4)}


def _random_window(rng: random.Random, name: str) -> dict[str, Any]:
    start = -rng.randint(1, 4)
    stop = rng.choice([None, *range(start + 1, 0)])
    return {"$ref": name, "slice": [start, stop, None]}


def _random_condition(rng: random.Random) -> dict[str, Any]:
    subject: Any = rng.choice(
        ["step_index", "steps_since_applied", "is_end_episode"]
        + [{"data": name} for name in ("a", "flag", "t/0")]
    )
    if subject == "is_end_episode":
        return {"on": subject}
    if rng.random() < 0.3:
        modulo = rng.randint(1, 4)
        value = rng.randint(0, modulo)  # Also the modulo, which no remainder equals.
        return {"on": subject, "op": rng.choice(["==", "!="]), "value": value, "mod": modulo}
    return {"on": subject, "op": rng.choice(list(OPERATORS)), "value": rng.randint(0, 4)}


def _random_episodes(rng: random.Random) -> list[Any]:
    count = itertools.count()
    episodes = []
    for _ in range(rng.randint(1, 5)):
        length = rng.choice([0, 1, 2, 3, 5, 8, 13])
        is_flagged = rng.random() < 0.9
        episodes.append(
            [
                _random_step(
                    rng,
                    next(count),
                    is_last=(is_flagged and i == length - 1) or rng.random() < 0.05,
                )
                for i in range(length)
            ]
        )
    return episodes


def _random_step(rng: random.Random, index: int, is_last: bool) -> dict[str, Any]:
    return {
        "a": rng.randint(-4, 4),
        "flag": rng.random() < 0.5,
        "is_last": is_last,
        "obs": {"p": [index, -index], "s": f"step {index}"},
        "t": {"$tuple": [rng.randint(0, 5), index / 2]},
    }


class World:
    """The episodes of a case as datasets of the installed TensorFlow."""

    def __init__(self, case: dict[str, Any]) -> None:
        self.episodes = decode(case["episodes"])
        self._dtypes = decode(case["dtypes"])
        columns = self._columns([step for episode in self.episodes for step in episode])
        specs = [
            tf.TensorSpec(_common_shape(list(map(np.shape, column))), dtype)
            for column, dtype in zip(columns, tree.flatten(self._dtypes))
        ]
        self.spec = tree.unflatten_as(self._dtypes, specs)

    def nested(self) -> tf.data.Dataset:
        """Episodes with a dataset of steps."""
        return self._join(map(self._dataset, self.episodes))

    def batched(self) -> tf.data.Dataset:
        """Episodes with batched steps."""
        return self._join(map(self.batch, self.episodes))

    def batch(self, episode: list[Any]) -> Any:
        """The steps of an episode as tensors."""
        leaves = [
            tf.reshape(tf.constant(column, spec.dtype), [len(episode), *spec.shape])
            for column, spec in zip(self._columns(episode), tree.flatten(self.spec))
        ]
        return tree.unflatten_as(self._dtypes, leaves)

    def _dataset(self, episode: list[Any]) -> tf.data.Dataset:
        if all(spec.shape.is_fully_defined() for spec in tree.flatten(self.spec)):
            return tf.data.Dataset.from_tensor_slices(self.batch(episode))
        return tf.data.Dataset.from_generator(lambda: iter(episode), output_signature=self.spec)

    def _columns(self, steps: list[Any]) -> list[list[Any]]:
        rows = [tree.flatten_up_to(self._dtypes, step) for step in steps]
        return [[row[i] for row in rows] for i in range(len(tree.flatten(self._dtypes)))]

    def _join(self, steps: Any) -> tf.data.Dataset:
        datasets = [tf.data.Dataset.from_tensors({"steps": of_episode}) for of_episode in steps]
        return functools.reduce(lambda joined, dataset: joined.concatenate(dataset), datasets)


def _common_shape(shapes: list[tuple[int, ...]]) -> list[int | None]:
    first = shapes[0] if shapes else ()
    return [dim if len(set(shapes)) == 1 else None for dim in first]


def as_plain(output: Any) -> Any:
    """Turns the tensors of an output into numbers, strings and lists of them."""

    def plain(leaf: Any) -> Any:
        values = np.asarray(leaf)
        return (values if values.dtype != object else values.astype("U")).tolist()

    return tree.map_structure(plain, output)
