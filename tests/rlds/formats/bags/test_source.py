"""Recordings of robots as episodes, compared with plain loops over the messages."""

import base64
import contextlib
import pickle
import shutil
import sqlite3
import struct
from fractions import Fraction

import av
import numpy as np
import pytest
import raw_bags
import videos
from mcap.reader import NonSeekingReader, make_reader
from mcap.writer import CompressionType, Writer
from raw_bags import BEGIN, CAMERA, COMMANDS, CONFIG, JOINTS, MARKERS, SECOND

import rlds.sources
from rlds.formats.bags.config import BagConfig, Clock, EpisodeBounds, FieldConfig
from rlds.formats.bags.videos import mux_clip
from rlds.sources import SourceError
from rlds.sources.testing import differences
from rlds.video.decoding import ClipReader
from tfds_files.png import encode_png

McapSource = rlds.sources.formats()["mcap"].load()

POSITIONS = FieldConfig("observation/joints", JOINTS, "position")


def stamp_of(message):
    return message.header.stamp.sec * SECOND + message.header.stamp.nanosec


def plain_steps(rows):
    """Returns the steps of rows by `CONFIG`: times, joints, files of images, actions."""
    steps = []
    clock = [(stamp_of(message), message) for topic, _, message in rows if topic == JOINTS]
    clock.sort(key=lambda pair: pair[0])
    for index, (time, message) in enumerate(clock):
        end = clock[index + 1][0] if index + 1 < len(clock) else time + SECOND // 10
        joints = [message.position[message.name.index(name)] for name in "abc"]
        before = [m for topic, _, m in rows if topic == CAMERA and stamp_of(m) <= time]
        actions = [
            m for topic, message_time, m in rows if topic == COMMANDS and time <= message_time < end
        ]
        if before and actions:
            image = max(before, key=stamp_of).data.tobytes()
            steps.append((time, joints, image, actions[0].data.tolist()))
    return steps


def check_sample(episode, rows):
    expected = plain_steps(rows)
    assert episode.steps["timestamp"].tolist() == [step[0] for step in expected]
    assert episode.steps["observation"]["joints"].tolist() == [step[1] for step in expected]
    assert list(episode.steps["observation"]["image"]) == [step[2] for step in expected]
    assert episode.steps["action"].tolist() == [step[3] for step in expected]
    assert (episode.truncated, episode.final_observation_known) == (True, False)


CONTAINERS = {
    "a.mcap": raw_bags.write_mcap,
    "plain.mcap": lambda path, rows: raw_bags.write_mcap(path, rows, use_chunking=False),
    "lz4.mcap": lambda path, rows: raw_bags.write_mcap(
        path, rows, compression=raw_bags.CompressionType.LZ4
    ),
    "bag": raw_bags.write_ros2,
    "bag_mcap": lambda path, rows: raw_bags.write_ros2(path, rows, "mcap"),
    "bag_file": lambda path, rows: raw_bags.write_ros2(path, rows, compression="file"),
    "bag_message": lambda path, rows: raw_bags.write_ros2(path, rows, compression="message"),
}
ROS1_CONTAINERS = {
    "a.bag": raw_bags.write_ros1,
    "lz4.bag": lambda path, rows: raw_bags.write_ros1(path, rows, "lz4"),
    "bz2.bag": lambda path, rows: raw_bags.write_ros1(path, rows, "bz2"),
    "ros1.mcap": lambda path, rows: raw_bags.write_mcap(path, rows, ros1=True),
}


def test_every_container_gives_the_same_episode(tmp_path):
    for ros1, containers in ((False, CONTAINERS), (True, ROS1_CONTAINERS)):
        rows = raw_bags.sample(ros1=ros1)
        for name, write in containers.items():
            path = write(tmp_path / name, rows)
            episodes = rlds.sources.open(path, bag_config=CONFIG)
            assert episodes.format == ("mcap" if name.endswith(".mcap") else "rosbag")
            (episode,) = episodes
            check_sample(episode, rows)
            assert episode.complete
            assert episode.key == name.removesuffix(".mcap").removesuffix(".bag")
            assert episode.metadata["recording"]["begin"] == rows[0][1]
            assert episode.metadata["recording"]["end"] == rows[-1][1] + 1
            field = episodes.source.fields.steps["observation"]["joints"]
            assert (field.dtype, field.shape, field.names) == ("f8", (3,), ("a", "b", "c"))


def test_files_of_a_bag_are_joined_in_natural_order(tmp_path):
    rows = raw_bags.sample(8)
    path = raw_bags.write_ros2(tmp_path / "bag", rows[:9])
    more = raw_bags.write_ros2(tmp_path / "more", rows[9:])
    for index, folder in ((10, path), (2, more)):  # In natural order.
        (file,) = folder.glob("*.db3")
        file.rename(path / f"bag_{12 - index}.db3")
    metadata_file = path / "metadata.yaml"
    names = "  - bag_2.db3\n  - bag_10.db3\n"
    metadata_file.write_text(metadata_file.read_text().replace("  - bag.db3\n", names))
    check_sample(rlds.sources.open(path, bag_config=CONFIG)[0], rows)


