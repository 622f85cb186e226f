import io
import json
import os
import shutil
import subprocess
import sys

import h5py
import minari
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import raw_minari
import tensorflow_datasets as tfds
from conversions import check_conversion
from fast_share import one_in
from gymnasium import spaces
from PIL import Image

import rlds.sources
from rlds.raw_files.untrusted import SourceChangedError
from rlds.sources import reading
from rlds.sources.source import DamagedEpisode, SourceError
from rlds.sources.testing import check_source
from rlds_ecosystem.model.fields import Field
from rlds_ecosystem.model.nests import leaves_at, lookup
from tfds_builders import RldsMinari
from tfds_builders.features import features_of

MinariSource = rlds.sources.formats()["minari"].load()

FORMATS = ["hdf5", "arrow", "parquet"]


@pytest.fixture(autouse=True)
def root(tmp_path, monkeypatch):
    root = tmp_path / "minari"
    root.mkdir()
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(root))
    return root


def read_all(source):
    return [source.read("train", index) for index in range(source.num_episodes("train"))]


def decode(images):
    return np.stack([np.asarray(Image.open(io.BytesIO(image))) for image in images])


def open_hdf5(directory):
    return h5py.File(directory / "data" / "main_data.hdf5", "r+")


def make_box(steps=2, **fields):
    """Returns an episode of the simplest spaces."""
    return minari.data_collector.EpisodeBuffer(
        **{
            "observations": np.arange(steps + 1, dtype=np.float32).reshape(-1, 1),
            "actions": np.arange(steps),
            "rewards": [0.5] * steps,
            "terminations": [False] * (steps - 1) + [True],
            "truncations": [False] * steps,
            "infos": {},
            **fields,
        }
    )


def write_boxes(*episodes, dataset_id="box-v0", **kwargs):
    return raw_minari.write_buffers(
        dataset_id,
        list(episodes),
        observation_space=spaces.Box(-np.inf, np.inf, (1,), np.float32),
        action_space=spaces.Discrete(9),
        **kwargs,
    )


# --- Reading -------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("data_format", FORMATS)
def test_episodes_have_the_values_that_minari_reads(data_format):
    directory = raw_minari.write_buffers("space/all-v1", data_format=data_format)
    source = MinariSource(directory)
    storage = minari.load_dataset("space/all-v1").storage
    for index, episode in enumerate(read_all(source)):
        (expected,) = storage.get_episodes([index])
        steps, rows = episode.steps, len(expected["rewards"])
        observation = steps["observation"]
        assert observation.keys() == raw_minari.OBSERVATION_SPACE.spaces.keys()
        for name in ("box", "flags", "icon", "multi", "scalar"):
            assert observation[name].dtype == expected["observations"][name].dtype
            np.testing.assert_array_equal(observation[name], expected["observations"][name])
        for name in ("camera", "grey"):
            np.testing.assert_array_equal(decode(observation[name]), expected["observations"][name])
        for position, values in enumerate(expected["observations"]["parts"]):
            assert (
                observation["parts"][f"_index_{position}"].tolist() == np.asarray(values).tolist()
            )
        np.testing.assert_array_equal(steps["action"]["_index_0"][:-1], expected["actions"][0])
        assert steps["action"]["_index_1"].tolist() == [*expected["actions"][1], ""]
        np.testing.assert_array_equal(steps["reward"], [*expected["rewards"], 0])
        for name in ("terminations", "truncations"):
            assert steps[name].tolist() == [*expected[name], False]
        np.testing.assert_array_equal(
            steps["infos"]["position"], np.stack(list(expected["infos"]["position"]))
        )
        assert steps["infos"]["state"]["name"].tolist() == ["x"] * (rows + 1)
        assert steps["infos"]["state"]["count"].tolist() == list(range(rows + 1))
        assert steps["infos"]["state"]["half"].dtype == np.float16
        assert episode.final_observation_known


