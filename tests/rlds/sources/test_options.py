"""Options of sources on a command line."""

import inspect
import os
import pickle
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import pytest
import raw_d4rl
import raw_rlu
import tensorflow_datasets as tfds

import rlds.sources
import tfds_builders
from rlds.sources.options import Option, options_of, parse_options
from rlds_tools.converting import builders

D4rlPybulletSource = rlds.sources.formats()["d4rl_pybullet"].load()

# Arguments of any builder.
BUILDER_ARGUMENTS = {tfds_builders.EnvLoggerSource: {"config", "float64"}}


@pytest.mark.parametrize("name", builders())
def test_builders_have_every_option_of_their_source(name):
    options = builders()[name].options()
    source = builders()[name].source_class
    _, *expected = inspect.signature(source).parameters.values()
    assert {option.name: option.default for option in options.values() if option.is_json} == {
        parameter.name: parameter.default
        for parameter in expected
        if parameter.name not in BUILDER_ARGUMENTS.get(source, ())
    }


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        (bool, "true", True),
        (int, "-7", -7),
        (float, "0.5", 0.5),
        (float | None, "2", 2.0),
        (float | None, "null", None),
        (str | None, "null", None),
        (str, "a=b c", "a=b c"),
        (str, '"null"', "null"),
        (str | None, "12", "12"),
        (str, "[1]", "[1]"),
        (str | Sequence[str] | None, "flags", "flags"),
        (str | Sequence[str] | None, '["flags", "length"]', ["flags", "length"]),
        (str | os.PathLike[str], "/tmp", "/tmp"),
        (Sequence[str], "[]", []),
        (tuple[int, int, int], "[64, 32, 3]", (64, 32, 3)),
        (Literal["sar", "rsa"] | None, "rsa", "rsa"),
        (Mapping[str, Any] | None, '{"a": {"b": [1, null]}}', {"a": {"b": [1, None]}}),
        (Mapping[str, float], '{"a": 1}', {"a": 1.0}),
    ],
)
def test_values_have_the_type_of_the_option(kind, text, expected):
    value = Option("x", kind, None).parse(text)
    assert (type(value), value) == (type(expected), expected)


@pytest.mark.parametrize(
    ("kind", "text", "words"),
    [
        (bool, "1", "true|false"),
        (bool, "True", "true|false"),
        (int, "true", "integer"),
        (int, "1.5", "integer"),
        (int | None, "", "integer"),
        (float | None, "far", "number"),
        (tuple[int, int], "[1]", "[integer, integer]"),
        (Sequence[str] | None, "a,b", "[text, ...]"),
        (Sequence[str], "[1]", "[text, ...]"),
        (Literal["sar", "rsa"] | None, "SAR", "sar|rsa"),
        (Mapping[str, Any], "[]", '{"...": ..., ...}'),
        (Mapping[str, float] | int, '{"a": "b"}', '{"...": number, ...} | integer'),
    ],
)
def test_values_of_another_type_are_refused(kind, text, words):
    with pytest.raises(ValueError, match=re.escape(f"option x: got {text}, expected {words}")):
        Option("x", kind, None).parse(text)


def test_unknown_and_repeated_options_are_refused():
    options = options_of(D4rlPybulletSource)
    assert parse_options(options, ["time_limit=7"], "x") == {"time_limit": 7}
    message = "'limit'; its options are: time_limit=integer (1000); follow_links=true|false (false)"
    with pytest.raises(ValueError, match=f"{re.escape(message)}$"):
        parse_options(options, ["limit=7"], "x")
    with pytest.raises(ValueError, match="option time_limit is given twice; write a list"):
        parse_options(options, ["time_limit=7", "time_limit=8"], "x")


def test_options_override_those_of_the_config(tmp_path):
    path = raw_d4rl.write_family(tmp_path, "hopper_medium-v2")
    config = tfds_builders.published.D4rlConfig(name="windows", dataset="walker2d-medium-v2")
    options = {"boundary": "length", "length": 3}
    builder = tfds_builders.RldsD4rl(path=path, config=config, data_dir=tmp_path, **options)
    assert builder.make_source(path).source_info.options == {
        "boundary": ["length"],
        "length": 3,
        "jump": None,
        "time_limit": None,
        "dataset": "walker2d-medium-v2",
        "follow_links": False,
    }
    assert builder.data_path == tfds_builders.RldsD4rl(config=config, data_dir=tmp_path).data_path
    other = tfds_builders.RldsD4rl(
        path=path, config=config, data_dir=tmp_path, dataset="hopper-medium-v2"
    )
    assert other.make_source(path).source_info.options["dataset"] == "hopper-medium-v2"


@pytest.mark.parametrize("alignment", ["sar", "rsa"])
def test_options_work_with_a_published_config(tmp_path, alignment):
    for name in ("train", "test"):
        raw_rlu.write_files(
            tmp_path, name, raw_rlu.control_suite_episodes(order=alignment), num_files=1
        )
    builder = tfds_builders.RldsRluControlSuite(
        config="fish_swim", data_dir=tmp_path / "data", alignment=alignment
    )
    source = builder.make_source(tmp_path)
    assert source.alignment == alignment
    assert source.parts("train") == ["train-00000-of-00001"]  # The prefix of the config.


def test_registry_keeps_its_builder():
    assert tfds_builders.RldsD4rl(config="file", name="another").name == "another"
    assert tfds.builder_cls("rlds_d4rl") is tfds_builders.RldsD4rl


def test_builders_refuse_unknown_options_and_pickle_valid_ones(tmp_path):
    with pytest.raises(TypeError, match="RldsMinari: unknown argument 'follow_link'"):
        tfds_builders.RldsMinari(path=tmp_path, follow_link=True)
    options = {"boundary": "length", "length": 3}
    builder = tfds_builders.RldsD4rl(
        config="hopper-medium-v2", data_dir=tmp_path, name="another", **options
    )
    copy = pickle.loads(pickle.dumps(builder))
    path = raw_d4rl.write_family(tmp_path, "hopper_medium-v2")
    assert copy.make_source(path).source_info.options["length"] == 3
    assert copy.name == "another"
