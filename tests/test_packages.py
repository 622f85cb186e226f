"""Rules of all packages: examples run, names are listed, floors know only those below."""

import ast
import doctest
import functools
import graphlib
import importlib
import importlib.util
import pkgutil
import subprocess
import sys
import types
from importlib import metadata
from pathlib import Path

import pytest

import rlds_ecosystem

# The floors, lowest first: each package imports only packages that come before it.
FLOORS = [
    "rlds_ecosystem",
    "riegeli",
    "tfds_files",
    "envlogger",
    "rlds",
    "tfds_builders",
    "rlds_tools",
    "rlds_creator",
]
# Beyond that: recordings and training pipelines need not know each other. `riegeli.tensorflow` is
# left out: it is there for who has TensorFlow, and nothing imports it.
MUST_NOT_IMPORT = {
    "rlds_ecosystem": {"tensorflow", "tensorflow_datasets"},
    "riegeli": {"numpy", "tensorflow", "tensorflow_datasets"},
    "tfds_files": {"tensorflow", "tensorflow_datasets"},
    "envlogger": {"tensorflow", "tensorflow_datasets"},
    "rlds": {"envlogger", "riegeli"},
    "tfds_builders": set(),
    "rlds_tools": set(),
    "rlds_creator": {"tensorflow", "tensorflow_datasets"},
}
# What reads recordings.
KNOWS_RECORDINGS = (
    "rlds/formats/google_creator/",
    "rlds/formats/logs/",
    "rlds/formats/lerobot/recorder.py",
)
# Names of classes that stand in several modules, and why. All others name one class.
SHARED_CLASS_NAMES = {
    "EnvLoggerSource": "the class of `tfds_builders` derives from the other one",
    "Features": "public: features of TFDS, and of policies in `rlds.evaluation`",
    "LeRobotDatasetMetadata": "lerobot's name, in both adapters",
    "RLDSDataset": "the name in openpi and in OpenVLA",
    "RecordFile": "public: a file of records, and what `rlds inspect` shows of one",
    "Report": "public: of `rlds validate`, and of `rlds report`",
    "Rows": "rows that feeds and edits read",
    "Split": "a split of TFDS, and the operation that makes one",
    "StepData": "EnvLogger's and GR00T's name",
    "Table": "public: of episodes in `rlds.feeds`, and of results in `rlds_tools`",
}
# The folders of `rlds` that have no TensorFlow.
LIGHT = tuple(
    f"rlds/{name}/"
    for name in (
        "auditing",
        "evaluation",
        "feeds",
        "formats",
        "labels",
        "raw_files",
        "recording",
        "robotics",
        "sources",
        "video",
    )
)
# The TFDS backend, which has its place in the published package, and what only it needs. It shares
# the writer of `rlds.tfds`. No other module of the package imports these.
NEED_TENSORFLOW = {
    "envlogger/backends/rlds_utils.py",
    "envlogger/backends/tfds_backend_testlib.py",
    "envlogger/backends/tfds_backend_writer.py",
    "envlogger/examples/tfds_random_agent_catch.py",
    "envlogger/tools/convert_tfds_to_riegeli.py",
}


def modules_of(package):
    path = importlib.import_module(package).__path__
    submodules = [module.name for module in pkgutil.walk_packages(path, prefix=f"{package}.")]
    return [package, *submodules]


MODULES = [module for package in FLOORS for module in modules_of(package)]


@functools.cache
def names_imported_by(path):
    """The names that a file imports, anywhere in it: modules, and possible submodules."""
    names = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names += [name.name for name in node.names]
        elif isinstance(node, ast.ImportFrom):
            names += [node.module, *(f"{node.module}.{name.name}" for name in node.names)]
    return names


def imported_by(path):
    """The top-level packages that a file imports."""
    return {name.partition(".")[0] for name in names_imported_by(path)}


@pytest.mark.parametrize("package", FLOORS)
def test_each_package_imports_only_what_is_below_it(package):
    above = set(FLOORS[FLOORS.index(package) + 1 :])
    root = Path(importlib.import_module(package).__file__).parent
    files = [file for file in root.rglob("*.py") if root / "tensorflow" not in file.parents]
    assert files
    for file in files:
        forbidden = imported_by(file) & (above | MUST_NOT_IMPORT[package])
        name = file.relative_to(root.parent).as_posix()
        if name in NEED_TENSORFLOW:
            forbidden -= {"tensorflow", "tensorflow_datasets", "rlds"}
        if name.startswith(KNOWS_RECORDINGS):
            forbidden -= {"envlogger"}
        if name.startswith(LIGHT):
            forbidden |= imported_by(file) & {"tensorflow", "tensorflow_datasets"}
        assert not forbidden, f"{file} imports {forbidden}"


# What the rooms of `rlds` must not know. All may know the format of TFDS, which datasets end in.
ROOMS = {
    "raw_files": {"sources", "formats", "video", "feeds", "evaluation", "labels"},
    "video": {"sources", "formats", "feeds", "evaluation", "labels"},
    "sources": {"formats", "feeds", "evaluation", "labels"},
    "labels": {"formats", "feeds", "evaluation"},
    "formats": {"feeds", "evaluation", "labels"},
    "feeds": {"formats", "evaluation"},
    "evaluation": {"formats"},
}