def test_features_have_the_types_and_shapes_of_the_spaces():
    source = MinariSource(raw_minari.write_buffers("all-v1"))
    features = source.fields.steps
    assert features["observation"]["camera"] == Field(np.uint8, (33, 40, 3), encoding="jpeg")
    assert features["observation"]["grey"] == Field(np.uint8, (32, 34, 1), encoding="jpeg")
    assert features["observation"]["scalar"] == Field(np.float64)
    stored = features_of(source)["steps"].feature["observation"]
    assert repr(stored["camera"]) == "Image(shape=(33, 40, 3), dtype=uint8)"
    assert stored["grey"].encoding_format == "jpeg"
    assert stored["icon"].encoding_format == "png"
    assert repr(stored["scalar"]) == "Tensor(shape=(), dtype=float64)"
    subspaces = features["observation"]["parts"]
    assert list(subspaces) == ["_index_0", "_index_1", "_index_2"]
    assert subspaces["_index_2"] == Field(str)
    assert repr(stored["parts"]["_index_2"]) == "Text(shape=(), dtype=string)"
    metadata = source.source_info.metadata
    assert metadata["minari"] == raw_minari.read_metadata(raw_minari.directory_of("all-v1"))
    assert source.capabilities.totals("train") == {"total_episodes": 4, "total_steps": 10}


def test_flags_decide_how_an_episode_ends():
    source = MinariSource(raw_minari.write_buffers("all-v1"))
    ends = [
        (episode.steps["is_terminal"][-1], episode.truncated, episode.complete)
        for episode in read_all(source)
    ]
    terminal, truncated, both, neither = ends
    assert terminal == both == (True, False, True)
    assert truncated == (False, True, True)
    assert neither == (False, True, False)
    assert read_all(source)[2].steps["truncations"].tolist() == [False, True, False]


@pytest.mark.slow
@pytest.mark.parametrize("data_format", FORMATS)
def test_attributes_become_metadata_of_episodes(data_format):
    source = MinariSource(raw_minari.write_buffers("all-v1", data_format=data_format))
    first, second, _, last = (episode.metadata for episode in read_all(source))
    assert (first["seed"], first["seed_known"]) == (7, True)
    assert (second["seed"], second["seed_known"]) == (2**63 + 9, True)
    assert (last["seed"], last["seed_known"]) == (0, False)
    assert (first["options"], first["options_known"]) == ("", False)
    assert json.loads(second["options"]) == {"start": {"x": 1, "name": "a"}, "goal": [1.0, 2.0]}
    assert first["attributes"]["rewards_sum"] == 2.5
    assert first["recorded_episode_id"] == 0
    assert first["irregular"] == "{}"


def test_options_of_any_type_are_kept_as_json():
    directory = raw_minari.write_buffers("all-v1")
    with open_hdf5(directory) as file:
        file["episode_0"].attrs["options/mode"] = np.bytes_("a")
    metadata = MinariSource(directory).read("train", 0).metadata
    assert (metadata["options"], metadata["options_known"]) == ('{"mode": "b\'a\'"}', True)
    assert json.loads(metadata["irregular"])["attributes"].keys() == {"options"}


def test_rewards_of_other_dtypes_are_widened():
    source = MinariSource(raw_minari.write_buffers("all-v1"))
    episodes = read_all(source)
    assert {episode.steps["reward"].dtype for episode in episodes} == {np.dtype(np.float64)}


def test_flags_may_be_stored_as_numbers():
    directory = write_boxes(make_box(), make_box())
    with open_hdf5(directory) as file:
        for episode in ("episode_0", "episode_1"):
            change(file[episode], "terminations", np.array([0, 1], np.int64))
            change(file[episode], "truncations", np.array([0, 0], np.uint8))
        change(file["episode_1"], "terminations", np.array([0, 2], np.int64))
    source = MinariSource(directory)
    episode = source.read("train", 0)
    assert (episode.steps["is_terminal"].tolist(), episode.truncated) == (
        [False] * 2 + [True],
        False,
    )
    assert episode.steps["terminations"].dtype == np.bool_
    with pytest.raises(
        SourceError, match="episode 1, row 1, field 'terminations': int64 2 does not fit"
    ):
        source.read("train", 1)


