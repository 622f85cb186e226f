"""What other readers find in MCAP files that any episodes were written to."""

import numpy as np
import pytest
import raw_bags
import raw_npz
from mcap.reader import make_reader
from mcap_ros2.decoder import DecoderFactory

import rlds.sources
from rlds.sources.exporting import differences, export


def topics_of(file):
    """The log times and messages of each topic."""
    found = {}
    with file.open("rb") as opened:
        reader = make_reader(opened, decoder_factories=[DecoderFactory()])
        for _, channel, message, it in reader.iter_decoded_messages():
            found.setdefault(channel.topic, []).append((message.log_time, it))
    return found


def test_numbers_text_and_arrays_of_pixels(tmp_path):
    sample = raw_npz.sample()
    path = raw_npz.write_folder(tmp_path / "raw", sample)
    made = export(path, "mcap", tmp_path / "made", rate=4.0)
    sidecar = {place.field for place in made.placements if place.how == "sidecar"}
    assert sidecar == {"seed", "task", "goal"}
    assert rlds.sources.open(made.path).format == "mcap"
    for number, raw in enumerate(sample.values()):
        found = topics_of(tmp_path / "made" / f"episode_{number:06}.mcap")
        arm = np.array([it.data for _, it in found["/action"]])
        assert arm.tobytes() == raw["action"].tobytes()
        times = [time for time, _ in found["/reward"]]
        assert times == [row * raw_bags.SECOND // 4 for row in range(len(raw["reward"]))]
        assert [it.data for _, it in found["/note"]] == raw["note"].tolist()
        for (_, it), pixels in zip(found["/observation/camera"], raw["observation/camera"]):
            assert (it.width, it.height, it.encoding) == (5, 4, "rgb8")
            assert bytes(it.data) == pixels.tobytes()
    with pytest.raises(ValueError, match="rate: got 0"):
        export(path, "mcap", tmp_path / "more", rate=0)


def test_files_of_images(tmp_path):
    rows = raw_bags.sample()
    episodes = rlds.sources.open(
        raw_bags.write_mcap(tmp_path / "a.mcap", rows), bag_config=raw_bags.CONFIG
    )
    made = export(episodes, "mcap", tmp_path / "made")
    (again,) = rlds.sources.open(made.path)
    assert list(differences(episodes[0], again)) == []
    found = topics_of(tmp_path / "made" / "episode_000000.mcap")["/observation/image"]
    assert [time for time, _ in found] == again.steps["timestamp"].tolist()
    for (_, it), image in zip(found, again.steps["observation"]["image"]):
        assert (it.format, bytes(it.data)) == ("png", image)
