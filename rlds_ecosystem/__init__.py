"""The installation: the distribution with all packages of this project, and its extras.

The packages have the names of the published ones: `riegeli`, `envlogger` and `rlds`. The name of
the distribution differs, so that installing it by name installs this project.
"""

import importlib
import importlib.util
import sys
from typing import Any

from rlds_ecosystem.installation import warn_of_other_distributions as _warn_of_others

__all__ = [
    "DISTRIBUTION",
    "import_extra",
    "install_command",
    "missing_tensorflow",
    "version",
]

DISTRIBUTION: str = "rlds-ecosystem"
"""The name of the distribution of this project."""

# The distribution of the same packages that does not require TensorFlow.
_LIGHT_DISTRIBUTION = f"{DISTRIBUTION}-light"

# Optional libraries by extra.
_LIBRARIES = {
    "array_record": "array_record",
    "beam": "apache_beam",
    "creator": "alembic sqlalchemy starlette uvicorn websockets",
    "dm_control": "dm_control",
    "gcs": "gcsfs",
    "grain": "grain",
    "gymnasium": "gymnasium",
    "hdf5": "h5py",
    "hf": "huggingface_hub",
    "images": "cv2 simplejpeg",
    "parquet": "pyarrow",
    "postgresql": "psycopg",
    "query": "duckdb yaml",
    "ros": "lz4 mcap rosbags ruamel",
    "s3": "s3fs",
    "torch": "torch",
    "video": "av",
    "zarr": "imagecodecs numcodecs",
}
_EXTRA_OF = {name: extra for extra, names in _LIBRARIES.items() for name in names.split()}


_warn_of_others(sys.path)


def version() -> str:
    """Returns the installed version, "0+unknown" for packages that are not installed."""
    return _installed()[1]


def _installed() -> tuple[str, str]:
    """Returns the name and the version of the installed distribution."""
    from importlib import metadata  # This import is slow, and rarely needed.

    for name in (DISTRIBUTION, _LIGHT_DISTRIBUTION):
        try:
            return name, metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return DISTRIBUTION, "0+unknown"


def install_command(extra: str) -> str:
    """Returns the shell command that adds an extra to an installation.

    >>> install_command("hdf5")
    "pip install 'rlds-ecosystem[hdf5]'"
    """
    return f"pip install '{_installed()[0]}[{extra}]'"


def import_extra(module: str) -> Any:
    """Imports and returns an optional module.

    Args:
      module: The name of the module, such as "h5py" or "pyarrow.parquet".

    Raises:
      ImportError: The module is not installed; the message has the command to install it.
    """
    library = module.partition(".")[0]
    try:
        # `__import__` is faster than `import_module`, and waits for imports of other threads.
        __import__(module)
        return sys.modules[module]
    except ModuleNotFoundError as error:
        if error.name != library:
            raise
        raise ImportError(
            f"{library} is needed for this: {install_command(_EXTRA_OF[library])}", name=library
        ) from error


def missing_tensorflow(package: str) -> ModuleNotFoundError | None:
    """Returns the error for a package that needs TensorFlow; None if TensorFlow is installed.

    TensorFlow is not imported, as some packages load it later.
    """
    for library in ("tensorflow", "tensorflow_datasets"):
        if importlib.util.find_spec(library) is None:
            return ModuleNotFoundError(
                f"{package} needs TensorFlow and TensorFlow Datasets; {library} is not installed: "
                f"pip install {DISTRIBUTION}",
                name=library,
            )
    return None