def test_numbers_that_the_widest_dtype_cannot_hold_are_errors():
    source = MinariSource(
        write_boxes(make_box(), make_box(rewards=[1, 2**53 + 1], terminations=[False, True]))
    )
    message = r"episode 1, row 1, field 'rewards': int64 9007199254740993 does not fit float64"
    with pytest.raises(SourceError, match=message):
        source.read("train", 1)


def test_infos_may_be_missing_in_some_episodes():
    infos = {"a": [1, 2, 3], "b": {"c": ["x", "y", "z"]}}
    source = MinariSource(write_boxes(make_box(infos=infos), make_box(), make_box(infos=None)))
    full, empty, none = read_all(source)
    assert full.steps["infos"]["b"]["c"].tolist() == ["x", "y", "z"]
    assert empty.steps["infos"]["a"].tolist() == [0, 0, 0]
    assert empty.steps["infos"]["b"]["c"].tolist() == ["", "", ""]
    for episode in (empty, none):
        assert {"infos/a", "infos/b/c"} <= {*json.loads(episode.metadata["irregular"])["absent"]}


def test_a_dataset_without_infos_has_no_infos_field():
    source = MinariSource(write_boxes(make_box()))
    assert "infos" not in source.fields.steps
    assert "infos" not in source.read("train", 0).steps


def test_raw_images_of_old_versions_are_read():
    directory = raw_minari.write_raw_images("old-v0")
    source = MinariSource(directory)
    feature = features_of(source)["steps"].feature["observation"]
    assert (feature.shape, feature.encoding_format) == ((32, 36, 3), "png")
    with h5py.File(directory / "data" / "main_data.hdf5") as file:
        raw = file["episode_1/observations"][()]
    episode = source.read("train", 1)
    np.testing.assert_array_equal(episode.steps["observation"], raw)
    assert not episode.metadata["seed_known"]
    assert json.loads(episode.metadata["irregular"])["attributes"] == {"seed": {"json": "None"}}


def test_images_keep_their_bytes():
    directory = raw_minari.write_buffers("all-v1")
    episode = MinariSource(directory).read("train", 0)
    with open_hdf5(directory) as file:
        stored = file["episode_0/observations"]
        assert stored["camera"].dtype == object  # Of different lengths.
        assert stored["grey"].ndim == 2
        for name in ("camera", "grey"):
            expected = [image.tobytes() for image in stored[name][()]]
            assert episode.steps["observation"][name].tolist() == expected


def test_images_of_actions_are_black_where_there_is_no_action():
    images = list(np.full((2, 32, 32, 3), 200, np.uint8))
    source = MinariSource(
        raw_minari.write_buffers(
            "draw-v0",
            [make_box(actions={"canvas": images})],
            observation_space=spaces.Box(-1, 9, (1,), np.float32),
            action_space=spaces.Dict({"canvas": spaces.Box(0, 255, (32, 32, 3), np.uint8)}),
        )
    )
    canvas = decode(source.read("train", 0).steps["action"]["canvas"])
    assert [image.max() for image in canvas] == [200, 200, 0]


def test_missing_spaces_follow_from_the_arrays():
    directory = raw_minari.record_cart_pole("cart/pole-v0", episodes=1)
    metadata = raw_minari.read_metadata(directory)
    del metadata["observation_space"]
    raw_minari.write_metadata(directory, **metadata)
    features = MinariSource(directory).fields.steps
    assert features["observation"] == Field(np.float32, (4,))


def test_sources_with_all_spaces_pass_the_common_checks():
    source = MinariSource(raw_minari.write_buffers("all-v1"))
    check_source(source)
    assert source.read("train", 2).origin.file == "data/main_data.hdf5/episode_2"


def test_datasets_are_opened_by_path_or_identifier(root, monkeypatch):
    directory = write_boxes(make_box(), dataset_id="name/space/box-v0")
    for path in (directory, directory / "data", "name/space/box-v0"):
        assert MinariSource(path).num_episodes("train") == 1
    monkeypatch.delenv("MINARI_DATASETS_PATH")
    monkeypatch.setenv("HOME", str(root / "home"))
    with pytest.raises(FileNotFoundError, match=r"'box-v0' is not .* '.*/.minari/datasets/box-v0'"):
        MinariSource("box-v0")


