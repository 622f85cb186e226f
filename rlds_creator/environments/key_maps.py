"""Key maps: the mapping of the inputs of a person to actions, generated from an action spec.

    keys = key_map(environment.action_spec(), overrides={"KeyF": "fire"}, meanings=["wait", "fire"])
    keys.controls, keys.action(Inputs({"KeyF": 1.0}, ["KeyF"]))

`Choices` is for discrete actions: a table has an action for each key. `Axes` is for arrays: inputs
change the elements. `Composite` is for dicts and tuples: each component has keys of its own.
"""

from __future__ import annotations

import abc
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import dm_env
import numpy as np
from dm_env import specs
from typing_extensions import override

from rlds_creator.environments.mujoco_pictures import MuJoCoPictures
from rlds_creator.environments.playable import Control, Inputs, Playable, versions_of

__all__ = ["WAIT_KEY", "Axes", "Choices", "Composite", "KeyMap", "KeyedPlayable", "key_map"]

WAIT_KEY = "Period"
"""The key of the idle action, to wait in an environment with a step for each input."""

# The smallest value of an axis or a trigger that counts as a held key.
_HELD_THRESHOLD = 0.5
# Larger bounds are ignored: many spaces use the largest value of their dtype.
_MAX_BOUND = 1e9
# The keys that controls of gamepads stand for, if a table has only keys.
_PAD_KEYS = {
    "Axis0-": "ArrowLeft",
    "Axis0+": "ArrowRight",
    "Axis1-": "ArrowUp",
    "Axis1+": "ArrowDown",
    "Button12": "ArrowUp",
    "Button13": "ArrowDown",
    "Button14": "ArrowLeft",
    "Button15": "ArrowRight",
    "Button0": "Space",
}
_INPUT_NAME = re.compile(
    r"Key[A-Z]|Digit[0-9]|F[0-9]{1,2}|Arrow(Up|Down|Left|Right)|(Control|Shift|Alt|Meta)(Left|Right)"
    r"|Numpad([0-9]|Add|Subtract|Multiply|Divide|Decimal|Enter)|Space|Enter|Backspace|Tab|CapsLock"
    r"|Home|End|PageUp|PageDown|Insert|Delete|Minus|Equal|Bracket(Left|Right)|Semicolon|Quote"
    r"|Backquote|Backslash|Comma|Period|Slash|IntlBackslash|Button[0-9]{1,2}|Pointer[0XY]"
    r"|(Axis[0-9]{1,2}|Space[0-5])[+-]?"
)
_AXIS_NAME = re.compile(r"Axis[0-9]+|Space[0-5]")

# Keys for generated maps. The page uses Escape, KeyP and Enter itself.
_KEY_PAIRS = (
    ("ArrowLeft", "ArrowRight"),
    ("ArrowDown", "ArrowUp"),
    *(
        (f"Key{down}", f"Key{up}")
        for down, up in ("AD", "SW", "QE", "FR", "JL", "KI", "UO", "GT", "HY", "ZX", "CV", "BN")
    ),
    *((f"Digit{down}", f"Digit{up}") for down, up in ("12", "34", "56", "78", "90")),
)
_SINGLE_KEYS = (
    *(f"Digit{digit}" for digit in "1234567890"),
    *(f"Key{letter}" for letter in "QWERTYUIOASDFGHJKLZXCVBNM"),
)


class KeyMap(abc.ABC):
    """Maps inputs to actions.

    Attributes:
      controls: The effects of the inputs.
      idle: The action that does nothing; None if there is none.
    """

    controls: Sequence[Control]
    idle: Any

    @abc.abstractmethod
    def action(self, inputs: Inputs) -> Any:
        """Returns the action of inputs; None if none of them has an action."""

    def describe(self, action: Any) -> str:
        """Describes an action as text or numbers."""
        return np.array2string(np.asarray(action), precision=2, suppress_small=True, separator=" ")


