"""The statistics of features, compared with NumPy and with LeRobot's own code."""

import copy
import json

import foreign_readers
import numpy as np
import pytest

from rlds.formats.lerobot.feature_statistics import (
    QUANTILES,
    FeatureTotals,
    column_statistics,
    image_statistics,
    sample_frames,
)
from tfds_files.png import encode_png

COLUMNS = {
    "state": np.random.default_rng(0).normal(3, 2, (57, 4)).astype(np.float32),
    "flag": np.random.default_rng(1).random(57) < 0.3,
    "count": np.random.default_rng(2).integers(-(2**40), 2**40, 57),
    "grid": np.random.default_rng(3).normal(size=(57, 2, 3)),
    "constant": np.full((57, 2), 7, np.uint8),
    "single": np.array([[1.5, -2.5]], np.float32),
}
IMAGES = [
    np.random.default_rng(4).integers(0, 255, (120, 6, 8, 3), np.uint8),
    np.random.default_rng(5).integers(40, 90, (3, 310, 305, 3), np.uint8),
]


@pytest.mark.parametrize("name", COLUMNS)
def test_statistics_of_columns_are_exact(name):
    column = COLUMNS[name]
    rows = column.reshape(-1, column.shape[-1] if column.ndim > 1 else 1).astype(float)
    actual = column_statistics(column)
    for kind, expected in (
        ("min", rows.min(0)),
        ("max", rows.max(0)),
        ("mean", rows.mean(0)),
        ("std", rows.std(0)),
        *(
            (q, np.quantile(rows, share, 0, method="inverted_cdf"))
            for q, share in QUANTILES.items()
        ),
    ):
        np.testing.assert_allclose(actual[kind], expected, rtol=1e-12, err_msg=kind)
    assert actual["count"].tolist() == [len(column)]


def test_nan_affects_only_the_statistics_of_its_element():
    actual = column_statistics(np.array([[1, np.nan], [3, 2]]))
    assert actual["min"][0] == 1
    assert np.isnan([actual[name][1] for name in ("min", "max", "mean", "std")]).all()


@pytest.mark.parametrize("images", IMAGES)
def test_statistics_of_images_are_computed_from_their_pixels(images):
    actual = image_statistics(images)
    step = 2 if images.shape[1] > 300 else 1
    pixels = images[:, ::step, ::step].reshape(-1, 3) / 255
    assert actual["mean"].shape == (3, 1, 1)
    np.testing.assert_allclose(actual["mean"].reshape(-1), pixels.mean(0))
    np.testing.assert_allclose(actual["std"].reshape(-1), pixels.std(0))
    for name, share in {"min": 0, "max": 1, **QUANTILES}.items():
        expected = np.quantile(pixels, share, 0, method="inverted_cdf")
        np.testing.assert_allclose(actual[name].reshape(-1), expected, err_msg=name)
    assert actual["count"].tolist() == [len(images)]
    depth_stats = image_statistics(images[..., :1].astype(np.uint16) * 100)
    np.testing.assert_allclose(depth_stats["mean"].reshape(-1), pixels[:, 0].mean() * 25500)
    depths = np.linspace(0.5, 9, 256).astype(np.float32)  # Of the codes.
    codes = images[..., :1]
    code_stats = image_statistics(codes.astype(np.uint16), depths)
    for name, value in image_statistics(depths[codes]).items():
        np.testing.assert_allclose(code_stats[name], value, rtol=1e-6, err_msg=name)


def test_totals_are_the_statistics_of_all_rows():
    total, before = FeatureTotals(), None
    chunks = np.split(COLUMNS["state"].astype(float), [5, 6, 30])
    for chunk in chunks:
        total.add({"state": column_statistics(chunk)}, {"state": chunk})
        before = before or copy.deepcopy(total)
    actual, direct = total.features["state"], column_statistics(COLUMNS["state"])
    for name in ("min", "max", "mean", "std", "count"):
        np.testing.assert_allclose(actual[name], direct[name])
    for name, share in QUANTILES.items():
        expected = np.quantile(COLUMNS["state"].astype(float), share, 0)
        np.testing.assert_allclose(actual[name], expected)
    assert before.features["state"]["count"].tolist() == [5]
    restored = FeatureTotals(total.features)
    assert not QUANTILES.keys() & restored.features["state"].keys()  # No rows have been read.
    for chunk in chunks:
        restored.add_quantiles({"state": column_statistics(chunk)}, {"state": chunk})
    np.testing.assert_array_equal(restored.features["state"]["q90"], actual["q90"])