@pytest.mark.slow
def test_minari_is_not_needed_to_read():
    directory = write_boxes(make_box())
    code = (
        "import sys; from rlds.formats.minari.source import MinariSource; "
        f"MinariSource({str(directory)!r}).read('train', 0); "
        "assert not {'minari', 'gymnasium'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


# --- Conversions ---------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_recorded_dataset_is_converted(tmp_path):
    directory = raw_minari.record_cart_pole("cart/pole-v0")
    check_conversion(
        lambda: MinariSource(directory), tmp_path, builder=RldsMinari, path="cart/pole-v0"
    )


@pytest.mark.slow
@pytest.mark.parametrize("data_format", one_in(2, ["hdf5", "parquet"]))
def test_a_dataset_of_all_spaces_is_converted(tmp_path, data_format):
    directory = raw_minari.write_buffers("all-v1", data_format=data_format)
    check_conversion(lambda: MinariSource(directory), tmp_path)


@pytest.mark.slow
def test_configs_have_separate_folders(tmp_path):
    for index, episodes in enumerate(([make_box()], [make_box(), make_box()]), start=1):
        path = write_boxes(*episodes, dataset_id=f"box-v{index}")
        config = tfds.core.BuilderConfig(name=path.name)
        builder = RldsMinari(path=path, config=config, data_dir=tmp_path)
        builder.download_and_prepare()
        assert builder.data_path.parts[-3:] == ("rlds_minari", path.name, "1.0.0")
        assert builder.info.splits["train"].num_examples == index


# --- Damage --------------------------------------------------------------------------------------


def change(file, path, values):
    del file[path]
    if isinstance(values, dict):
        for name in values:
            file[f"{path}/{name}"] = np.zeros(5)
    else:
        file[path] = values


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda e: e.__delitem__("rewards"), "'rewards': missing"),
        (lambda e: e["observations"].__delitem__("multi"), "'observations/multi': missing"),
        (
            lambda e: e["observations"].create_dataset("extra", data=[1]),
            "'observations/extra': missing in the observation_space",
        ),
        (lambda e: e.create_dataset("extra", data=[1]), "'extra': unknown to Minari"),
        (
            lambda e: change(e, "terminations", [False] * 3),
            "'terminations': 3 rows, expected 4: there are 4 rewards",
        ),
        (
            lambda e: change(e, "observations/scalar", np.zeros(4)),
            "'observations/scalar': 4 rows, expected 5",
        ),
        (lambda e: change(e, "infos/position", np.zeros((4, 2))), "'infos/position': 4 rows"),
        (
            lambda e: change(e, "infos/position", np.zeros((5, 3))),
            r"'infos/position': .* \(3,\), but .* \(2,\) in earlier episodes",
        ),
        (lambda e: change(e, "infos", np.zeros(5)), "field 'infos': an array, expected a group"),
        (lambda e: change(e, "infos/position", 1.0), "'infos/position': a single value"),
        (
            lambda e: change(e, "infos/position", ["x"] * 5),
            "'infos/position': string .*, but float64 .* in earlier episodes",
        ),
        (
            lambda e: change(e, "infos/state", np.zeros(5)),
            r"'infos/state': missing in earlier episodes, which have \['infos/pair/_index_0', ",
        ),
        (
            lambda e: change(e, "infos/position", {"x": 0}),
            r"'infos/position/x': missing in earlier episodes, which have \['infos/pair/_index_0'",
        ),
        (lambda e: e.attrs.update(level=h5py.Empty("i8")), "'level': an attribute without a value"),
        (lambda e: e.attrs.update(total_steps=3), "'total_steps': .*3.*, but there are 4 rewards"),
        (
            lambda e: change(e, "truncations", [0.0] * 4),
            "'truncations': float64 of shape .*, expected a bool, or 0 or 1, for each step",
        ),
        (
            lambda e: change(e, "observations/multi", np.zeros((5, 2))),
            r"'observations/multi': float64 of shape \(2,\), expected int64 of shape \(2,\): "
            "the space is a MultiDiscrete",
        ),
        (
            lambda e: change(e, "observations/box", np.zeros((5, 3), np.float32)),
            r"'observations/box': float32 of shape \(3,\), expected float32 of shape \(2, 3\)",
        ),
        (
            lambda e: e["observations/camera"].__setitem__(2, np.zeros(9, np.uint8)),
            "row 2, field 'observations/camera': not a JPEG image",
        ),
        (
            lambda e: e["observations/camera"].__setitem__(3, e["observations/camera"][3][:-9]),
            "row 3, field 'observations/camera': a JPEG image that is cut off",
        ),
        (
            lambda e: e["observations/camera"].__setitem__(1, e["observations/grey"][1]),
            r"row 1, .* an image of shape \(32, 34\), expected \(33, 40, 3\)",
        ),
    ],
)
def test_a_damaged_episode_is_reported_and_skipped(damage, message):
    directory = raw_minari.write_buffers("all-v1")
    with open_hdf5(directory) as file:
        damage(file["episode_1"])
    source = MinariSource(directory)
    with pytest.raises(SourceError, match=message) as raised:
        source.read("train", 1)
    assert raised.value.episode == 1
    assert raised.value.file.endswith("data/main_data.hdf5/episode_1")
    kinds = [type(item) is DamagedEpisode for item in reading.episodes(source, "train", "0-4")]
    assert kinds == [False, True, False, False]


