"""Rules of all packages: examples run, `__all__` is complete, imports respect the layers."""

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

# The layers, lowest first: each package imports only earlier ones.
LAYERS = [
    "rlds_ecosystem",
    "riegeli",
    "tfds_files",
    "envlogger",
    "rlds",
    "tfds_builders",
    "rlds_tools",
    "rlds_creator",
]
# Further limits: recordings and training pipelines are independent. `riegeli.tensorflow` is an
# exception: it requires TensorFlow, and nothing imports it.
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
# Modules that may import envlogger.
IMPORT_ENVLOGGER = (
    "rlds/formats/google_creator/",
    "rlds/formats/logs/",
    "rlds/formats/lerobot/recorder.py",
)
# Class names in several modules, with the reason. All other names are unique.
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
# The folders of `rlds` without TensorFlow.
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
# The TFDS backend, which keeps its path of the published package, and its helpers. It shares the
# writer of `rlds.tfds`. No other module of the package imports these.
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


MODULES = [module for package in LAYERS for module in modules_of(package)]


@functools.cache
def imported_names(path):
    """Returns the names that a file imports: modules, and possible submodules."""
    names = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names += [name.name for name in node.names]
        elif isinstance(node, ast.ImportFrom):
            names += [node.module, *(f"{node.module}.{name.name}" for name in node.names)]
    return names


def imported_packages(path):
    """Returns the top-level packages that a file imports."""
    return {name.partition(".")[0] for name in imported_names(path)}


@pytest.mark.parametrize("package", LAYERS)
def test_each_package_imports_only_lower_layers(package):
    upper = set(LAYERS[LAYERS.index(package) + 1 :])
    root = Path(importlib.import_module(package).__file__).parent
    files = [file for file in root.rglob("*.py") if root / "tensorflow" not in file.parents]
    assert files
    for file in files:
        forbidden = imported_packages(file) & (upper | MUST_NOT_IMPORT[package])
        name = file.relative_to(root.parent).as_posix()
        if name in NEED_TENSORFLOW:
            forbidden -= {"tensorflow", "tensorflow_datasets", "rlds"}
        if name.startswith(IMPORT_ENVLOGGER):
            forbidden -= {"envlogger"}
        if name.startswith(LIGHT):
            forbidden |= imported_packages(file) & {"tensorflow", "tensorflow_datasets"}
        assert not forbidden, f"{file} imports {forbidden}"


# The folders that each folder of `rlds` must not import. All may import the format of TFDS.
FORBIDDEN = {
    "raw_files": {"sources", "formats", "video", "feeds", "evaluation", "labels"},
    "video": {"sources", "formats", "feeds", "evaluation", "labels"},
    "sources": {"formats", "feeds", "evaluation", "labels"},
    "labels": {"formats", "feeds", "evaluation"},
    "formats": {"feeds", "evaluation", "labels"},
    "feeds": {"formats", "evaluation"},
    "evaluation": {"formats"},
}


@pytest.mark.parametrize("folder", FORBIDDEN)
def test_each_folder_of_rlds_imports_only_allowed_ones(folder):
    root = Path(importlib.import_module("rlds").__file__).parent
    files = [*(root / folder).rglob("*.py")]
    assert files
    for file in files:
        for name in imported_names(file):
            package, _, inner = name.partition(".")
            target, *below = inner.split(".")
            is_tfds = target == "formats" and below[:1] == ["tfds"]
            # It compares a view with the rows of feeds.
            is_testing = file.match("sources/testing.py") and target == "feeds"
            if package == "rlds" and target in FORBIDDEN and not (is_tfds or is_testing):
                assert target not in FORBIDDEN[folder], f"{file} imports {name}"
            own = file.relative_to(root / folder).parts[0]
            if folder == target == "formats" and below and (root / folder / below[0]).is_dir():
                is_recorder = file.match("lerobot/recorder.py") and below[0] == "logs"
                assert is_tfds or is_recorder or below[0] == own, f"{file} imports {name}"


# For `rlds recover`, the tasks of LeRobot, and the layouts that `rlds inspect` proposes.
IMPORT_FORMATS = {"inspection.py", "recovering.py", "validating.py"}


