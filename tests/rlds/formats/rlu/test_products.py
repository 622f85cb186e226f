"""Each builder refuses records of other products, and names their builder."""

import numpy as np
import pytest
import raw_rlu

import tfds_builders
from rlds.formats.rlu.products import builder_for
from rlds.sources import SourceError

RAW = {
    tfds_builders.RldsRluAtari: lambda: raw_rlu.atari_episodes(shape=(6, 4)),
    tfds_builders.RldsRluAtariTransitions: lambda: raw_rlu.atari_transitions(shape=(6, 4)),
    tfds_builders.RldsRluBsuite: raw_rlu.bsuite_windows,
    tfds_builders.RldsRluControlSuite: raw_rlu.control_suite_episodes,
    tfds_builders.RldsRluControlSuiteWindows: raw_rlu.control_suite_windows,
    tfds_builders.RldsRluDmlab: lambda: raw_rlu.dmlab_episodes(shape=(6, 4)),
    tfds_builders.RldsRluLocomotion: lambda: raw_rlu.locomotion_episodes((5, 4), camera=(6, 4, 3)),
    tfds_builders.RldsRluLocomotionWindows: lambda: raw_rlu.locomotion_windows(camera=(6, 4, 3)),
    tfds_builders.RldsRluRwrl: raw_rlu.rwrl_episodes,
}


@pytest.mark.parametrize("builder", RAW, ids=lambda builder: builder.name)
def test_sources_refuse_records_of_other_products_and_name_their_builder(tmp_path, builder):
    raw_rlu.write_files(tmp_path, "train", RAW[builder]())
    assert builder.source_class.builder_name == builder.name
    for other in RAW:
        if other is not builder:
            with pytest.raises(SourceError) as caught:
                other.source_class(tmp_path)
            assert str(caught.value) == (
                "train-00000-of-00002: the records belong to another product of RL Unplugged: use "
                f"the builder {builder.name!r}, not {other.name!r}"
            )


def test_a_builder_refuses_records_of_another_product(tmp_path):
    raw_rlu.write_files(tmp_path, "train", raw_rlu.control_suite_windows())
    with pytest.raises(SourceError, match="use the builder 'rlds_rlu_control_suite_windows'"):
        tfds_builders.RldsRluControlSuite(path=tmp_path, data_dir=tmp_path).download_and_prepare()


def record(*step_types):
    return {"observation/x": np.zeros(len(step_types)), "step_type": np.array(step_types)}


EPISODE, MIDDLE, BEGINNING, END = record(0, 1, 2), record(1, 1), record(0, 1), record(1, 2)


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        ([], None),
        ([{"pixels": []}], None),
        ([{"observation/x": [], "reward": []}], None),
        ([BEGINNING], None),  # An incomplete episode, or a window.
        ([EPISODE], "rlds_rlu_control_suite"),
        ([EPISODE, MIDDLE, BEGINNING], None),
        ([EPISODE, MIDDLE, EPISODE], "rlds_rlu_control_suite"),
        ([BEGINNING, MIDDLE], "rlds_rlu_control_suite_windows"),
        ([END], "rlds_rlu_control_suite_windows"),
    ],
    ids=str,
)
def test_step_types_tell_episodes_from_windows(records, expected):
    assert builder_for(records) == expected


def test_no_more_records_are_read_than_needed():
    def records():
        yield from [EPISODE, EPISODE, MIDDLE]
        raise AssertionError

    assert builder_for(records()) == "rlds_rlu_control_suite"
    assert builder_for(values for values in [{"observations": []}, None]) == "rlds_rlu_atari"