@pytest.mark.parametrize("data_format", FORMATS)
def test_fields_without_damage_can_be_read(data_format):
    directory = raw_minari.write_buffers("all-v1", data_format=data_format)
    intact = MinariSource(directory).read("train", 1).steps
    if data_format == "parquet":
        file = directory / "data" / "1" / "part-0.parquet"
        columns = pq.ParquetFile(file).metadata.row_group(0).to_dict()["columns"]
        camera = next(c for c in columns if c["path_in_schema"].startswith("observations.camera"))
        content = bytearray(file.read_bytes())
        begin = camera["dictionary_page_offset"] or camera["data_page_offset"]
        content[begin : begin + camera["total_compressed_size"]] = (
            b"\xff" * camera["total_compressed_size"]
        )
        file.write_bytes(content)
    else:
        image = intact["observation"]["camera"][1]
        for file in (directory / "data").rglob("*.*"):
            file.write_bytes(file.read_bytes().replace(image, bytes(len(image))))
    source = MinariSource(directory)
    steps = reading.read_steps(
        source, "train", 1, ["action", "reward", "infos", "is_terminal", "discount"]
    )
    assert "observation" not in steps
    for path, column in leaves_at(steps, None):
        np.testing.assert_array_equal(column, lookup(intact, path), strict=True)
    for fields in (["observation/camera"], None):
        with pytest.raises(SourceError, match=r"observations/camera|cannot be read"):
            reading.read_steps(source, "train", 1, fields)


@pytest.mark.parametrize("data_format", ["arrow", "parquet"])
def test_a_truncated_table_is_refused(data_format):
    directory = raw_minari.write_buffers("all-v1", data_format=data_format)
    file = directory / "data" / "1" / f"part-0.{data_format}"
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(SourceError, match=rf"data/1/part-0.{data_format}, .*: cannot be read"):
        MinariSource(directory).read("train", 1)


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        ("rewards", pa.array([0, 0, None, 0, 0]), "row 2, field 'rewards': no value"),
        (
            "observations",
            pa.array([[0], [1], [2], [None], [4]], pa.list_(pa.float32(), 1)),
            "row 3, field 'observations': no value",
        ),
        (
            "observations",
            pa.array([[0], [1, 2], [3], [4], [5]], pa.list_(pa.float32())),
            "field 'observations': cannot read values of the Arrow type list<item: float>",
        ),
        (
            "infos",
            pa.array([{"name": [f"{row}"]} for row in range(5)]).cast(
                pa.struct([("name", pa.list_(pa.string(), 1))])
            ),
            r"field 'infos/name': cannot read values of the Arrow type fixed_size_list",
        ),
    ],
    ids=["null", "null in a row", "ragged", "strings in a row"],
)
def test_tables_with_missing_or_malformed_values_are_refused(name, values, message):
    directory = write_boxes(make_box(), make_box(4), data_format="arrow")
    file = directory / "data" / "1" / "part-0.arrow"
    table = pa.ipc.open_file(file.read_bytes()).read_all()
    table = pa.table({**dict(zip(table.column_names, table.columns)), name: values})
    with pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)
    with pytest.raises(SourceError, match=f"{file.name}, episode 1, {message}"):
        MinariSource(directory).read("train", 1)


