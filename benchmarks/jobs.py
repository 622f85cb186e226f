"""The table of jobs: what is measured, and by which contenders.

A contender is a function of a module of this folder, which prepares what it needs and returns the
work of a round (see `worker`). The contenders of a job do the same work, and take turns.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import camera_jobs
import command_jobs
import conversion_jobs
import dataset_jobs
import editing_jobs
import feed_data
import feed_jobs
import loader_jobs
import many_jobs
import recording_jobs
import riegeli_jobs
import transformation_jobs
from peers import ANY4LEROBOT, ENVLOGGER, LEROBOT, OCTO, OPENPI, OPENVLA, RLDS

OURS, TFDS, MINARI, ARRAY_RECORD = "here", "TFDS", "Minari", "ArrayRecord"
ALL_CORES, BEAM = "here, all cores", "TFDS on Beam"

Function = Callable[..., Any]


@dataclass(frozen=True)
class Contender:
    """A contender of a job: this project or a peer.

    Attributes:
      prepare: Takes the folder of the data and the size of the job; returns the work of a round.
      data: Takes an empty folder and the size, and writes what `prepare` needs there.
    """

    prepare: Function
    data: Function | None = None


@dataclass(frozen=True)
class Job:
    """A measured job.

    Attributes:
      title: The description of the work.
      unit: The unit of work of the reported times.
      size: The number of steps, rows or records.
      ours: This project.
      peers: The other contenders, by name.
      quick: The size in a quick run, in which the job is left out if that is 0.
      once: Whether one round is enough.
    """

    title: str
    unit: str
    size: int
    ours: Contender
    peers: Mapping[str, Contender]
    quick: int = 0
    once: bool = False

    @property
    def contenders(self) -> dict[str, Contender]:
        """All of them by name."""
        return {OURS: self.ours, **self.peers}


def by(prepare: Function, data: Function | None = None, **options: Any) -> Contender:
    """Returns a contender whose function takes options."""
    return Contender(partial(prepare, **options), data)


# --- Peer: EnvLogger -----------------------------------------------------------------------------


def _recording(
    title: str, kind: str, size: int, ours: Function, theirs: Function | None = None, quick: int = 0
) -> Job:
    peers = {ENVLOGGER: by(theirs or ours, kind=kind)}
    return Job(title, "step", size, by(ours, kind=kind), peers, quick)


_record, _read = recording_jobs.record, recording_jobs.read_steps
RECORDING = [
    _recording("Record steps of 17 floats", "floats", 24_000, _record, quick=6_000),
    _recording("Record steps of 20 fields", "robot", 8_000, _record),
    _recording("Record frames, 84 x 84 x 4", "frames", 2_400, _record, quick=600),
    _recording("Record a camera, 224 x 224 x 3", "camera", 160, _record),
    _recording("Read a log, step by step", "floats", 24_000, _read, quick=6_000),
    _recording("Read frames, step by step", "frames", 2_400, _read),
    _recording(
        "Read random steps", "floats", 24_000, recording_jobs.read_random_steps, quick=6_000
    ),
    _recording(
        "Read a log as arrays (the peer: steps)",
        "floats",
        24_000,
        ours=recording_jobs.read_columns,
        theirs=_read,
        quick=6_000,
    ),
]


def _writing_and_reading(
    subject: str, kind: str, size: int, options: str, quick: int = 0
) -> list[Job]:
    records = partial(riegeli_jobs.write_records, kind=kind)
    measure = partial(by, data=records, options=options)
    return [
        Job(
            f"Write {subject}",
            "record",
            size,
            ours=measure(riegeli_jobs.write),
            peers={
                ARRAY_RECORD: measure(riegeli_jobs.write_array_record),
                ENVLOGGER: measure(riegeli_jobs.write_envlogger),
            },
            quick=quick,
        ),
        Job(
            f"Read {subject}",
            "record",
            size,
            ours=measure(riegeli_jobs.read),
            peers={
                ARRAY_RECORD: measure(riegeli_jobs.read_array_record),
                ENVLOGGER: measure(riegeli_jobs.read_envlogger),
            },
            quick=quick,
        ),
    ]


RECORDS = [
    *_writing_and_reading("records of 200 bytes, zstd", "floats", 40_000, "zstd:3", quick=5_000),
    *_writing_and_reading(
        "records of 200 bytes, transposed, Brotli", "floats", 40_000, "transpose,brotli:6"
    ),
    *_writing_and_reading("records of 150 kB, zstd", "images", 80, "zstd:3"),
]

# --- Compared with TFDS and Minari ---------------------------------------------------------------


def _conversion(
    title: str,
    unit: str,
    size: int,
    *,
    format: str,
    file: str = "",
    data: Function,
    theirs: Function,
) -> Job:
    ours = by(dataset_jobs.convert, data, format=format, file=file)
    return Job(title, unit, size, ours, {TFDS: by(theirs, data)})


def _minari(title: str, ours: Function, length: int, size: int, quick: int) -> Job:
    data = partial(dataset_jobs.write_minari, length=length)
    peers = {MINARI: by(dataset_jobs.read_minari_by_minari, data)}
    return Job(title, "step", size, by(ours, data), peers, quick)


_stored = dataset_jobs.make_dataset
_read_by_tfds = {TFDS: by(dataset_jobs.read_dataset_by_tfds, _stored)}
DATASETS = [
    _conversion(
        "Convert D4RL",
        "row",
        100_000,
        format="d4rl",
        file="halfcheetah_medium.hdf5",
        data=dataset_jobs.write_d4rl,
        theirs=dataset_jobs.convert_d4rl_by_tfds,
    ),
    _conversion(
        "Convert a log",
        "step",
        30_000,
        format="envlogger",
        data=recording_jobs.write_logs,
        theirs=dataset_jobs.convert_logs_by_tfds,
    ),
    _conversion(
        "Convert robomimic",
        "step",
        15_000,
        format="robomimic",
        file="low_dim.hdf5",
        data=dataset_jobs.write_robomimic,
        theirs=dataset_jobs.convert_robomimic_by_tfds,
    ),
    Job(
        "Write a TFDS dataset",
        "step",
        40_000,
        ours=by(dataset_jobs.write_dataset),
        peers={TFDS: by(dataset_jobs.write_dataset_by_tfds)},
        quick=5_000,
    ),
    Job(
        "Read a TFDS dataset as tensors",
        "step",
        40_000,
        ours=by(dataset_jobs.read_dataset_as_tensors, _stored),
        peers=_read_by_tfds,
        quick=5_000,
    ),
    Job(
        "Read a TFDS dataset as arrays",
        "step",
        40_000,
        ours=by(dataset_jobs.read_dataset_as_arrays, _stored),
        peers=_read_by_tfds,
        quick=5_000,
    ),
    _minari("Read Minari, episodes of 500 steps", dataset_jobs.read_minari, 500, 10_000, 2_000),
    _minari("Read Minari, episodes of 10 steps", dataset_jobs.read_minari, 10, 10_000, 2_000),
    _minari("Read Minari by columns", dataset_jobs.read_minari_columns, 500, 10_000, 2_000),
]

# --- Compared with rlds --------------------------------------------------------------------------


def _transformations(
    title: str,
    size: int,
    ours: Function,
    theirs: Function | None = None,
    *,
    quick: int = 0,
    **options: Any,
) -> list[Job]:
    peers = {RLDS: by(theirs, **options) if theirs else by(ours, layout="nested", **options)}
    return [
        Job(f"{title}, {layout}", "step", size, by(ours, layout=layout, **options), peers, quick)
        for layout in ("nested", "batched")
    ]


TRANSFORMATIONS = [
    *_transformations(
        "Pairs of steps", 40_000, transformation_jobs.pairs, kind="floats", quick=5_000
    ),
    *_transformations(
        "Pairs of steps with images", 4_000, transformation_jobs.pairs, kind="images"
    ),
    *_transformations("Scale observations", 40_000, transformation_jobs.scale),
    *_transformations(
        "Shuffled transitions",
        40_000,
        ours=transformation_jobs.shuffle,
        theirs=transformation_jobs.shuffle_by_original,
    ),
    *_transformations(
        "Mean and deviation",
        40_000,
        ours=transformation_jobs.describe,
        theirs=transformation_jobs.describe_by_original,
    ),
]

# --- Edits, and very many episodes ---------------------------------------------------------------


def _deletion(title: str, kind: str, size: int, quick: int = 0) -> Job:
    anew = by(editing_jobs.record_anew, kind=kind)
    ours = by(editing_jobs.delete_from_log, kind=kind)
    return Job(title, "step", size, ours, {ENVLOGGER: anew, "recorded anew here": anew}, quick)


def _lerobot_deletion(title: str, zoom: int) -> Job:
    data = partial(editing_jobs.write_lerobot, zoom=zoom)
    peers = {LEROBOT: by(editing_jobs.delete_by_lerobot, data)}
    return Job(title, "step", 6_000, by(editing_jobs.delete_from_lerobot, data), peers)


def _many(form: str, data: Function) -> Job:
    title, peers = f"Choose from a million episodes, {form}", {}
    peers["the choice alone"] = by(many_jobs.choose, data, code=many_jobs.FILTER)
    ours = by(many_jobs.choose, data, code=many_jobs.BATCH)
    return Job(f"{title}, and make a batch", "call", 1_000_000, ours, peers, quick=2_000)


EDITS = [
    _many("TFDS", many_jobs.write_tfds),
    _many("LeRobot", many_jobs.write_lerobot),
    _many("logs", many_jobs.write_log),
    Job(
        "Merge ten datasets of TFDS",
        "step",
        100_000,
        ours=by(editing_jobs.merge, editing_jobs.write_ten),
        peers={TFDS: by(editing_jobs.write_anew_by_tfds, editing_jobs.write_ten, num_parts=10)},
        quick=10_000,
    ),
    Job(
        "Delete a tenth of a dataset of TFDS",
        "step",
        40_000,
        ours=by(editing_jobs.delete_from_dataset, dataset_jobs.make_dataset),
        peers={TFDS: by(editing_jobs.write_anew_by_tfds, dataset_jobs.make_dataset)},
        quick=5_000,
    ),
    _deletion("Delete a tenth of a log of 17 floats", "floats", 40_000, quick=20_000),
    _deletion("Delete a tenth of a log of frames", "frames", 10_000),
    _lerobot_deletion("Delete a tenth of a LeRobot dataset, 320 x 240", zoom=8),
    _lerobot_deletion("Delete a tenth of a LeRobot dataset, 160 x 120", zoom=4),
    Job(
        "Record two cameras, 480 x 640, as video in a log",
        "step",
        300,
        ours=by(camera_jobs.record_video, lerobot=False),
        peers={
            "here, lossless": by(camera_jobs.record_video, lerobot=False, lossless=True),
            ENVLOGGER: by(_record, kind="cameras"),
        },
    ),
    Job(
        "Record two cameras, 480 x 640, to a LeRobot dataset",
        "step",
        300,
        ours=by(camera_jobs.record_video, lerobot=True),
        peers={LEROBOT: by(camera_jobs.record_by_lerobot, camera_jobs.write_cameras)},
    ),
    Job(
        "Pictures to a LeRobot dataset with video",
        "step",
        400,
        ours=by(editing_jobs.convert_to_lerobot, editing_jobs.write_pictures),
        peers={LEROBOT: by(camera_jobs.record_by_lerobot, editing_jobs.write_pictures, rate=1e9)},
    ),
]

# --- Commands ------------------------------------------------------------------------------------

_INFO = "import sys, tensorflow_datasets as t; print(t.builder_from_directory(sys.argv[1]).info)"


def _command(*words: str) -> Contender:
    return by(command_jobs.run_command, command_jobs.write_datasets, command=list(words))


COMMANDS = [
    Job(
        "Command: `--help`",
        "command",
        50_000,
        ours=_command("rlds", "--help"),
        peers={MINARI: _command("minari", "--help"), TFDS: _command("tfds", "--help")},
    ),
    Job(
        "Command: look at a Minari dataset",
        "command",
        50_000,
        ours=_command("rlds", "inspect", f"DATA/{dataset_jobs.MINARI_ID}"),
        peers={MINARI: _command("minari", "show", dataset_jobs.MINARI_ID)},
        quick=5_000,
    ),
    Job(
        "Command: look at a TFDS folder",
        "command",
        50_000,
        ours=_command("rlds", "inspect", "DATA/tfds/walk/1.0.0"),
        peers={TFDS: _command("python", "-c", _INFO, "DATA/tfds/walk/1.0.0")},
        quick=5_000,
    ),
]

JOBS = [*RECORDING, *RECORDS, *DATASETS, *TRANSFORMATIONS, *COMMANDS]

# --- Batches for training ------------------------------------------------------------------------


def _feed(batches: Function, kind: str, write: Function, **options: Any) -> Contender:
    return by(batches, partial(write, kind=kind, **options), kind=kind)


def _tfds(batches: Function, kind: str) -> Contender:
    return _feed(batches, kind, feed_data.write_tfds)


def _feeds(kind: str, title: str, size: int, quick: int) -> list[Job]:
    ours = _tfds(feed_jobs.ours, kind)
    in_memory = _feed(feed_jobs.numpy_in_memory, kind, feed_data.write_npy)
    peers = {
        "NumPy, all in memory": in_memory,
        "rlds.tfds.load": _tfds(feed_jobs.tf_data, kind),
    }
    if kind == "numbers":
        peers["mapped files, Grain"] = _feed(feed_jobs.mapped_in_grain, kind, feed_data.write_npy)
    array_record = {"file_format": "array_record"}
    in_loader = {
        "here, 2 workers": _tfds(feed_jobs.ours_with_workers, kind),
        "mapped files": _feed(feed_jobs.mapped_in_loader, kind, feed_data.write_npy),
        "rows of Hugging Face": _feed(feed_jobs.rows_in_loader, kind, feed_data.write_rows),
        "tfds.as_data_source": _feed(
            feed_jobs.data_source_in_loader, kind, feed_data.write_tfds, **array_record
        ),
    }
    ours_in_loader = _tfds(feed_jobs.ours_in_loader, kind)
    return [
        Job(title, "sample", size, ours, peers, quick),
        Job(f"{title}, DataLoader", "sample", size, ours_in_loader, in_loader, quick),
    ]


def _whole_episodes(kind: str, title: str, size: int, quick: int) -> Job:
    peers = {
        "rlds.tfds.load": _tfds(feed_jobs.load_in_order, kind),
        "TFDS, nested steps": _tfds(feed_jobs.nested_in_order, kind),
    }
    return Job(title, "sample", size, _tfds(feed_jobs.ours_in_order, kind), peers, quick)


def _from_store(kind: str, title: str, size: int) -> Job:
    peers = {
        "here, from a store": _tfds(feed_jobs.ours_from_store, kind),
        "here, fetched before": _tfds(feed_jobs.ours_kept, kind),
    }
    return Job(f"{title} from a store", "sample", size, _tfds(feed_jobs.ours, kind), peers)


def _drop_in(project: str, load: Function, data: Function, theirs: str, **options: Any) -> Job:
    """The script of a project with our loader, and with its own."""
    ours = f"rlds.feeds.compat.{load.__name__}"
    peers = {project: by(load, data, module=theirs, **options)}
    title = f"{project}'s loader" + (", numbers" if options else "")
    return Job(title, "sample", 3_000, by(load, data, module=ours, **options), peers)


_octo = partial(
    _drop_in, OCTO, loader_jobs.octo, loader_jobs.write_bridge, theirs="octo.data.dataset"
)
FEEDS = [
    *_feeds("numbers", "Transitions", 200_000, 10_000),
    *_feeds("cameras", "Windows", 12_000, 0),
    _whole_episodes("numbers", "Episodes in order", 200_000, 10_000),
    _whole_episodes("cameras", "Images in order", 12_000, 0),
]

# --- Conversions by several processes ------------------------------------------------------------


def _converted(
    title: str,
    unit: str,
    size: int,
    to: str,
    data: Function,
    peers: Mapping[str, Contender] | None = None,
    *,
    quick: int = 0,
    once: bool = False,
    **options: Any,
) -> Job:
    ours = partial(by, conversion_jobs.convert, data, to=to, **options)
    peers = {ALL_CORES: ours(jobs=0), **(peers or {})}
    return Job(title, unit, size, ours(), peers, quick, once=once)


def _to_lerobot(title: str, codec: str) -> Job:
    lerobot = partial(by, conversion_jobs.convert_by_lerobot, conversion_jobs.write_frames)
    options: dict[str, Any] = {"codec": codec} if codec else {}
    peers = {LEROBOT: lerobot(**options)} if codec else {}
    if codec == "h264":
        peers[ANY4LEROBOT] = lerobot(processes=5, threads=10, **options)
    # Six parts: peers take long.
    more: dict[str, Any] = {"quick": 400, "once": bool(codec), **options}
    return _converted(title, "step", 14_400, "lerobot", _cameras, peers, **more)


_cameras = partial(feed_data.write_tfds, kind="cameras")
_files = conversion_jobs.write_small_files
_SIZES = (1_000, 10_000, 100_000)
CONVERSIONS = [
    _to_lerobot("TFDS with images to LeRobot, H.264", "h264"),
    _to_lerobot("TFDS with images to LeRobot, AV1", "av1"),
    _to_lerobot("TFDS with images to LeRobot, images", ""),
    _converted("TFDS with images to robomimic", "step", 25_600, "robomimic", _cameras, quick=400),
    _converted(
        "LeRobot with video to TFDS",
        "step",
        4_000,
        "tfds",
        partial(editing_jobs.write_lerobot, zoom=8),
        file="data",
        quick=100,
        source_options={"video": "jpeg"},
    ),
    _converted(
        "robomimic to TFDS",
        "step",
        150_000,
        "tfds",
        dataset_jobs.write_robomimic,
        {TFDS: by(dataset_jobs.convert_robomimic_by_tfds, dataset_jobs.write_robomimic)},
        quick=300,
        file="low_dim.hdf5",
    ),
    _converted(
        "Small files to LeRobot",
        "episode",
        10_000,
        "lerobot",
        _files,
        {LEROBOT: by(conversion_jobs.convert_by_lerobot, _files)},
        quick=100,
        once=True,
    ),
    _converted(
        "Small files to TFDS",
        "episode",
        10_000,
        "tfds",
        _files,
        {BEAM: by(conversion_jobs.convert_by_beam, _files)},
        quick=100,
        once=True,
    ),
    _converted(
        "Log to TFDS",
        "step",
        1_500_000,  # Fewer are no work for several processes.
        "tfds",
        recording_jobs.write_logs,
        {TFDS: by(dataset_jobs.convert_logs_by_tfds, recording_jobs.write_logs)},
        quick=2_000,
    ),
    *(
        Job(f"Start of a conversion to {to}", "start", 1, by(conversion_jobs.start, to=to), {}, 1)
        for to in ("lerobot", "tfds")
    ),
    *(
        Job(
            f"{size:,} episodes to {to}",
            "generated episode",
            size,
            by(conversion_jobs.grow, to=to),
            {},
            300 if size == _SIZES[0] else 0,
            once=True,
        )
        for to in conversion_jobs.TARGETS
        for size in _SIZES
    ),
]

# --- What runs if it is asked for, and is not on the page ----------------------------------------

ON_DEMAND = [
    *EDITS,
    _from_store("numbers", "Transitions", 2_000_000),
    _from_store("cameras", "Windows", 12_000),
    _drop_in(
        OPENVLA, loader_jobs.openvla, loader_jobs.write_bridge, "prismatic.vla.datasets.datasets"
    ),
    _octo(),
    _octo(has_images=False),
    _drop_in(
        OPENPI, loader_jobs.openpi, loader_jobs.write_droid, "openpi.training.droid_rlds_dataset"
    ),
    _drop_in(
        LEROBOT, loader_jobs.lerobot, loader_jobs.write_lerobot, "lerobot.datasets.lerobot_dataset"
    ),
]