class KeyedPlayable(Playable):
    """An environment whose actions come from a key map.

    Args:
      environment: The environment.
      keys: The key map.
      packages: The packages of the environment, whose versions are recorded.
      repeats: See `Playable`.
      pictures: The renderer; None for the method `draw`.
    """

    def __init__(
        self,
        environment: dm_env.Environment,
        keys: KeyMap,
        packages: Sequence[str] = (),
        *,
        repeats: bool = True,
        pictures: MuJoCoPictures | None = None,
    ) -> None:
        self.environment, self.keys, self._packages = environment, keys, packages
        self.controls, self.idle_action, self.repeats = keys.controls, keys.idle, repeats
        self._pictures, self.has_draft = pictures, pictures is not None
        self.cameras = pictures.cameras if pictures is not None else ()

    @override
    def action(self, inputs: Inputs) -> Any:
        return self.keys.action(inputs)

    @override
    def render(self, camera: int = 0, *, is_draft: bool = False) -> np.ndarray:
        if self._pictures is None:
            return self.draw()
        return self._pictures.draw(camera, is_draft=is_draft)

    def draw(self) -> np.ndarray:
        """Returns the picture of an environment without a `pictures` renderer; see `render`."""
        raise NotImplementedError

    @override
    def close(self) -> None:
        if self._pictures is not None:
            self._pictures.close()
        super().close()

    @override
    def metadata(self) -> Mapping[str, Any]:
        return {"versions": versions_of(self._packages)}

    @override
    def describe(self, action: Any) -> str:
        return self.keys.describe(action)


class Choices(KeyMap):
    """The key map of a discrete action.

    If several combinations of keys are held, the one with the most new keys wins, so that no tap is
    lost while other keys are held; then the one with the most keys; then the newest.

    Args:
      spec: The spec of the action: a `DiscreteArray`, or a scalar `BoundedArray` of integers.
      table: The action of each key, or of a combination of keys joined by "+".
      meanings: The effects of the actions, in their order.
      idle: The action that does nothing; None if there is none.
      overrides: The actions of keys instead of those of the table, as numbers or meanings; None
        removes the action of the table.
      name: The noun for actions without meanings.

    Raises:
      ValueError: An override is wrong.
    """

    def __init__(
        self,
        spec: specs.Array,
        table: Mapping[str, int],
        *,
        meanings: Sequence[str] = (),
        idle: int | None = None,
        overrides: Mapping[str, Any] | None = None,
        name: str = "action",
    ) -> None:
        self._meanings, self._name = meanings, name
        self._lowest, self._highest = int(spec.minimum), int(spec.maximum)
        actions = {_parse_combination(keys): action for keys, action in table.items()}
        for keys, action in (overrides or {}).items():
            combination = _parse_combination(keys)
            actions.pop(combination, None)
            if action is not None:
                actions[combination] = self._parse_action(keys, action)
        if idle is not None and idle not in actions.values():
            actions.setdefault(frozenset([WAIT_KEY]), idle)
        self._actions = {keys: spec.dtype.type(action) for keys, action in actions.items()}
        self._inputs = frozenset[str]().union(*self._actions)
        self.idle = None if idle is None else spec.dtype.type(idle)
        self.controls = list(self._list_controls())

    @override
    def action(self, inputs: Inputs) -> Any:
        held = self._held_keys(inputs)
        combinations = [keys for keys in self._actions if keys <= held.keys()]
        if not combinations:
            return None
        pressed_keys = {self._key_name(name) for name in inputs.pressed}
        positions = {name: index for index, name in enumerate(held)}

        def rank(keys: frozenset[str]) -> tuple[int, int, int]:
            return len(keys & pressed_keys), len(keys), max(positions[name] for name in keys)

        return self._actions[max(combinations, key=rank)]

    @override
    def describe(self, action: Any) -> str:
        index = int(action) - self._lowest
        has_meaning = 0 <= index < len(self._meanings)
        return self._meanings[index] if has_meaning else f"{self._name} {int(action)}"

    def _held_keys(self, inputs: Inputs) -> dict[str, None]:
        """Returns the held keys, the newest last, by their names in the key map."""
        held: dict[str, None] = {}
        for name, value in inputs.held.items():
            if abs(value) >= _HELD_THRESHOLD:
                if _AXIS_NAME.fullmatch(name):
                    name += "-" if value < 0 else "+"
                held[self._key_name(name)] = None
        for name in map(self._key_name, inputs.pressed):
            if name in held:
                held[name] = held.pop(name)
        return held

    def _key_name(self, name: str) -> str:
        return name if name in self._inputs else _PAD_KEYS.get(name, name)

    def _parse_action(self, keys: str, action: Any) -> int:
        if isinstance(action, str):
            meanings = [meaning.casefold() for meaning in self._meanings]
            if action.casefold() in meanings:
                return self._lowest + meanings.index(action.casefold())
        elif type(action) is int and self._lowest <= action <= self._highest:
            return action
        choices = f"{self._lowest} to {self._highest}"
        if self._meanings:
            choices += ", or " + ", ".join(map(repr, self._meanings))
        raise ValueError(f"the key {keys!r} cannot do {action!r:.100}, only {choices}")

    def _list_controls(self) -> Iterator[Control]:
        inputs: dict[int, list[str]] = {}
        for keys, action in self._actions.items():
            names = inputs.setdefault(int(action), [])
            names.append("+".join(sorted(keys)))
            pad_names = (name for name, key in _PAD_KEYS.items() if {key} == keys)
            names += (name for name in pad_names if name not in self._inputs)
        for action, names in inputs.items():
            yield Control(names, self.describe(action))