@pytest.mark.parametrize("package", ["rlds_tools", "rlds_creator"])
def test_tools_and_creator_import_no_format(package):
    root = Path(importlib.import_module(package).__file__).parent
    for file in root.rglob("*.py"):
        formats = {name for name in imported_names(file) if name.startswith("rlds.formats.")}
        formats = {name for name in formats if not name.startswith("rlds.formats.tfds.")}
        assert not formats or (root / file.name == file and file.name in IMPORT_FORMATS), file


def test_imports_of_modules_have_no_cycle():
    """Includes imports in functions and for annotations."""
    imports = {}
    for module in MODULES:
        file = Path(importlib.util.find_spec(module).origin)
        if file.suffix == ".py":  # Not a compiled one.
            imports[module] = set(imported_modules(file)) - {module}
    graphlib.TopologicalSorter(imports).prepare()  # Raises an error that names a cycle.


def imported_modules(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            names = (f"{node.module}.{name.name}" for name in node.names)
            yield from (name if name in MODULES else node.module for name in names)


def test_no_module_of_envlogger_imports_those_that_need_tensorflow():
    root = Path(importlib.import_module("envlogger").__file__).parents[1]
    modules = {name.removesuffix(".py").replace("/", ".") for name in NEED_TENSORFLOW}
    files = {file.relative_to(root).as_posix(): file for file in root.glob("envlogger/**/*.py")}
    assert files.keys() > NEED_TENSORFLOW
    for name in files.keys() - NEED_TENSORFLOW:
        assert not modules.intersection(imported_names(files[name])), name
    for name in NEED_TENSORFLOW:
        assert imported_packages(files[name]) & {"tensorflow", "tensorflow_datasets"}, name


def test_no_package_imports_private_modules_of_riegeli():
    """Google's package, a possible replacement, has other private modules."""
    packages = [Path(importlib.import_module(name).__file__).parent for name in LAYERS]
    files = [file for root in packages if root.name != "riegeli" for file in root.rglob("*.py")]
    files += Path(__file__).parents[1].glob("examples/*.py")
    assert len(files) > 100
    for file in files:
        names = imported_names(file)
        private = [name for name in names if name.startswith("riegeli.") and "._" in name]
        assert not private, f"{file} imports {private}"


@pytest.mark.parametrize("module", MODULES)
def test_names_in_all_exist_and_examples_run(module):
    loaded = importlib.import_module(module)
    for name in getattr(loaded, "__all__", []):
        assert getattr(loaded, name) is not None
    if ">>> " in (loaded.__spec__.loader.get_source(module) or ""):
        result = doctest.testmod(loaded)
        assert result.failed == 0
        assert result.attempted


@pytest.mark.parametrize("package", LAYERS)
def test_all_lists_every_public_name_of_a_package(package):
    loaded = importlib.import_module(package)
    public = {
        name
        for name, value in vars(loaded).items()
        if not name.startswith("_") and not isinstance(value, types.ModuleType)
    }
    assert public <= set(loaded.__all__) | {"TYPE_CHECKING", "Any"}


def test_class_names_are_unique():
    modules = {}
    for package in LAYERS:
        root = Path(importlib.import_module(package).__file__).parent
        for file in sorted(root.rglob("*.py")):
            for node in ast.parse(file.read_text()).body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    modules.setdefault(node.name, []).append(str(file))
    shared = {name: files for name, files in modules.items() if len(files) > 1}
    assert {name: shared[name] for name in shared.keys() - SHARED_CLASS_NAMES} == {}


def test_only_packages_with_tensors_load_tensorflow():
    light = [
        *(layer for layer in LAYERS if layer != "tfds_builders"),
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
    command = [sys.executable, "-c", code]
    process = subprocess.run(command, capture_output=True, text=True, check=True)
    assert process.stdout == "[]\n[]\n"


@pytest.mark.parametrize("package", LAYERS[1:])
def test_packages_have_the_version_of_the_distribution(package):
    loaded = importlib.import_module(package)
    assert loaded.__version__ == metadata.version("rlds-ecosystem")
    with pytest.raises(AttributeError, match=f"module '{package}' has no attribute 'versoin'"):
        loaded.versoin  # noqa: B018


def test_version_without_an_installation_is_unknown(tmp_path):
    (tmp_path / "rlds_ecosystem").symlink_to(Path(rlds_ecosystem.__file__).parent)
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import rlds_ecosystem as r\n"
    process = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code + "print(r.version())"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert process.stdout == "0+unknown\n"
