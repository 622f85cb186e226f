"""The installation: the distribution that brings all the packages here, and its extras.

The packages are named as the published ones, `riegeli`, `envlogger` and `rlds`; the distribution
is not, so that a line that installs it brings in this project and no other.
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
"""The name to install this project by."""

# The same packages, without TensorFlow among the requirements.
_LIGHT = f"{DISTRIBUTION}-light"

# Libraries that not every installation has, by the extra that brings them.
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
    """Returns the version that is installed, "0+unknown" for packages in a mere folder."""
    return _installed()[1]


def _installed() -> tuple[str, str]:
    """Returns the name and the version of the distribution that is installed."""
    from importlib import metadata  # Slow to import, and rarely asked for.

    for name in (DISTRIBUTION, _LIGHT):
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
    """Returns a module that not every installation has.

    Args:
      module: Its name, such as "h5py" or "pyarrow.parquet".

    Raises:
      ImportError: It is not installed; says how to install it.
    """
    library = module.partition(".")[0]
    try:
        # It knows what is loaded already, and waits for what another thread is loading.
        __import__(module)  # A fraction of the time of `import_module`.
        return sys.modules[module]
    except ModuleNotFoundError as error:
        if error.name != library:
            raise
        raise ImportError(
            f"{library} is needed for this: {install_command(_EXTRA_OF[library])}", name=library
        ) from error


def missing_tensorflow(package: str) -> ModuleNotFoundError | None:
    """Returns the error of importing a package that needs TensorFlow, None if that is installed.

    It is not imported: some of what needs it loads it later.
    """
    for library in ("tensorflow", "tensorflow_datasets"):
        if importlib.util.find_spec(library) is None:
            return ModuleNotFoundError(
                f"{package} needs TensorFlow and TensorFlow Datasets; {library} is not installed: "
                f"pip install {DISTRIBUTION}",
                name=library,
            )
    return None