@pytest.mark.parametrize("room", ROOMS)
def test_each_room_of_rlds_knows_only_what_it_needs(room):
    root = Path(importlib.import_module("rlds").__file__).parent
    files = [*(root / room).rglob("*.py")]
    assert files
    for file in files:
        for name in names_imported_by(file):
            package, _, inner = name.partition(".")
            other, *below = inner.split(".")
            is_tfds = other == "formats" and below[:1] == ["tfds"]
            # A view is held against the rows that feeds have of it.
            is_check = file.match("sources/testing.py") and other == "feeds"
            if package == "rlds" and other in ROOMS and not (is_tfds or is_check):
                assert other not in ROOMS[room], f"{file} imports {name}"
            own = file.relative_to(root / room).parts[0]
            if room == other == "formats" and below and (root / room / below[0]).is_dir():
                of_recorder = file.match("lerobot/recorder.py") and below[0] == "logs"
                assert is_tfds or of_recorder or below[0] == own, f"{file} imports {name}"


# What `rlds recover` mends, the tasks of LeRobot, and the layouts that `rlds inspect` proposes.
KNOW_FORMATS = {"inspection.py", "recovering.py", "validating.py"}


@pytest.mark.parametrize("package", ["rlds_tools", "rlds_creator"])
def test_nobody_above_knows_a_format(package):
    root = Path(importlib.import_module(package).__file__).parent
    for file in root.rglob("*.py"):
        formats = {name for name in names_imported_by(file) if name.startswith("rlds.formats.")}
        formats = {name for name in formats if not name.startswith("rlds.formats.tfds.")}
        assert not formats or (root / file.name == file and file.name in KNOW_FORMATS), file


def test_no_modules_need_each_other():
    """Wherever a module imports others, for annotations, too."""
    needed = {}
    for module in MODULES:
        file = Path(importlib.util.find_spec(module).origin)
        if file.suffix == ".py":  # Others are compiled.
            needed[module] = set(modules_imported_by(file)) - {module}
    graphlib.TopologicalSorter(needed).prepare()  # Raises an error that names a circle.


def modules_imported_by(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            names = (f"{node.module}.{name.name}" for name in node.names)
            yield from (name if name in MODULES else node.module for name in names)


def test_modules_that_need_tensorflow_are_imported_by_no_other_module_of_envlogger():
    root = Path(importlib.import_module("envlogger").__file__).parents[1]
    modules = {name.removesuffix(".py").replace("/", ".") for name in NEED_TENSORFLOW}
    files = {file.relative_to(root).as_posix(): file for file in root.glob("envlogger/**/*.py")}
    assert files.keys() > NEED_TENSORFLOW
    for name in files.keys() - NEED_TENSORFLOW:
        assert not modules.intersection(names_imported_by(files[name])), name
    for name in NEED_TENSORFLOW:
        assert imported_by(files[name]) & {"tensorflow", "tensorflow_datasets"}, name


def test_nobody_imports_private_modules_of_riegeli():
    """It could be replaced by Google's package one day, which has others."""
    packages = [Path(importlib.import_module(name).__file__).parent for name in FLOORS]
    files = [file for root in packages if root.name != "riegeli" for file in root.rglob("*.py")]
    files += Path(__file__).parents[1].glob("examples/*.py")
    assert len(files) > 100
    for file in files:
        names = names_imported_by(file)
        private = [name for name in names if name.startswith("riegeli.") and "._" in name]
        assert not private, f"{file} imports {private}"


@pytest.mark.parametrize("module", MODULES)
def test_listed_names_are_there_and_examples_run(module):
    loaded = importlib.import_module(module)
    for name in getattr(loaded, "__all__", []):
        assert getattr(loaded, name) is not None
    if ">>> " in (loaded.__spec__.loader.get_source(module) or ""):
        result = doctest.testmod(loaded)
        assert result.failed == 0
        assert result.attempted


@pytest.mark.parametrize("package", FLOORS)
def test_public_names_of_a_package_are_listed(package):
    loaded = importlib.import_module(package)
    public = {
        name
        for name, value in vars(loaded).items()
        if not name.startswith("_") and not isinstance(value, types.ModuleType)
    }
    assert public <= set(loaded.__all__) | {"TYPE_CHECKING", "Any"}


def test_a_class_name_stands_for_one_idea():
    modules = {}
    for package in FLOORS:
        root = Path(importlib.import_module(package).__file__).parent
        for file in sorted(root.rglob("*.py")):
            for node in ast.parse(file.read_text()).body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    modules.setdefault(node.name, []).append(str(file))
    shared = {name: files for name, files in modules.items() if len(files) > 1}
    assert {name: shared[name] for name in shared.keys() - SHARED_CLASS_NAMES} == {}


def test_tensorflow_is_loaded_where_tensors_are_only():
    light = [
        *(floor for floor in FLOORS if floor != "tfds_builders"),
        *("rlds.alignment", "rlds.normalization", "rlds.statistics"),
        *("rlds.feeds", "rlds.robotics", "rlds.sources", "rlds.evaluation.policy_formats"),
        "rlds.validation",
        *(module for module in MODULES if module.startswith(("rlds.evaluation.", "rlds.feeds."))),
    ]
    expression = "[name for name in sys.modules if name.partition('.')[0] in {}]"
    code = f"""
import sys, {", ".join(light)}
print({expression.format(("tensorflow", "tensorflow_datasets", "torch", "jax", "grain", "cv2"))})
import tfds_builders
print({expression.format(("tensorflow",))})
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "[]\n[]\n"


@pytest.mark.parametrize("package", FLOORS[1:])
def test_packages_have_the_version_of_the_distribution(package):
    loaded = importlib.import_module(package)
    assert loaded.__version__ == metadata.version("rlds-ecosystem")
    with pytest.raises(AttributeError, match=f"module '{package}' has no attribute 'versoin'"):
        loaded.versoin  # noqa: B018


def test_the_version_in_a_folder_that_is_not_installed_is_unknown(tmp_path):
    (tmp_path / "rlds_ecosystem").symlink_to(Path(rlds_ecosystem.__file__).parent)
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import rlds_ecosystem as r\n"
    run = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code + "print(r.version())"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stdout == "0+unknown\n"