def test_several_recordings_in_a_folder_are_read_in_order(tmp_path):
    for index in (10, 9):
        raw_bags.write_mcap(tmp_path / f"run_{index}.mcap", raw_bags.sample(seed=index))
    episodes = rlds.sources.open(tmp_path, bag_config=CONFIG)
    assert [episode.key for episode in episodes] == ["run_9", "run_10"]
    check_sample(episodes[1], raw_bags.sample(seed=10))
    assert episodes.columns(1, ["action"], start=1, stop=2)["action"].tolist() == [[11, -1]]
    assert "image" not in episodes.peek(0).steps["observation"]
    assert episodes.columns(0)["observation"]["image"].shape == (6, 4, 6, 3)
    copy = pickle.loads(pickle.dumps(episodes))
    assert list(differences(episodes[0], copy[0])) == []
    shutil.copytree(tmp_path, tmp_path / "more")
    raw_bags.write_ros2(tmp_path / "more" / "run", raw_bags.sample())
    assert rlds.sources.open(tmp_path / "more", bag_config=CONFIG, format="rosbag")[0].key == "run"


def arm_row(time, value):
    return (JOINTS, time, raw_bags.joints(time, ["a"], [value]))


def open_rows(path, rows, *fields, clock=None, episodes=None, **options):
    raw_bags.write_mcap(path, rows)
    clock = clock or Clock(JOINTS)
    config = BagConfig(clock, fields or (POSITIONS,), episodes or EpisodeBounds())
    return rlds.sources.open(path, bag_config=config, **options)


def test_policies_choose_the_messages_of_a_plain_search(tmp_path):
    """The messages are out of order in the file."""
    rng = np.random.default_rng(0)
    times = np.sort(rng.integers(0, 10 * SECOND, 40)) + BEGIN
    values = rng.random(40)
    order = np.argsort(times + rng.integers(0, SECOND, 40))
    ticks = np.arange(30) * SECOND // 3 + BEGIN + SECOND // 7
    rows = [("/tick", int(time), raw_bags.joints(int(time), ["a"], [0])) for time in ticks]
    rows += [arm_row(int(times[i]), values[i]) for i in order]
    age = 0.3
    fields = [
        FieldConfig(name, JOINTS, "position", policy=name, max_age=age, missing="null")
        for name in ("hold", "nearest", "linear", "first")
    ]
    window = FieldConfig("window", JOINTS, "position", policy="window", size=3, missing="null")
    fields.append(window)
    steps = open_rows(tmp_path / "a.mcap", rows, *fields, clock=Clock("/tick"))[0].steps
    for step, time in enumerate(ticks):
        ends = ticks[step + 1] if step + 1 < len(ticks) else time + SECOND // 3
        before, after = times[times <= time], times[times > time]
        expected = {"hold": before[-1:], "nearest": times[[np.argmin(abs(times - time))]]}
        expected["first"] = times[(times >= time) & (times < ends)][:1]
        for name, stamps in expected.items():
            stamps = [it for it in stamps if abs(it - time) <= age * SECOND]
            value = values[times == stamps[0]][0] if stamps else np.nan
            np.testing.assert_array_equal(steps[name][step], [value], err_msg=name)
            assert steps["stamps"][name][step] == (stamps[0] if stamps else 0)
            expected_age = (time - stamps[0]) / SECOND if stamps else np.nan
            np.testing.assert_array_equal(steps["ages"][name][step], expected_age)
        gap = len(before) and len(after) and max(time - before[-1], after[0] - time)
        value = (
            np.interp(time - BEGIN, times - BEGIN, values)
            if gap and gap <= age * SECOND
            else np.nan
        )
        np.testing.assert_allclose(steps["linear"][step], [value], rtol=1e-7)
        indices = np.flatnonzero(times <= time)[-3:]
        expected = [[value] for value in values[indices]] if len(indices) == 3 else [[np.nan]] * 3
        np.testing.assert_array_equal(steps["window"][step], expected)
        if len(indices) == 3:
            assert steps["stamps"]["window"][step].tolist() == times[indices].tolist()


def test_slerp_turns_at_a_constant_rate(tmp_path):
    turns = [np.array([0, 0, np.sin(a / 2), np.cos(a / 2)]) for a in (0.0, 1.0, 2.0)]
    turns[1] = -turns[1]  # The same rotation.
    rows = [("/turn", BEGIN + i * SECOND, raw_bags.command(turn)) for i, turn in enumerate(turns)]
    turn = FieldConfig("turn", "/turn", "data", policy="slerp")
    steps = open_rows(tmp_path / "a.mcap", rows, turn, clock=Clock(rate=4))[0].steps
    angles = 2 * np.arctan2(steps["turn"][:, 2], steps["turn"][:, 3])
    np.testing.assert_allclose(np.unwrap(angles, period=2 * np.pi), np.arange(9) / 4, atol=1e-12)
    assert steps["turn"][4].tolist() == turns[1].tolist()  # A recorded rotation is unchanged.


