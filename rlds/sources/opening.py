"""Opening of datasets: detection of the format of a path."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from etils import epath

from rlds.sources.dataset_search import find_datasets, marked_formats, several_datasets
from rlds.sources.episodes import Episodes
from rlds.sources.options import options_of
from rlds.sources.registry import Format, formats
from rlds.sources.signs import Signs
from rlds.sources.source import AnySource, SourceError, files_of
from rlds_ecosystem.files import stores
from rlds_ecosystem.files.replacing import finish_replacing
from rlds_ecosystem.model.names import suggest_names

__all__ = ["UnknownFormatError", "format_of", "only_split", "open"]

# Formats to suggest for an unrecognized file, by its suffix.
_SIMILAR_FORMATS = {
    ".hdf5": ("robomimic", "d4rl", "maniskill", "aloha"),
    ".h5": ("maniskill", "d3rlpy", "droid", "d4rl"),
    ".npz": ("npz", "ogbench", "calvin"),
    ".parquet": ("lerobot", "minari"),
    ".tar": ("webdataset",),
    ".pkl": ("rlds_creator", "sb3"),
    ".riegeli": ("envlogger",),
}
# The format that the option of the same name selects.
_LAYOUT_FORMAT = "layout"
# The number of names in an error about an unknown file or folder.
_MAX_SHOWN_NAMES = 8
# The depth of the search for other datasets, such as in data/NAME/VERSION.
_MAX_SEARCH_DEPTH = 3


class UnknownFormatError(SourceError):
    """No format recognizes the data."""


def open(
    path: str | os.PathLike[str],
    split: str | None = None,
    *,
    format: str | None = None,
    where: str | None = None,
    **options: Any,
) -> Episodes:
    """Opens episodes in any format.

    Args:
      path: A file or folder, local or in an object store: EnvLogger logs, a TFDS dataset, or data
        in any other of the `formats`. For Minari, also the identifier of a downloaded dataset.
      split: The split; needed if there are several. Slices are as in TFDS: `train[:10%]`,
        `train[5:20]`, `train+test`, `all`.
      format: The name of the format; detected if None.
      where: The condition on the opened episodes, in SQL over the table of episodes, such as
        `"steps > 50 and success"`; see `Episodes.where`. All episodes by default.
      **options: Options of the format, see `formats()[name].options`. `layout="mine.yaml"`
        describes files of your own, see docs/layouts.md.

    Returns:
      The episodes of the split or slice.

    Raises:
      FileNotFoundError: The path does not exist.
      KeyError: There is no such split; the message lists the splits.
      SourceError: The format is unknown, or the data is damaged; the message has the location.
      TypeError: The format has no such option.
      ValueError: The format or the slice does not exist, or several formats match the data. The
        condition is not valid, or is true for no episode.

    >>> import tempfile
    >>> import envlogger
    >>> from envlogger.testing.catch_env import Catch
    >>> directory = tempfile.mkdtemp()
    >>> with envlogger.EnvLogger(Catch(), data_directory=directory) as env:
    ...     timestep = env.reset()
    ...     while not timestep.last():
    ...         timestep = env.step(1)
    >>> episodes = open(directory)
    >>> len(episodes), episodes.columns(0, ["action"], start=2, stop=5)
    (1, {'action': array([1, 1, 1])})
    """
    registry = formats()
    if isinstance(path, str | os.PathLike):
        finish_replacing(path)
        if not stores.is_local(path) and (stores.as_path(path) / stores.UPLOAD_MARK).exists():
            raise SourceError("its upload is not complete; repeat the export", file=os.fspath(path))
    if format is None:
        format = _LAYOUT_FORMAT if _LAYOUT_FORMAT in options else format_of(path)
    elif format not in registry:
        raise ValueError(f"unknown format {format!r}; {suggest_names(format, registry)}")
    source_class = registry[format].load()
    if unknown_options := options.keys() - options_of(source_class).keys():
        names = ", ".join(map(str, options_of(source_class).values())) or "none"
        problem = f"the format {format} has no option {min(unknown_options)!r}"
        raise TypeError(f"{problem}; its options are: {names}")
    source = registry[format].source(path, **options)
    episodes = Episodes(source, only_split(source, split), format=format)
    if where is None:
        return episodes
    selection = episodes.where(where)
    if not len(selection):
        problem = f"where: none of the {len(episodes)} episodes fulfils {where!r}"
        raise ValueError(f"{problem}. `episodes.table()` and `rlds episodes` list them")
    return selection


def format_of(path: str | os.PathLike[str]) -> str:
    """Detects the format of data from file names and a little of their content.

    Args:
      path: A local file or folder, or one in an object store.

    Returns:
      The name of the format.

    Raises:
      FileNotFoundError: The path does not exist.
      ImportError: The format is unknown, and the library of another format is not installed.
      UnknownFormatError: The format is unknown.
      ValueError: The data could be of several formats.
    """
    _check_is_one_path(path)
    finish_replacing(path)
    registry = formats()
    signs = Signs(path)
    names, missing = _matching_formats(path, registry, signs)
    if len(names) > 1:
        raise ValueError(
            f"{os.fspath(path)!r} could be {' or '.join(names)}: pass the right one, such as "
            f"format={names[0]!r}"
        )
    if names:
        _check_is_one_format(path, names[0], is_large=signs.names is None)
        return names[0]
    _check_exists(path)
    if missing:
        raise missing[0]
    if signs.damage is not None:
        raise signs.damage
    from rlds.raw_files.archives import SUFFIXES  # The module loads on demand.

    if os.fspath(path).endswith(SUFFIXES):
        raise SourceError("an archive: unpack it, and open its content", file=path)
    raise UnknownFormatError(_explain_unknown(stores.as_path(path), registry, signs), file=path)


def _matching_formats(
    path: str | os.PathLike[str], registry: Mapping[str, Format], signs: Signs
) -> tuple[list[str], list[ImportError]]:
    """Returns the formats that recognize a path, and import errors of missing libraries."""

    def recognizes(name: str) -> bool | ImportError:
        try:
            return registry[name].recognizes(path, signs)
        except ImportError as error:
            return error

    names: list[str] = []
    missing: list[ImportError] = []
    for is_fallback in (False, True):
        candidates = [name for name, f in registry.items() if f.is_fallback is is_fallback]
        results = dict(zip(candidates, stores.in_parallel(recognizes, candidates, path)))
        names += [name for name, result in results.items() if result is True]
        missing += [result for result in results.values() if isinstance(result, ImportError)]
        if names:
            break
    return names, missing


def _explain_unknown(path: epath.Path, format_names: Iterable[str], signs: Signs) -> str:
    if path.is_dir() and not any(path.iterdir()):
        return "an empty folder"
    if (path / "features.json").exists():
        return (
            "an incomplete TFDS dataset: dataset_info.json, the last file to be written, is "
            "missing. If its writer was killed, write it again"
        )
    if (path / "zarr.json").exists():
        return "a store of Zarr 3, expected Zarr 2: write it with zarr_format=2"
    content, similar_formats = _describe_content(path, signs)
    similar_formats = [name for name in similar_formats if name in format_names]
    nearest = f" The nearest formats are: {', '.join(similar_formats)}." if similar_formats else ""
    if "'joint_action'" in content:
        nearest = " It may be a raw file of RoboTwin: run its process_data, open the ALOHA files."
    return (
        f"unknown format{content}.{nearest} If you know the format, pass format=... (--format on "
        "the command line); `rlds list --formats` lists all. For files of your own, describe their "
        "arrays in a layout (`rlds inspect` proposes one; docs/layouts.md), write a reader "
        "(docs/own_format.md), or write episodes with rlds.tfds.EpisodeWriter"
    )


def _describe_content(path: epath.Path, signs: Signs) -> tuple[str, Sequence[str]]:
    """Describes data of an unknown format; also returns the formats of similar files."""
    names = sorted(file.name for file in path.iterdir()) if path.is_dir() else [path.name]
    suffixes = {os.path.splitext(name)[1] for name in names}
    similar_formats = [
        name
        for suffix, formats in _SIMILAR_FORMATS.items()
        if suffix in suffixes
        for name in formats
    ]
    kind = "a folder with"
    if not path.is_dir():
        kind, names = "an HDF5 file with", signs.hdf5_names
    if not names:
        return "", similar_formats
    ellipsis = ", …" if len(names) > _MAX_SHOWN_NAMES else ""
    return f": {kind} {', '.join(map(repr, names[:_MAX_SHOWN_NAMES]))}{ellipsis}", similar_formats


def _check_is_one_path(path: Any) -> None:
    if not isinstance(path, str | os.PathLike):
        raise TypeError(f"got {type(path).__name__}, expected a path; or pass format=...")


def _check_is_one_format(path: str | os.PathLike[str], format: str, *, is_large: bool) -> None:
    """Checks that a folder does not hold data of several formats.

    Raises:
      ValueError: The folder has datasets of several formats.
    """
    folder = os.fspath(path)
    if not stores.is_local(path) or not os.path.isdir(folder) or marked_formats(folder):
        return
    # Subfolders of large folders are not searched.
    datasets = sorted(find_datasets(folder, 1 if is_large else _MAX_SEARCH_DEPTH))
    names = {name for _, name in datasets}
    if len(names) > 1 and format in names:
        raise ValueError(several_datasets(folder, datasets))


def _check_exists(path: str | os.PathLike[str]) -> None:
    if not stores.as_path(path).exists():
        name = os.fspath(path)
        is_identifier = re.fullmatch(r"[\w/-]+-v\d+", name)
        hint = f" If it is a Minari dataset, run `minari download {name}`." if is_identifier else ""
        raise FileNotFoundError(f"{name!r} does not exist.{hint}")


def only_split(source: AnySource, split: str | None) -> str:
    """Returns the requested split; the only split of the source if None.

    Raises:
      KeyError: There are several splits; the message lists them.
    """
    if split is not None:
        return split
    splits = list(source.splits)
    if len(splits) != 1:
        raise KeyError(f"pass one of the splits {splits} as split=... (of {files_of(source, 1)})")
    return splits[0]