class Axes(KeyMap):
    """The key map of an array.

    Each input has a direction: a vector that it adds to the idle action. The action is the sum of
    the directions of the held inputs, each times its value, clipped to the bounds.

    Args:
      spec: The spec of the action.
      directions: The change of the action by a fully held input, by the names of inputs.
      idle: The action that does nothing; by default 0, clipped to the bounds.
      names: The names of the elements.
      words: The effects of a lower and of a higher value, by the name of the element.
      overrides: The directions of inputs instead of the default ones; None removes one. A direction
        is an array, or a dict of the elements other than 0 by their names or indices.
      has_pointer: Whether the first two elements follow the mouse while its button is down, or a
        finger; a single element follows it to the left and right.

    Raises:
      ValueError: An override is wrong.
    """

    def __init__(
        self,
        spec: specs.Array,
        directions: Mapping[str, Any],
        *,
        idle: Any = None,
        names: Sequence[str] = (),
        words: Mapping[str, tuple[str, str]] | None = None,
        overrides: Mapping[str, Any] | None = None,
        has_pointer: bool = False,
    ) -> None:
        self._spec = spec
        self._idle, self._low, self._high = _value_ranges(spec, idle)
        self._names = list(names) or [f"number {element + 1}" for element in range(self._idle.size)]
        self._words = words or {}
        self._has_pointer = has_pointer and self._idle.size > 0
        self._directions = {
            name: np.array(value, np.float64).ravel() for name, value in directions.items()
        }
        for name, direction in (overrides or {}).items():
            self._directions.pop(name, None)
            self._directions.pop(name.rstrip("+-"), None)
            if direction is not None:
                self._directions[name] = self._parse_direction(name, direction)
        self.idle = self._cast(self._idle)
        self.controls = list(self._list_controls())

    @override
    def action(self, inputs: Inputs) -> Any:
        action, is_active = self._idle.copy(), inputs.is_held(WAIT_KEY)
        if self._has_pointer and inputs.is_held("Pointer0"):
            is_active = True
            across, down = (inputs.held.get(name, 0.5) for name in ("PointerX", "PointerY"))
            low, high = self._low[:2], self._high[:2]
            pointer = np.clip([across, 1 - down], 0, 1)[: low.size]
            action[:2] = low + (high - low) * pointer
        for name, direction in self._directions.items():
            value = inputs.value(name.rstrip("+-"))
            if name[-1] in "+-":
                value = max(0.0, value if name[-1] == "+" else -value)
            if value:
                is_active = True
                action += value * direction
        return self._cast(action) if is_active else None

    def _cast(self, action: np.ndarray) -> np.ndarray:
        spec = self._spec
        if spec.dtype.kind in "iu":
            limits = np.iinfo(spec.dtype)
            low, high = max(limits.min, -_MAX_BOUND), min(limits.max, _MAX_BOUND)
            action = np.clip(np.rint(action), low, high)
        result = action.reshape(spec.shape).astype(spec.dtype)
        if isinstance(spec, specs.BoundedArray):  # The cast may have rounded a bound.
            result = np.asarray(np.clip(result, spec.minimum, spec.maximum), spec.dtype)
        return result

    def _parse_direction(self, name: str, values: Any) -> np.ndarray:
        if len(_parse_combination(name)) > 1:
            raise ValueError(f"{name!r}: only single keys move numbers, as they add up")
        size = len(self._names)
        if isinstance(values, Mapping):
            indices = {str(index): index for index in range(size)}
            indices |= {element: index for index, element in enumerate(self._names)}
            if unknown := values.keys() - indices.keys():
                raise ValueError(
                    f"the key {name!r} cannot move {min(unknown)!r}, only {', '.join(indices)}"
                )
            by_index = {indices[element]: value for element, value in values.items()}
            values = [by_index.get(index, 0) for index in range(size)]
        try:
            direction = np.array(values, np.float64).ravel()
        except (ValueError, TypeError):
            direction = np.array([np.nan])
        if direction.size != size or not (np.abs(direction) <= _MAX_BOUND).all():
            raise ValueError(f"the key {name!r} cannot do {values!r:.100}, only {size} numbers")
        return direction

    def _list_controls(self) -> Iterator[Control]:
        inputs: dict[str, list[str]] = {}
        for name, direction in self._directions.items():
            inputs.setdefault(self._describe_effect(name, direction), []).append(name)
        for does, names in inputs.items():
            yield Control(names, does)
        if self._has_pointer:
            moves = zip(self._names[:2], ("left and right", "down and up"))
            yield Control(["Pointer0"], ", ".join(f"{name} by {move}" for name, move in moves))
        yield Control([WAIT_KEY], "nothing")

    def _describe_effect(self, name: str, direction: np.ndarray) -> str:
        words = []
        for element in np.flatnonzero(direction):
            label = self._names[element]
            down, up = self._words.get(label, (f"{label} \N{MINUS SIGN}", f"{label} +"))
            if direction[element] < 0:
                down, up = up, down
            words.append(f"{down} / {up}" if _AXIS_NAME.fullmatch(name) else up)
        return ", ".join(words) or "nothing"