def test_steps_at_a_fixed_rate_lie_within_the_times_of_all_topics(tmp_path):
    rows = [arm_row(BEGIN + i * SECOND // 10, i) for i in range(20)]
    rows += [
        (COMMANDS, BEGIN + SECOND // 2 + i * SECOND // 4, raw_bags.command([i])) for i in range(4)
    ]
    fields = (POSITIONS, FieldConfig("action", COMMANDS, "data"))
    clock = Clock(rate=5)
    (episode,) = open_rows(tmp_path / "a.mcap", rows, *fields, clock=clock)
    assert (episode.steps["timestamp"] - BEGIN).tolist() == [
        SECOND // 2 + i * SECOND // 5 for i in range(4)
    ]
    assert episode.steps["action"].ravel().tolist() == [0, 0, 1, 2]


def test_missing_values_are_dropped_filled_or_refused(tmp_path):
    rows = [arm_row(BEGIN + i * SECOND, i) for i in range(4)]
    rows += [("/note", BEGIN + SECOND, raw_bags.text("hello"))]
    for missing, expected in {
        "drop": ["hello"] * 3,
        "null": ["", "hello", "hello", "hello"],
    }.items():
        note = FieldConfig("note", "/note", "data", missing=missing)
        (episode,) = open_rows(tmp_path / f"{missing}.mcap", rows, POSITIONS, note)
        assert episode.steps["note"].tolist() == expected
        assert episode.metadata["recording"]["dropped_steps"] == 4 - len(expected)
    note = FieldConfig("note", "/note", "data", missing="error")
    with pytest.raises(SourceError, match=r"row 0, field 'note': /note has no message"):
        open_rows(tmp_path / "error.mcap", rows, POSITIONS, note)[0]


def test_joints_are_selected_by_name(tmp_path):
    """Lengths and orders change, some messages lack joints, some have no values."""
    states = [
        (["a", "b"], [1, 2]),
        (["b", "a"], [4, 3]),
        (["gripper"], [9]),
        ([], []),
        (["c", "b", "a"], [0, 6, 5]),
    ]
    rows = [
        (JOINTS, BEGIN + i * SECOND, raw_bags.joints(BEGIN + i * SECOND, *it))
        for i, it in enumerate(states)
    ]
    steps = open_rows(tmp_path / "a.mcap", rows)[0].steps
    expected = [[1, 2], [3, 4], [3, 4], [3, 4], [5, 6]]
    assert steps["observation"]["joints"].tolist() == expected
    assert steps["ages"]["observation"]["joints"].tolist() == [0, 0, 1, 2, 0]
    named = FieldConfig("x", JOINTS, "position", order=("b", "gripper"))
    with pytest.raises(SourceError, match=r"field 'x': no message of '/joint_states' has a value"):
        open_rows(tmp_path / "b.mcap", rows, named)
    by_index = FieldConfig("x", JOINTS, "position", names="none")
    with pytest.raises(SourceError, match=r"values of shape \(1,\), expected \(2,\)"):
        open_rows(tmp_path / "c.mcap", rows, by_index)[0]


def test_steps_have_the_chosen_stamps(tmp_path):
    """A zero stamp is missing; the clock of a simulation differs from the recorder's."""
    rows = [arm_row(0, 1), arm_row(2 * SECOND, 2)]
    rows = [(topic, BEGIN + i, it) for i, (topic, _, it) in enumerate(rows)]
    with pytest.raises(SourceError, match=r'stamps of /joint_states go back .*"log_time"'):
        open_rows(tmp_path / "a.mcap", rows)[0]
    for stamp, first in {"log_time": BEGIN, "publish_time": BEGIN - 500}.items():
        field = FieldConfig("x", JOINTS, "position", stamp=stamp)
        clock = Clock(JOINTS, stamp=stamp)
        steps = open_rows(tmp_path / f"{stamp}.mcap", rows, field, clock=clock)[0].steps
        assert steps["timestamp"].tolist() == [first, first + 1]
    rows = [(JOINTS, BEGIN, raw_bags.joints(SECOND, ["a"], [1])), *rows[1:]]
    rows.append((COMMANDS, BEGIN, raw_bags.command([1])))
    with pytest.raises(SourceError, match=r"no step has values"):
        open_rows(tmp_path / "b.mcap", rows, POSITIONS, FieldConfig("action", COMMANDS, "data"))[0]


def test_a_clock_that_goes_back_is_an_error_or_begins_an_episode(tmp_path):
    sim = [*range(1, 5), *range(1, 4)]
    rows = [
        (JOINTS, BEGIN + i * SECOND, raw_bags.joints(stamp * SECOND, ["a"], [10 * i]))
        for i, stamp in enumerate(sim)
    ]
    with pytest.raises(SourceError, match=r"go back by 3.000 s"):
        open_rows(tmp_path / "a.mcap", rows)[0]
    gaps = EpisodeBounds("gap", seconds=1.5)
    first, second = open_rows(tmp_path / "b.mcap", rows, episodes=gaps)
    assert first.steps["observation"]["joints"].ravel().tolist() == [0, 10, 20, 30]
    assert second.steps["observation"]["joints"].ravel().tolist() == [40, 50, 60]
    assert second.steps["timestamp"].tolist() == [SECOND, 2 * SECOND, 3 * SECOND]


def test_markers_and_metadata_records_divide_a_recording_into_episodes(tmp_path):
    rows = [arm_row(BEGIN + i * SECOND, i) for i in range(10)]
    for second, value in ((2, "start"), (5, "stop"), (6, "note"), (8, "start")):
        rows.append((MARKERS, BEGIN + second * SECOND - 1, raw_bags.text(value)))
    rows.append(("/once", BEGIN - SECOND, raw_bags.text("calibrated")))
    markers = EpisodeBounds("marker", MARKERS, start="start", stop="stop")
    once = FieldConfig("once", "/once", "data")
    raw_bags.write_mcap(
        tmp_path / "a.mcap",
        rows,
        metadata=[
            ("episode", {"start_time": str(BEGIN), "end_time": str(BEGIN + 2), "task": "pick"}),
            ("other", {}),
        ],
    )
    config = BagConfig(Clock(JOINTS), (POSITIONS, once), markers)
    episodes = rlds.sources.open(tmp_path / "a.mcap", bag_config=config)
    assert len(episodes) == 2
    actual = [episode.steps["observation"]["joints"].ravel().tolist() for episode in episodes]
    assert actual == [[2, 3, 4], [8, 9]]
    assert [episode.key for episode in episodes] == ["a:0", "a:1"]
    assert [episode.complete for episode in episodes] == [True, False]
    assert episodes[1].steps["once"].tolist() == ["calibrated"] * 2  # From before the episode.
    records = BagConfig(Clock(JOINTS), (POSITIONS,), EpisodeBounds("metadata"))
    (episode,) = rlds.sources.open(tmp_path / "a.mcap", bag_config=records)
    assert episode.num_steps == 1
    assert '"task": "pick"' in episode.metadata["recording"]["metadata"]


def test_the_next_state_can_be_the_action(tmp_path):
    rows = [arm_row(BEGIN + i * SECOND, i) for i in range(3)]
    action = FieldConfig("action", policy="next_state", source="observation/joints")
    episodes = open_rows(tmp_path / "a.mcap", rows, POSITIONS, action)
    steps = episodes[0].steps
    assert steps["action"].ravel().tolist() == [1, 2, 0]
    assert steps["discount"].tolist() == [1, 1, 0]
    assert episodes[0].final_observation_known
    field = episodes.metadata["mcap"]["config"]["fields"][1]
    assert field["policy"] == "next_state"


def test_raw_images_and_vectors_of_several_values_are_read(tmp_path):
    rng = np.random.default_rng(1)
    colour = rng.integers(0, 256, (3, 2, 3), np.uint8)
    depth = rng.integers(0, 65536, (3, 2, 1), np.uint16)
    pose = raw_bags.message(
        "geometry_msgs/PoseStamped",
        header=raw_bags.header(BEGIN),
        pose=raw_bags.message(
            "geometry_msgs/Pose",
            position=raw_bags.message("geometry_msgs/Point", x=1.0, y=2.0, z=3.0),
            orientation=raw_bags.message("geometry_msgs/Quaternion", x=0.0, y=0.0, z=0.0, w=1.0),
        ),
    )
    rows = [
        arm_row(BEGIN, 0),
        ("/bgr", BEGIN, raw_bags.image(BEGIN, colour, "bgr8")),
        ("/depth", BEGIN, raw_bags.image(BEGIN, depth, "16UC1")),
        ("/pose", BEGIN, pose),
    ]
    fields = [
        FieldConfig("colour", "/bgr"),
        FieldConfig("depth", "/depth"),
        FieldConfig("position", "/pose", "pose/position"),
        FieldConfig("parts", "/pose", ("pose/position/y", "pose/orientation"), dtype="float32"),
        FieldConfig("raw", "/pose", "bytes"),
    ]
    episodes = open_rows(tmp_path / "a.mcap", rows, *fields)
    steps = episodes[0].steps
    np.testing.assert_array_equal(steps["colour"][0], colour[..., ::-1])
    np.testing.assert_array_equal(steps["depth"][0], depth)
    assert steps["position"].tolist() == [[1, 2, 3]]
    assert episodes.source.fields.steps["position"].names == ("x", "y", "z")
    assert steps["parts"].tolist() == [[2, 0, 0, 0, 1]]
    assert steps["parts"].dtype == np.float32
    assert steps["raw"][0] == bytes(raw_bags.store().serialize_cdr(pose, pose.__msgtype__))


def test_compressed_depths_are_decoded_in_their_unit(tmp_path):
    """As in REP 118 of ROS: floats are in metres, integers in millimetres."""
    truth = np.array([[0.5, 1, 2], [3, 8, np.inf]], np.float32)

    def encode_inverse(quality):  # As image_transport does: each message has its own a and b.
        a = np.float32(quality * (quality + 1))
        b = 1 - a / np.float32(10)
        codes = np.where(truth < 10, a / truth + b, 0).astype(np.uint16)
        with np.errstate(divide="ignore"):
            decoded = np.where(codes > 0, a / (codes.astype(np.float32) - b), np.float32(np.nan))
        return struct.pack("<iff", 0, a, b) + encode_png(codes[..., None]), decoded

    messages = [encode_inverse(quality) for quality in (100, 50)]
    codes = np.arange(6, dtype=np.uint16).reshape(2, 3, 1) + 500
    plain = bytes(12) + encode_png(codes)
    rows = []
    for index, (data, _) in enumerate(messages):
        time = BEGIN + index * SECOND
        rows.append(("/tick", time, raw_bags.command([index])))
        for topic, content, name in (
            ("/inverse", data, "32FC1; compressedDepth"),
            ("/plain", plain, "16UC1; compressedDepth png"),
            ("/rvl", bytes(20), "16UC1; compressedDepth rvl"),
            ("/odd", plain, "compressedDepth"),
        ):
            rows.append((topic, time, raw_bags.compressed(time, content, name)))
        rows.append(("/depth", time, raw_bags.image(time, truth[..., None], "32FC1")))
        rows.append(("/heat", time, raw_bags.image(time, codes, "16UC1")))
        rows.append(("/bayer", time, raw_bags.image(time, codes, "bayer_rggb16")))
    path = raw_bags.write_mcap(tmp_path / "a.mcap", rows)
    with pytest.warns(UserWarning, match=r" is left out: .*the path 'data'") as warned:
        episodes = rlds.sources.open(path)
    topics = [str(it.message).split()[0] for it in warned]
    assert topics == ["/bayer", "/odd", "/rvl"]
    fields = episodes.spec["steps"]["observation"]["images"]
    assert {name: field.unit for name, field in fields.items()} == {
        **{"inverse": "m", "plain": "mm", "depth": "m", "heat": None}
    }
    images = episodes.columns(0)["observation"]["images"]
    for row, (_, expected) in enumerate(messages):
        np.testing.assert_array_equal(images["inverse"][row, ..., 0], expected)
        np.testing.assert_allclose(expected[truth < 10], truth[truth < 10], rtol=0.02)
    np.testing.assert_array_equal(images["plain"][0], codes)
    np.testing.assert_array_equal(images["depth"][0, ..., 0], truth)
    odd = BagConfig(Clock("/tick"), (FieldConfig("x", "/odd"),))
    with pytest.raises(SourceError, match="'compressedDepth', expected one that begins with 16UC1"):
        rlds.sources.open(path, bag_config=odd)


def test_json_and_protobuf_messages_are_read(tmp_path):
    stamp = {"sec": 5, "nsec": 7}
    picture = base64.b64encode(raw_bags.png(9)).decode()
    rows = [
        ("/pose", BEGIN, {"timestamp": stamp, "pose": {"x": 1, "y": 2.5}, "on": True}),
        ("/image", BEGIN, {"timestamp": stamp, "data": picture, "format": "png"}),
    ]
    path = raw_bags.write_json_mcap(tmp_path / "a.mcap", rows)
    config = {
        "clock": {"topic": "/pose"},
        "fields": [
            {"field": "pose", "topic": "/pose", "path": "pose"},
            {"field": "on", "topic": "/pose", "path": "on"},
            {"field": "image", "topic": "/image"},
        ],
    }
    (episode,) = rlds.sources.open(path, bag_config=config)
    assert episode.steps["pose"].tolist() == [[1, 2.5]]
    assert episode.steps["on"].tolist() == [True]
    assert episode.steps["image"].tolist() == [raw_bags.png(9)]
    assert episode.steps["timestamp"].tolist() == [5 * SECOND + 7]

    from google.protobuf import descriptor_pb2, timestamp_pb2

    files = descriptor_pb2.FileDescriptorSet()
    timestamp_pb2.DESCRIPTOR.CopyToProto(files.file.add())
    file = files.file.add(name="arm.proto", syntax="proto3", dependency=[files.file[0].name])
    kind = file.message_type.add(name="Arm")
    kind.field.add(
        name="timestamp", number=1, type=11, label=1, type_name=".google.protobuf.Timestamp"
    )
    kind.field.add(name="joints", number=2, type=2, label=3)
    kind.field.add(name="child", number=3, type=11, label=1, type_name=".Arm")  # Nested in itself.
    data = bytes.fromhex("0a04 0805 1007 1208") + struct.pack("<ff", 0.5, 1.5)
    schema = ("protobuf", files.SerializeToString())
    rows = [("/arm", "Arm", schema, "protobuf", BEGIN, data)]
    path = raw_bags.write_plain_mcap(tmp_path / "b.mcap", rows)
    (episode,) = rlds.sources.open(path)
    assert episode.steps["timestamp"].tolist() == [5 * SECOND + 7]
    assert episode.steps["observation"]["arm"].tolist() == [[0.5, 1.5]]


def test_video_packets_are_cut_at_the_keyframe_before_the_first_step(tmp_path):
    """The indices of the frames of each step remain right."""
    context = av.CodecContext.create("libx264", "w")
    context.width, context.height, context.pix_fmt = 64, 48, "yuv420p"
    context.time_base, context.gop_size = Fraction(1, 10), 5
    context.options = {"bf": "0", "tune": "zerolatency"}
    frames = [av.VideoFrame.from_ndarray(it, format="rgb24") for it in videos.pictures(14)]
    packets = [bytes(packet) for frame in frames for packet in context.encode(frame)]
    packets += [bytes(packet) for packet in context.encode(None)]
    rows = []
    for index, packet in enumerate(packets):
        data = base64.b64encode(packet).decode()
        rows.append(("/cam", BEGIN + index * SECOND // 10, {"format": "h264", "data": data}))
    rows += [("/tick", BEGIN + n * SECOND // 10 + 5, {"x": n}) for n in (7, 8, 10, 12)]
    config = {"clock": {"topic": "/tick"}, "fields": [{"field": "camera", "topic": "/cam"}]}
    config["fields"].append({"field": "x", "topic": "/tick", "path": "x"})
    path = raw_bags.write_json_mcap(tmp_path / "a.mcap", rows)
    episodes = rlds.sources.open(path, bag_config=config)
    video = episodes[0].metadata["video"]["camera"]
    assert (video["first"], video["frames"].tolist()) == (2, [2, 3, 5, 7])
    with ClipReader(video["clip"]) as clip:
        assert len(clip) == 8  # From the keyframe 5 to 12.
        actual = clip.frames(0, 8)
    with ClipReader(mux_clip(packets, "h264")) as reader:
        np.testing.assert_array_equal(actual, reader.frames(5, 13))
    assert "camera" not in episodes.spec["steps"]
    assert episodes[0].steps["stamps"]["camera"][0] == BEGIN + 7 * SECOND // 10
    cut_path = raw_bags.write_json_mcap(tmp_path / "b.mcap", rows[6:])
    with pytest.raises(SourceError, match="no keyframe comes before the first step"):
        rlds.sources.open(cut_path, bag_config=config)[0]


@pytest.mark.slow
def test_truncated_mcap_files_are_read_up_to_the_cut_and_truncated_bags_are_refused(tmp_path):
    rows = raw_bags.sample(150)
    path = tmp_path / "a.mcap"
    for chunking in (True, False):
        raw_bags.write_mcap(path, rows, use_chunking=chunking)
        path.write_bytes(path.read_bytes()[: int(0.6 * path.stat().st_size)])
        (episode,) = rlds.sources.open(path, bag_config=CONFIG)
        assert not episode.complete
        assert 5 < episode.num_steps < 140
        expected = plain_steps(rows)[: episode.num_steps]
        assert episode.steps["timestamp"].tolist() == [step[0] for step in expected]
        assert list(episode.steps["observation"]["image"]) == [step[2] for step in expected]
    advice = {
        raw_bags.write_ros1(tmp_path / "a.bag", raw_bags.sample(150, ros1=True)): "reindex|index",
        next(raw_bags.write_ros2(tmp_path / "bag", rows).glob("*.db3")): "malformed",
    }
    for path, pattern in advice.items():
        path.write_bytes(path.read_bytes()[: int(0.6 * path.stat().st_size)])
        with pytest.raises(SourceError, match=pattern):
            rlds.sources.open(path, bag_config=CONFIG)


def test_bags_with_missing_files_are_refused_and_with_missing_messages_incomplete(tmp_path):
    bag = raw_bags.write_ros2(tmp_path / "bag", raw_bags.sample())
    metadata_file = bag / "metadata.yaml"
    text = metadata_file.read_text()
    names = "  - bag.db3\n    - bag/bag_1.db3.zstd\n".replace("    -", "  -")
    metadata_file.write_text(text.replace("  - bag.db3\n", names))
    with pytest.raises(SourceError, match=r"metadata\.yaml.*missing files: bag_1\.db3"):
        rlds.sources.open(bag, bag_config=CONFIG)[0]
    metadata_file.write_text(text.replace("  message_count: 15", "  message_count: 16"))
    assert not rlds.sources.open(bag, bag_config=CONFIG)[0].complete


TRICKS = {
    "a view": "CREATE VIEW messages AS WITH RECURSIVE endless(n) AS (VALUES(1) UNION ALL SELECT "
    "n + 1 FROM endless) SELECT n id, 1 topic_id, n timestamp, x'00' data FROM endless",
    "a generated column": "CREATE TABLE messages(id INTEGER PRIMARY KEY, topic_id, timestamp, "
    "data BLOB AS (zeroblob(1000000000)))",
}


@pytest.mark.parametrize("trick", TRICKS)
def test_manipulated_database_schemas_are_refused(tmp_path, trick):
    bag = raw_bags.write_ros2(tmp_path / "bag", raw_bags.sample())
    with contextlib.closing(sqlite3.connect(bag / "bag.db3")) as database:
        database.execute("PRAGMA writable_schema = ON")
        change = "UPDATE sqlite_master SET sql = ? WHERE name = 'messages'"
        database.execute(change, (TRICKS[trick],))
        database.commit()
    with pytest.raises(SourceError, match=r"bag\.db3"):
        rlds.sources.open(bag, format="rosbag", bag_config=CONFIG)[0]


def test_messages_outside_chunks_are_read(tmp_path):
    """All are read, as by the mcap package, with and without statistics in the file."""

    def write(path, **options):
        with path.open("wb") as file:
            writer = Writer(file, chunk_size=200, compression=CompressionType.NONE, **options)
            writer.start()
            builder, writer._Writer__chunk_builder = writer._Writer__chunk_builder, None
            channel = writer.register_channel(JOINTS, "json", 0)
            for index in range(20):  # Some come before all chunks, between them, and after them.
                writer._Writer__chunk_builder = None if index in (0, 1, 9, 19) else builder
                time = BEGIN + index * SECOND
                writer.add_message(channel, time, b'{"position": %d}' % index, time)
            writer._Writer__chunk_builder = builder
            writer.finish()
        return path

    for name, options in {"a": {}, "b": {"use_statistics": False}}.items():
        path = write(tmp_path / f"{name}.mcap", **options)
        with path.open("rb") as file:
            assert len(list(NonSeekingReader(file).iter_messages())) == 20
        (episode,) = rlds.sources.open(path)
        assert episode.steps["observation"]["joint_states"].tolist() == [*range(20)]
        assert episode.complete
    content = path.read_bytes()
    with path.open("rb") as file:
        chunks = make_reader(file).get_summary().chunk_indexes
    damaged = content
    for chunk in chunks:
        location = struct.pack("<QQ", chunk.chunk_start_offset, chunk.chunk_length)
        head, tail = damaged.split(location)
        tail = tail.replace(struct.pack("<Q", chunk.message_index_length), bytes(8), 1)
        damaged = head + location[:8] + bytes(8) + tail
    path.write_bytes(damaged)  # The lengths of chunks in the index are wrong.
    (episode,) = rlds.sources.open(path)
    assert episode.steps["observation"]["joint_states"].tolist() == [*range(20)]
    offset = content.index(b'{"position": 9}') - 31  # Of the length, which then exceeds the file.
    path.write_bytes(content[: offset + 1] + struct.pack("<Q", 1 << 40) + content[offset + 9 :])
    with pytest.raises(SourceError, match=r"damaged records outside chunks: .*reaches beyond"):
        rlds.sources.open(path)[0]
    (episode,) = rlds.sources.open(path, damaged_chunks="leave_out")
    assert (episode.complete, episode.num_steps) == (False, 19)


def test_damaged_chunks_are_errors_or_left_out(tmp_path):
    rows = raw_bags.sample(40)
    path = raw_bags.write_mcap(tmp_path / "a.mcap", rows)
    content = bytearray(path.read_bytes())
    content[len(content) // 3] ^= 255
    path.write_bytes(content)
    with pytest.raises(SourceError, match=r'the chunk .*damaged_chunks="leave_out"'):
        rlds.sources.open(path, bag_config=CONFIG)[0]
    (episode,) = rlds.sources.open(path, bag_config=CONFIG, damaged_chunks="leave_out")
    assert not episode.complete
    assert 20 < episode.num_steps < 40
    assert episode.steps["timestamp"][-1] == plain_steps(rows)[-1][0]
    # Episodes without damaged chunks are read.
    gaps = {**CONFIG, "episodes": {"by": "gap", "seconds": 0.5}}
    later = raw_bags.sample(5, begin=BEGIN + 60 * SECOND)
    path = raw_bags.write_mcap(tmp_path / "b.mcap", rows + later)
    content = bytearray(path.read_bytes())
    content[len(content) // 4] ^= 255
    path.write_bytes(content)
    episodes = rlds.sources.open(path, bag_config=gaps)
    assert len(episodes) == 2
    with pytest.raises(SourceError, match="chunk"):
        episodes[0]
    assert episodes[1].steps["timestamp"].tolist() == [step[0] for step in plain_steps(later)]


def test_errors_list_the_topics_and_fields(tmp_path):
    path = raw_bags.write_mcap(tmp_path / "a.mcap", raw_bags.sample())
    clock = Clock(JOINTS)
    for config, pattern in (
        (BagConfig(clock, (FieldConfig("x", "/nowhere", "data"),)), r"/joint_states \(sensor_msg"),
        (BagConfig(Clock("/tick"), (POSITIONS,)), "no messages of '/tick'"),
        (BagConfig(clock, (FieldConfig("x", JOINTS, "positions"),)), "header, name, position"),
    ):
        with pytest.raises(SourceError, match=pattern):
            rlds.sources.open(path, bag_config=config)
    schema = ("ros2msg", b"other_msgs/Thing thing\n")
    rows = [("/x", "my_msgs/msg/Odd", schema, "cdr", BEGIN, bytes(8))]
    rows += [("/y", "", ("", b""), "msgpack", BEGIN, b"\x01")]
    path = raw_bags.write_plain_mcap(tmp_path / "b.mcap", rows)
    with pytest.raises(SourceError, match=r"pass a bag_config; its topics are /x \(my_msgs"):
        rlds.sources.open(path)
    for topic, pattern in {"/x": "the definition of other_msgs", "/y": "'msgpack'"}.items():
        with pytest.raises(SourceError, match=pattern):
            open_config = BagConfig(Clock(rate=1), (FieldConfig("x", topic, "thing"),))
            rlds.sources.open(path, bag_config=open_config)
    raw = BagConfig(Clock(rate=1), (FieldConfig("x", "/y", "bytes", stamp="log_time"),))
    assert rlds.sources.open(path, bag_config=raw)[0].steps["x"].tolist() == [b"\x01"]


def test_message_definitions_of_unbounded_cost_are_refused():
    """The bytes of a message bound the work of decoding it."""
    from rlds.formats.bags.definitions import DecoderError, make_decoder
    from rlds.formats.bags.messages import Channel

    line = "=" * 80
    long_array = f"B[1000000000] x\n{line}\nMSG: p/B\nfloat64 y\n"
    recursive = f"B x\n{line}\nMSG: p/B\nB[] y\n"
    empty = f"B[] x\n{line}\nMSG: p/B\n"
    for text, encoding, pattern in (
        (long_array, "cdr", "more than 100,000 values"),
        (recursive, "cdr", "contains itself"),
        (empty, "ros1", "without any bytes"),
        ("float64 x\n" * 100_000, "cdr", "100,000 lines, expected at most 20,000"),
    ):
        channel = Channel("/x", "p/A", encoding, text.encode(), "ros1msg")
        with pytest.raises(ValueError, match=pattern):
            make_decoder(channel)(b"\xff" * 64)
    assert issubclass(DecoderError, ValueError)


def test_a_config_is_proposed_if_none_is_passed(tmp_path):
    path = raw_bags.write_mcap(tmp_path / "a.mcap", raw_bags.sample(10))
    episodes = rlds.sources.open(path)
    spec = episodes.spec["steps"]
    assert spec["observation"]["joint_states"].names == ("a", "b", "c")
    assert spec["observation"]["images"]["camera"].encoding == "png"
    assert spec["action"].shape == (2,)
    actual = episodes.metadata["mcap"]
    assert actual["config_is"] == "proposed"
    assert actual["config"]["clock"] == {"topic": JOINTS}
    assert actual["topics"][CAMERA]["type"] == "sensor_msgs/msg/CompressedImage"
    text = episodes.source.config.to_toml()
    assert BagConfig.from_toml(text) == episodes.source.config
    (tmp_path / "arm.toml").write_text(text)
    source = McapSource(path, bag_config=str(tmp_path / "arm.toml"))
    assert list(differences(episodes[0], source.read("train", 0))) == []
    assert source.source_info.metadata["mcap"]["config_is"] == "given"


def test_wrong_configurations_are_refused():
    fields = "clock = {rate = 5}\n[[fields]]\n"
    for text, pattern in (
        ("clock = {topics = 'x'}", "clock: got 'topics', expected one of topic, rate, stamp"),
        ("clock = {rate = 'x'}", "clock: rate: got 'x'"),
        ("[clock]", "expected either a topic or a rate"),
        (f"{fields}topic = 'x'", r"fields\[0\]: field is missing"),
        (f"{fields}field = 'is_last'\ntopic = 'x'", "field 'is_last'"),
        (f"{fields}field = 'x'\ntopic = 'x'\npolicy = 'last'", "expected hold, nearest"),
    ):
        with pytest.raises(ValueError, match=pattern):
            BagConfig.from_toml(text)
