"""The files of statistics of Octo, OpenVLA and openpi, against those that they wrote."""

import dataclasses
import json

import numpy as np
import policies
import pytest

from rlds.feeds import octo, openpi, openvla
from rlds.normalization import normalize


def check_equal(plain, golden, skipped=()):
    """The same keys, and values that are equal in float32."""
    assert plain.keys() == golden.keys()
    for name, value in golden.items():
        if isinstance(value, dict):
            check_equal(plain[name], value, skipped)
        elif name not in skipped:
            np.testing.assert_allclose(plain[name], value, rtol=1e-6, err_msg=name)


def golden(name):
    return json.loads((policies.GOLDEN / f"{name}.json").read_text())


def test_octo():
    joined = policies.statistics_of(policies.OCTO)
    check_equal(json.loads(octo.statistics_to_json(joined)), golden("octo"))
    masked = policies.statistics_of(policies.OCTO, masks=policies.MASKS)
    several = json.loads(octo.statistics_to_json({"arm": masked, "other": joined}))
    assert several["arm"]["action"]["mask"] == policies.MASKS["action"]
    check_equal(several["other"], golden("octo"))


def test_openvla():
    joined = policies.statistics_of(policies.OPENVLA, masks=policies.MASKS)
    check_equal(json.loads(openvla.statistics_to_json({"arm": joined})), golden("openvla"))
    stateless = policies.statistics_of(dataclasses.replace(policies.OPENVLA, state=()))
    proprio = json.loads(openvla.statistics_to_json(stateless))["proprio"]
    assert proprio == dict.fromkeys(("mean", "std", "max", "min", "q01", "q99"), [0.0] * 4)


@pytest.mark.parametrize(("form", "name"), [(octo, "octo"), (openvla, "openvla")])
def test_files_come_back(form, name):
    roles = getattr(policies, name.upper())
    expected = policies.statistics_of(roles, masks=policies.MASKS)
    read = form.statistics_from_json((policies.GOLDEN / f"{name}.json").read_text())
    assert list(read) == ["action", "state"]
    assert (read.num_transitions, read.num_trajectories) == (19, 5)
    for role in read:
        for of in ("mean", "std", "min", "max"):
            ours, theirs = getattr(expected[role], of), getattr(read[role], of)
            np.testing.assert_allclose(ours, theirs, rtol=1e-6)
        assert read[role].count.tolist() == expected[role].count.tolist()
        assert read[role].quantiles.keys() == {0.01, 0.99}
    assert read["action"].mask.tolist() == [True] * 3 + [name == "octo"]
    again = form.statistics_from_json(form.statistics_to_json({"arm": read}), dataset_name="arm")
    assert form.statistics_to_json(again) == form.statistics_to_json(read)


def test_openpi():
    text = (policies.GOLDEN / "openpi.json").read_text()
    read = openpi.statistics_from_json(text)
    assert list(read) == ["state", "action"]
    check_equal(json.loads(openpi.statistics_to_json(read)), golden("openpi"))
    # Another writer, which knows no quantiles, and pads.
    plain = {"mean": [1.0, 2.0, 0.0], "std": [3.0, 4.0, 0.0], "q01": None, "q99": None}
    other = json.dumps({"norm_stats": {"state": plain, "actions": plain}})
    unpadded = openpi.statistics_from_json(other, dims={"state": 2})
    assert unpadded["state"].mean.tolist() == [1.0, 2.0]
    assert unpadded["action"].std.tolist() == [3.0, 4.0, 0.0]
    assert normalize(np.array([4.0, 10.0]), unpadded["state"]).tolist() == [1.0, 2.0]
    with pytest.raises(ValueError, match=r"the quantiles \[\], not 0.01 and 0.99"):
        openpi.statistics_to_json(unpadded)
    with pytest.raises(ValueError, match="statistics of 3 elements of the action, not of 4"):
        openpi.statistics_from_json(other, dims={"action": 4})
    padded = json.loads(openpi.statistics_to_json(read, dim=6))["norm_stats"]["state"]
    assert padded["std"] == [*golden("openpi")["norm_stats"]["state"]["std"], 0.0, 0.0]
    with pytest.raises(ValueError, match="The state has 4 elements, which is more than dim=2"):
        openpi.statistics_to_json(read, dim=2)


def test_openpi_counts_states_as_we_do():
    # It reads the split "train" only, and finds quantiles by a histogram of 5000 bins.
    train = policies.statistics_of(policies.OPENPI, ["train"])["state"]
    theirs = golden("openpi")["norm_stats"]["state"]
    np.testing.assert_allclose(train.mean, theirs["mean"], rtol=1e-6)
    np.testing.assert_allclose(train.std, theirs["std"], rtol=1e-5)