def test_quantiles_of_many_rows_are_exact_for_any_chunks():
    rng = np.random.default_rng(6)
    columns = [rng.normal(size=50_000), rng.random(50_000) < 0.3, rng.integers(0, 7, 50_000)]
    columns += [np.where(rng.random(50_000) < 0.2, np.inf, 1), np.arange(50_000) // 20_000]
    rows, total = np.stack(columns, axis=1), FeatureTotals()
    for chunk in np.split(rows, 50):
        total.add({"state": column_statistics(chunk)}, {"state": chunk})
    actual, second = (copy.deepcopy(total).selections()["state"] for _ in range(2))
    for index, chunk in enumerate(np.split(rows, 20)):
        (actual if index % 3 else second).add(chunk)
    actual.merge(second)
    total.select({"state": actual})
    for name, share in QUANTILES.items():
        with np.errstate(invalid="ignore"):
            expected = np.quantile(rows, share, 0)
        expected[np.isnan(expected)] = np.inf  # NaN lies between two infinite values.
        np.testing.assert_array_equal(total.features["state"][name], expected, name)


def test_image_quantiles_are_computed_from_all_pixels():
    """Quantiles of a dark episode and a shorter bright one are not averaged."""
    dark, bright = (np.linspace(a, a + 50, 2500).astype(np.uint8) for a in (0, 200))
    total = FeatureTotals()
    for pixels, count in ((dark, 8), (bright, 2)):
        total.add({"top": image_statistics([pixels.reshape(50, 50, 1)] * count)}, {})
    pixels = np.concatenate([dark] * 8 + [bright] * 2) / 255
    actual = total.features["top"]
    assert actual["q99"].shape == (1, 1, 1)
    for name, share in QUANTILES.items():
        expected = np.quantile(pixels, share, method="inverted_cdf")
        np.testing.assert_allclose(actual[name].reshape(-1), expected, atol=0.01, err_msg=name)


_LEROBOT = """
import json, sys
import numpy as np
from lerobot.datasets.compute_stats import aggregate_stats, compute_episode_stats, sample_indices
columns = dict(np.load(sys.argv[1] + "/columns.npz"))
paths = json.load(open(sys.argv[1] + "/paths.json"))
features = {name: {"dtype": "image"} for name in paths}
features |= {name: {"dtype": str(column.dtype)} for name, column in columns.items()}
names = [name for name in columns if name != "single"]
episodes = [{name: columns[name][rows] for name in names} for rows in (slice(0, 20), slice(20, 57))]
def to_lists(stats):
    return {a: {b: value.tolist() for b, value in kinds.items()} for a, kinds in stats.items()}
each = [compute_episode_stats(episode, features) for episode in episodes]
print(json.dumps({
    "one": to_lists(compute_episode_stats({**columns, **paths}, features)),
    "all": to_lists(aggregate_stats(each)),
    "sampled": {length: sample_indices(length) for length in (1, 99, 101, 750, 3000)},
}))
"""


@pytest.mark.slow
def test_statistics_equal_those_of_lerobot(tmp_path):
    paths = {}
    for index, images in enumerate(IMAGES):
        files = [tmp_path / f"{index}_{row}.png" for row in range(len(images))]
        for file, image in zip(files, images):
            file.write_bytes(encode_png(image))
        paths[f"observation.images.{index}"] = list(map(str, files))
    np.savez(tmp_path / "columns.npz", **COLUMNS)
    (tmp_path / "paths.json").write_text(json.dumps(paths))
    theirs = foreign_readers.run("lerobot", _LEROBOT, tmp_path)
    for length, frames in theirs["sampled"].items():
        assert sample_frames(int(length)) == frames
    ours = {name: column_statistics(column) for name, column in COLUMNS.items()}
    for name, images in zip(paths, IMAGES):
        ours[name] = image_statistics(images[sample_frames(len(images))])
    total = FeatureTotals()
    for rows in (slice(0, 20), slice(20, 57)):
        names = [name for name in COLUMNS if name != "single"]
        total.add({name: column_statistics(COLUMNS[name][rows]) for name in names}, {})
    for actual, expected in ((ours, theirs["one"]), (total.features, theirs["all"])):
        assert actual.keys() == expected.keys()
        for name, kinds in expected.items():
            assert actual[name].keys() == kinds.keys()
            span = np.asarray(kinds["max"]) - np.asarray(kinds["min"])
            for kind, value in kinds.items():
                value = np.asarray(value)
                assert actual[name][kind].shape == value.shape, (name, kind)
                # LeRobot computes in 32 bits, and takes quantiles from 5000 bins.
                if kind in QUANTILES and expected is theirs["all"]:
                    continue  # LeRobot averages the quantiles of the episodes.
                if kind in QUANTILES and len(COLUMNS.get(name, "several")) > 1:
                    assert (abs(actual[name][kind] - value) <= 1.01 * span / 5000 + 1e-5).all()
                elif kind in ("mean", "std"):
                    assert (abs(actual[name][kind] - value) <= 1e-3 * span + 1e-3).all(), (
                        name,
                        kind,
                    )
                elif kind not in QUANTILES:
                    np.testing.assert_allclose(actual[name][kind], value, rtol=1e-6)
