"""Any episodes as MCAP files and back."""

import numpy as np
import pytest
import raw_bags
import raw_npz
from mcap.reader import make_reader
from mcap_ros2.decoder import DecoderFactory
from raw_bags import SECOND

import rlds.sources
from rlds.sources import Episodes, Origin, RandomAccessSource, SourceEpisode
from rlds.sources.exporting import differences, export
from rlds_ecosystem.columns import step_flags
from rlds_ecosystem.fields import Field


class Made(RandomAccessSource):
    """Episodes with every kind of field."""

    description = "Made up."

    def __init__(self, known=True):
        self.known = known

    def step_fields(self):
        return {
            "observation": {
                "joints": Field("f4", (3,), names=("a", "b", "c"), unit="rad"),
                "camera": Field("u1", (4, 6, 3), encoding="png"),
                "raw": Field("u1", (2, 3, 1)),
                "grid": Field("i2", (2, 2)),
                "text": Field(str),
                "touch": Field(np.bool_),
            },
            "action": {"arm": Field("f8", (2,)), "grip": np.uint8},
            "reward": np.float64,
            "discount": np.float32,
            "mask": Field(np.bool_, (2,)),
            "half": np.float16,
        }

    def episode_fields(self):
        return {"seed": np.int64, "instruction": str}

    def metadata(self):
        return {"made": {"by": "hand"}}

    def inputs(self):
        return []

    def num_episodes(self, split):
        return 3

    def key(self, split, index):
        return f"e{index}"

    def read(self, split, index):
        number = 4 + index
        rng = np.random.default_rng(index)
        odd = np.array([np.nan, -0.0, np.inf, 5e-324], np.float64)
        odd.view(np.uint64)[0] |= 12345  # A NaN with something in it.
        steps = {
            "observation": {
                "joints": rng.random((number, 3), np.float32),
                "camera": np.array([*map(raw_bags.png, range(number)), None], object)[:-1],
                "raw": rng.integers(0, 256, (number, 2, 3, 1), np.uint8),
                "grid": rng.integers(-9, 9, (number, 2, 2), np.int16),
                "text": np.array(["", "a\0b", "ü", "日本", "x", "y"][:number], object),
                "touch": np.arange(number) % 2 == 0,
            },
            "action": {
                "arm": np.concatenate([odd.reshape(2, 2), rng.random((number - 2, 2))]),
                "grip": np.arange(number, dtype=np.uint8),
            },
            "reward": rng.random(number),
            "discount": np.ones(number, np.float32),
            "mask": rng.random((number, 2)) < 0.5,
            "half": rng.random(number).astype(np.float16),
            **step_flags([number], [index == 1]),
        }
        return SourceEpisode(
            key=f"e{index}",
            steps=steps,
            origin=Origin("x", index, index + 1),
            truncated=index != 1,
            final_observation_known=self.known,
            metadata={"seed": np.int64(index), "instruction": "pick"},
        )


@pytest.mark.parametrize("known", [True, False])
def test_any_episodes_come_back_as_they_were(tmp_path, known):
    source = Made(known)
    made = export(Episodes(source), "mcap", tmp_path / "made")
    assert made.num_episodes == 3
    aside = {place.field for place in made.placements if place.how == "aside"}
    assert aside == {
        *("steps/mask", "steps/half", "seed", "instruction"),
    }
    episodes = rlds.sources.open(made.path)
    assert episodes.format == "mcap"
    for one, two in zip(Episodes(source), episodes, strict=True):
        assert list(differences(one, two)) == []
        assert one.origin == two.origin
    assert episodes.metadata == {"made": {"by": "hand"}}
    assert episodes.source.description == "Made up."
    assert episodes.spec["steps"]["observation"]["joints"].names == ("a", "b", "c")
    # And what another reader finds.
    file = tmp_path / "made" / "episode_000001.mcap"
    found = {}
    with file.open("rb") as opened:
        reader = make_reader(opened, decoder_factories=[DecoderFactory()])
        for _, channel, message, it in reader.iter_decoded_messages():
            found.setdefault(channel.topic, []).append((message.log_time, it))
    steps = source.read("train", 1).steps
    assert [it.data for _, it in found["/observation/text"]] == list(steps["observation"]["text"])
    last = 5 - known
    arm = np.array([it.data for _, it in found["/action/arm"]])
    assert arm.tobytes() == steps["action"]["arm"][:last].tobytes()
    assert [time for time, _ in found["/reward"]] == [i * SECOND // 10 for i in range(last)]
    image = found["/observation/camera"][2][1]
    assert (bytes(image.data), image.format) == (raw_bags.png(2), "png")
    raw = found["/observation/raw"][0][1]
    assert (raw.width, raw.height, raw.encoding) == (3, 2, "mono8")


def test_folders_of_arrays(tmp_path):
    path = raw_npz.write_folder(tmp_path / "raw", raw_npz.sample())
    made = export(path, "mcap", tmp_path / "made", rate=4.0)
    assert rlds.sources.open(made.path).format == "mcap"
    with pytest.raises(ValueError, match="rate: got 0"):
        export(path, "mcap", tmp_path / "more", rate=0)