class Composite(KeyMap):
    """The key map of an action with components; each component has its own key map.

    Args:
      maps: The maps of the components, by their names.
      spec: The spec: an array, a dict, or else a tuple.
    """

    def __init__(self, maps: Mapping[str, KeyMap], spec: Any) -> None:
        self._maps, self._spec = maps, spec
        self.idle = self._join([keys.idle for keys in maps.values()])
        controls = [control for keys in maps.values() for control in keys.controls]
        self.controls = [control for control in controls if list(control.inputs) != [WAIT_KEY]]
        self.controls.append(Control([WAIT_KEY], "nothing"))

    @override
    def action(self, inputs: Inputs) -> Any:
        actions = [keys.action(inputs) for keys in self._maps.values()]
        if all(action is None for action in actions) and not inputs.is_held(WAIT_KEY):
            return None
        idles = (keys.idle for keys in self._maps.values())
        pairs = zip(actions, idles)
        return self._join([idle if action is None else action for action, idle in pairs])

    @override
    def describe(self, action: Any) -> str:
        values = action.values() if isinstance(action, Mapping) else action
        values = np.ravel(values) if isinstance(values, np.ndarray) else values
        pairs = zip(self._maps.values(), values)
        effects = [keys.describe(value) for keys, value in pairs if not _equal(value, keys.idle)]
        return ", ".join(effects) or "nothing"

    def _join(self, values: list[Any]) -> Any:
        if isinstance(self._spec, specs.Array):
            return np.array(values, self._spec.dtype).reshape(self._spec.shape)
        return dict(zip(self._maps, values)) if isinstance(self._spec, Mapping) else tuple(values)


def _equal(left: Any, right: Any) -> bool:
    if isinstance(left, Mapping):
        return all(_equal(left[name], right[name]) for name in left)
    if isinstance(left, tuple):
        return all(map(_equal, left, right))
    return bool(np.array_equal(left, right))