def test_an_episode_that_is_not_a_group_is_damaged():
    directory = write_boxes(make_box(), make_box())
    with open_hdf5(directory) as file:
        del file["episode_1"]
        file["episode_1"] = np.zeros(3)
    _, second = reading.episodes(MinariSource(directory), "train", "0-2")
    assert "main_data.hdf5/episode_1, episode 1: an array, expected a group" in str(second.error)


def test_a_file_changed_after_opening_is_an_error():
    directory = write_boxes(make_box(), make_box())
    source = MinariSource(directory)
    with open_hdf5(directory) as file:
        file["episode_1/rewards"][0] = 7
    with pytest.raises(SourceChangedError):
        source.read("train", 1)

    source, path = MinariSource(directory), directory / "data" / "main_data.hdf5"
    read_all(source)  # The cached values are used up.
    before = path.stat()
    with open_hdf5(directory) as file:
        file["episode_1/rewards"].resize((7,))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert path.stat().st_size == before.st_size
    assert source.read("train", 0).steps["reward"].tolist() == [0.5, 0.5, 0.0]
    with pytest.raises(SourceChangedError):  # The time is unchanged, but the file lacks seven rows.
        source.read("train", 1)


def test_a_truncated_hdf5_file_is_refused():
    directory = raw_minari.write_buffers("all-v1")
    file = directory / "data" / "main_data.hdf5"
    file.write_bytes(file.read_bytes()[:-1000])
    with pytest.raises(SourceError, match=r"main_data\.hdf5: not a complete HDF5 file"):
        MinariSource(directory)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"total_episodes": 1}, "field 'total_episodes': 1 episodes, but the files hold 2"),
        ({"total_episodes": 3}, "field 'total_episodes': 3 episodes, but episode 2 is missing"),
        ({"total_episodes": 10**18}, "000 episodes, but episode 2 is missing"),
        ({"total_episodes": -1}, "field 'total_episodes': -1, expected a number"),
        ({"total_episodes": None}, "field 'total_episodes': None, expected a number"),
        ({"data_format": "zarr"}, "field 'data_format': 'zarr', expected one of"),
        ({"action_space": '{"type": "Graph"}'}, "field 'action_space': actions: 'Graph' is not"),
    ],
)
def test_metadata_that_contradicts_the_files_is_refused(changes, message):
    directory = write_boxes(make_box(), make_box())
    raw_minari.write_metadata(directory, **{**raw_minari.read_metadata(directory), **changes})
    with pytest.raises(SourceError, match=message):
        MinariSource(directory)


@pytest.mark.parametrize("data_format", FORMATS)
def test_a_missing_episode_is_refused(data_format):
    directory = write_boxes(*[make_box()] * 3, data_format=data_format)
    if data_format == "hdf5":
        with open_hdf5(directory) as file:
            del file["episode_1"]
    else:
        shutil.rmtree(directory / "data" / "1")
    with pytest.raises(SourceError, match="3 episodes, but episode 1 is missing"):
        MinariSource(directory)


def test_truncated_metadata_is_refused():
    directory = write_boxes(make_box())
    file = directory / "data" / "metadata.json"
    file.write_text(file.read_text()[:-5])
    with pytest.raises(SourceError, match=r"metadata\.json: cannot be read: not valid JSON"):
        MinariSource(directory)


def test_a_field_that_all_episodes_lack_is_refused():
    directory = write_boxes(make_box())
    with open_hdf5(directory) as file:
        del file["episode_0/actions"]
    with pytest.raises(SourceError, match="episode 0, field 'actions': missing in all episodes"):
        MinariSource(directory)