def key_map(
    spec: Any,
    *,
    table: Mapping[str, Any] | None = None,
    overrides: Mapping[str, Any] | None = None,
    meanings: Sequence[str] = (),
    idle: Any = None,
    names: Sequence[str] | Mapping[str, Sequence[str]] = (),
    words: Mapping[str, tuple[str, str]] | None = None,
    strength: float | Sequence[float] = 1.0,
    has_pointer: bool = False,
) -> KeyMap:
    """Returns a key map for an action spec.

    Args:
      spec: The spec of the action, see `envlogger.gymnasium_adapter.spec_of_space`.
      table: The actions of keys, see `Choices`, or their directions, see `Axes`; for an action with
        components, `{component: action or direction}`. By default it is generated.
      overrides: The actions of keys instead of those of the table.
      meanings: The effects of the actions of a discrete spec.
      idle: The action that does nothing.
      names: The names of the elements of the action; for a dict, the names of each array in it.
      words: The effects of a lower and of a higher value, by the name of the element.
      strength: The fraction of its bound by which a key moves an element, from 0 to 1; or a
        fraction for each element.
      has_pointer: Whether the first two elements follow the mouse while its button is down; see
        `Axes`.

    Raises:
      ValueError: Keys cannot play such actions, an override is wrong, or `has_pointer` is set but
        the action is not an array.
    """
    if has_pointer and not _is_numeric(spec):
        raise ValueError("has_pointer: the pointer needs an action that is an array of numbers")
    overrides = overrides or {}
    pool = _InputPool({name for keys in overrides for name in _parse_combination(keys)})
    if _is_choice(spec):
        if table is None:
            actions = range(int(spec.minimum), int(spec.maximum) + 1)
            table = {key: action for action, key in zip(actions, pool.keys())}
        return Choices(spec, table, meanings=meanings, idle=idle, overrides=overrides)
    if _is_numeric(spec):
        if table is None:
            table = pool.directions(spec, idle, strength)
        elements = list(names) or [name for name in (spec.name or "").split("\t") if name]
        return Axes(
            spec,
            table,
            idle=idle,
            names=elements if len(elements) == int(np.prod(spec.shape)) else (),
            words=words,
            overrides=overrides,
            has_pointer=has_pointer,
        )
    if table is not None:
        all_keys = {*_SINGLE_KEYS, *(key for pair in _KEY_PAIRS for key in pair)}
        pool, overrides = _InputPool(all_keys), {**table, **overrides}
    return _component_map(spec, "", pool, overrides, strength, names)


def _component_map(
    spec: Any,
    name: str,
    pool: _InputPool,
    overrides: Mapping[str, Any],
    strength: Any,
    names: Sequence[str] | Mapping[str, Sequence[str]],
) -> KeyMap:
    if _is_choice(spec):
        lowest, highest = int(spec.minimum), int(spec.maximum)
        # The first value is the action while no key is held.
        table = {key: action for action, key in zip(range(lowest + 1, highest + 1), pool.keys())}
        meanings = [f"no {name}", name] if highest == lowest + 1 else ()
        return Choices(spec, table, meanings=meanings, idle=lowest, overrides=overrides, name=name)
    if _is_numeric(spec):
        elements = names or [f"{name} {index + 1}" for index in range(int(np.prod(spec.shape)))]
        directions = pool.directions(spec, None, strength)
        return Axes(spec, directions, names=list(elements), overrides=overrides)
    components = _components(spec, names)
    for key, action in overrides.items():
        is_valid = isinstance(action, Mapping) and action.keys() <= components.keys()
        if action is not None and not is_valid:
            raise ValueError(
                f"the key {key!r} cannot do {action!r:.100}, only {{component: action}}, with the "
                f"components {', '.join(components)}"
            )
    maps = {}
    # Vectors come first: they take adjacent keys.
    items = sorted(components.items(), key=lambda item: not _is_numeric(item[1]))
    for component, component_spec in items:
        # A key that an override gives to one component is None for all other components.
        keys = {key: (action or {}).get(component) for key, action in overrides.items()}
        path = component if isinstance(spec, Mapping) or names else f"component {component}"
        if name and not names:
            path = f"{name} {path}"
        subnames = names.get(component, ()) if isinstance(names, Mapping) else ()
        maps[component] = _component_map(component_spec, path, pool, keys, strength, subnames)
    return Composite({component: maps[component] for component in components}, spec)


def _components(spec: Any, names: Any) -> dict[str, Any]:
    """Returns the specs of the components of an action, by name.

    Raises:
      ValueError: The action has no components.
    """
    if isinstance(spec, Mapping):
        return dict(spec)
    if isinstance(spec, list | tuple):
        return {str(index): component for index, component in enumerate(spec)}
    if not isinstance(spec, specs.BoundedArray) or spec.dtype.kind not in "biu":
        raise ValueError(f"keys cannot play actions like {spec}")
    low, high = (bound.astype(spec.dtype) for bound in _bounds(spec))
    return {
        name: specs.BoundedArray((), spec.dtype, *limits)
        for name, *limits in zip(names or map(str, range(low.size)), low, high)
    }


class _InputPool:
    """The free inputs, which the components of an action take one after another.

    Args:
      used: The inputs that already have an action.
    """

    def __init__(self, used: set[str]) -> None:
        self._used_inputs = {WAIT_KEY} | used
        self._sticks = iter(["Axis0", "Axis1", "Axis2", "Axis3"])
        self._has_space_mouse = True

    def keys(self) -> Iterator[str]:
        """Yields free keys, which are used afterwards."""
        return (key for (key,) in self._take_free((key,) for key in _SINGLE_KEYS))

    def directions(self, spec: specs.Array, idle: Any, strength: Any) -> dict[str, np.ndarray]:
        """Returns directions of free keys, sticks and a SpaceMouse, for as many elements as fit."""
        idle, low, high = _value_ranges(spec, idle)
        strengths = np.array(strength, np.float64)
        is_in_range = ((strengths > 0) & (strengths <= 1)).all()
        if not is_in_range or strengths.size not in (1, idle.size):
            raise ValueError(
                f"got the strength {strength!r:.100}, expected a number above 0 and up to 1, or "
                f"{idle.size} of them"
            )
        has_space_mouse = self._has_space_mouse and idle.size >= 3
        self._has_space_mouse &= not has_space_mouse
        directions: dict[str, np.ndarray] = {}
        for element, (down_key, up_key) in zip(range(idle.size), self._take_free(_KEY_PAIRS)):
            unit = np.arange(idle.size) == element
            down, up = (low - idle) * unit, (high - idle) * unit
            if down.any():
                directions[down_key] = down * strengths.ravel()
            if up.any():
                directions[up_key] = up * strengths.ravel()
            full_push = np.maximum(up, -down)
            stick = next(self._sticks, None)
            if stick is not None:
                # The values of sticks increase to the right, but downwards.
                directions[stick] = -full_push if stick in ("Axis1", "Axis3") else full_push
            if has_space_mouse and element < 6:
                directions[f"Space{element}"] = full_push
        return directions

    def _take_free(self, groups: Iterable[Sequence[str]]) -> Iterator[Sequence[str]]:
        for group in groups:
            if self._used_inputs.isdisjoint(group):
                self._used_inputs.update(group)
                yield group


def _bounds(spec: specs.Array) -> tuple[np.ndarray, np.ndarray]:
    """Returns the lowest and the highest value of each element, infinite without a bound."""
    bounds = getattr(spec, "minimum", -np.inf), getattr(spec, "maximum", np.inf)
    arrays = (np.asarray(bound, np.float64) for bound in bounds)
    low, high = (np.broadcast_to(array, spec.shape).ravel() for array in arrays)
    return np.where(low < -_MAX_BOUND, -np.inf, low), np.where(high > _MAX_BOUND, np.inf, high)


def _value_ranges(spec: specs.Array, idle: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns the idle, the lowest and the highest value of each element of an action."""
    low, high = _bounds(spec)
    idle = np.clip(np.zeros(low.size) if idle is None else np.ravel(idle), low, high)
    low, high = np.where(np.isinf(low), idle - 1, low), np.where(np.isinf(high), idle + 1, high)
    return idle, low, high


def _is_choice(spec: Any) -> bool:
    """True if an action is a choice among numbered actions."""
    return isinstance(spec, specs.BoundedArray) and not spec.shape and spec.dtype.kind in "biu"


def _is_numeric(spec: Any) -> bool:
    """True if an action is an array of quantities, not a choice or an array of choices."""
    if not isinstance(spec, specs.Array) or _is_choice(spec):
        return False
    if spec.dtype.kind == "f":
        return True
    low, high = _bounds(spec)
    return spec.dtype.kind in "iu" and bool((high - low > len(_SINGLE_KEYS)).any())


def _parse_combination(keys: str) -> frozenset[str]:
    names = re.split(r"\+(?=[A-Z])", keys)
    for name in names:
        if not _INPUT_NAME.fullmatch(name):
            raise ValueError(
                f"{keys!r:.100} is not an input such as KeyA, ArrowLeft, Space, Button0, Axis1 or "
                "ArrowUp+Space"
            )
    return frozenset(names)
