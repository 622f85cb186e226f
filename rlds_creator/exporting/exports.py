"""Exports of recorded episodes to a folder or a ZIP file, in any export format."""

from __future__ import annotations

import collections
import dataclasses
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from rlds_creator.exporting.archives import write_archive
from rlds_creator.exporting.recipes import Recipe, tag_field
from rlds_creator.exporting.recordings import ExportError
from rlds_creator.exporting.targets import FORMATS, ExportFormat
from rlds_ecosystem import version
from rlds_ecosystem.files.whole_files import atomic_target
from rlds_ecosystem.model.names import suggest_names
from rlds_tools.converting import dataset_name
from rlds_tools.results import Block, Result, count, next_commands, size_text

if TYPE_CHECKING:
    from rlds.sources import Placement

__all__ = ["Download", "export"]

# The share of the ZIP file in the progress.
_ZIP_FRACTION = 0.2


@dataclasses.dataclass(frozen=True)
class Download(Result):
    """The result of an export: path, format, and numbers of episodes and steps.

    Attributes:
      path: The folder, or the ZIP file.
      format: The format of the data.
      data: The data, relative to the folder.
      episodes: The number of episodes.
      steps: The number of steps.
      cut: The number of episodes cut at a label before their last step.
      bytes: The size of all files.
      left_out: The number of excluded episodes, by their state.
    """

    path: str
    format: str
    data: str
    episodes: int
    steps: int
    cut: int
    bytes: int
    left_out: Mapping[str, int] = dataclasses.field(default_factory=dict)

    @override
    def blocks(self) -> Iterator[Block]:
        yield (
            f"{self.path}: {count(self.episodes, 'episode')}, {count(self.steps, 'step')} · "
            f"{self.format} · {size_text(self.bytes)}"
        )
        if self.cut:
            yield f"{count(self.cut, 'episode')} cut at a label"
        if self.left_out:
            states = ", ".join(f"{total:,} {state}" for state, total in self.left_out.items())
            yield f"left out: {states}"
        if not self.path.endswith(".zip"):
            data = os.path.join(self.path, self.data)
            yield next_commands(["inspect", data], ["validate", data])


def export(
    directories: Sequence[str | os.PathLike[str]],
    output: str | os.PathLike[str],
    format: str = "log",
    *,
    name: str = "",
    keep_internal: bool = False,
    end_at: Sequence[str] = (),
    options: Sequence[str] = (),
    archive: bool = False,
    progress: Callable[[float], None] | None = None,
) -> Download:
    """Exports recorded episodes.

    The folder of an export has the data, in `NAME`, `NAME/1.0.0` or `NAME-v0` depending on the
    format, with its description in `README.md` and `metadata.json`. The output appears when
    complete.

    If any episode has the tag LABEL of an annotator, steps have the field `tag:LABEL`, a bool.
    The export adds to the recorded metadata of an episode: `episode_index`, `num_steps` (with the
    step of the reset), `total_reward`, `state`, `reason`, `success`, and `tags`, the tags of the
    episode; also `is_practice`, `consent` and `consent_time`, if any of the episodes is practice or
    has a consent. An abandoned or cut episode is truncated: its last step is LAST, with the
    recorded reward and discount.

    Args:
      directories: The directory of the log of each episode, with its `annotations.json`.
      output: The new folder or ZIP file; an empty folder may exist.
      format: One of `FORMATS`. The memory must hold several copies of the longest episode.
      name: The title of the dataset, a free text; the names of files are derived from it.
      keep_internal: Whether to keep the fields for internal use: `image`, `keys`, `info`, `inputs`,
        `time`, `fps`, `camera` and `quality` of the steps, `notes` of the episodes.
      end_at: Labels. An episode ends with the observation of the first step with one of them; its
        `reason` is "tag". If that is the step of the reset, the episode has no action.
      options: Options of the format, as for `rlds convert -T`: `fps=10`.
      archive: Whether to write a ZIP file, with a single folder.
      progress: A callback for the completed fraction, from 0 to 1.

    Raises:
      ExportError: The episodes cannot be exported: one is damaged, they are of different
        environments, or the format cannot store them. Nothing is written.
      FileExistsError: The output exists.
      ImportError: A requirement of the format is missing; the message names the package.
      OSError: The output cannot be written.
    """
    target_format = _find_format(format)
    target, report = Path(output), progress or (lambda _: None)
    file_name = dataset_name(name)
    with atomic_target(target) as draft:
        paths = [os.fspath(directory) for directory in directories]
        recipe = Recipe(paths, keep_internal=keep_internal, end_at=end_at)
        # Other files next to the draft are removed at the end.
        folder = draft.with_name(f"{draft.name}.files") if archive else draft
        folder.mkdir()
        end = 1 - _ZIP_FRACTION * archive
        try:
            data, placements = target_format.write(
                recipe, folder, file_name, options, lambda done: report(end * done)
            )
        except ValueError as error:
            raise _as_export_error(error, target_format, folder, recipe) from error
        download = Download(
            path=os.fspath(output),
            format=format,
            data=data.relative_to(folder).as_posix(),
            episodes=len(recipe.recordings),
            steps=sum(recipe.lengths),
            cut=recipe.num_cut,
            bytes=0,
        )
        _write_description(folder, target_format, name, download, recipe, end_at, placements)
        num_bytes = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
        report(end)
        if archive:
            write_archive(folder, draft, file_name, lambda done: report(end + (1 - end) * done))
            num_bytes = draft.stat().st_size
    return dataclasses.replace(download, bytes=num_bytes)


def _find_format(name: str) -> ExportFormat:
    if name not in FORMATS:
        raise ExportError(f"no format {name!r:.100}; {suggest_names(name, FORMATS)}")
    target_format = FORMATS[name]
    if not target_format.installed:
        raise ImportError(f"{target_format.title}: not installed; run `{target_format.requires}`")
    return target_format


def _as_export_error(
    error: ValueError, target_format: ExportFormat, folder: Path, recipe: Recipe
) -> ExportError:
    """Returns an error without the paths of this server."""
    from rlds.raw_files.untrusted import SourceError

    if isinstance(error, ExportError):
        return error
    directories = [recording.directory for recording in recipe.recordings]
    text = f"{target_format.title} cannot hold these episodes: {error}"
    if isinstance(error, SourceError):
        paths = [path for path in directories if error.file.startswith(path)]
        text = f"episode {os.path.basename(paths[0]) if paths else error.episode}: {error.problem}"
    for path in {str(folder), *map(os.path.dirname, directories)}:
        text = text.replace(f"{path}/", "")
    return ExportError(text, details=str(error))


def _write_description(
    folder: Path,
    target_format: ExportFormat,
    name: str,
    download: Download,
    recipe: Recipe,
    end_at: Sequence[str],
    placements: Sequence[Placement],
) -> None:
    """Writes the description of an export: `README.md` and `metadata.json`."""
    annotations = [recording.annotations for recording in recipe.recordings]
    states = collections.Counter(str(each.state or "") for each in annotations)
    metadata: dict[str, Any] = {
        "name": name,
        "format": target_format.name,
        "data": download.data,
        "num_episodes": download.episodes,
        "num_steps": download.steps,
        "num_cut": download.cut,
        "states": dict(sorted(states.items())),
        "studies": sorted({each.study.name for each in annotations}),
        "environments": sorted({episode.environment for episode in recipe.recordings}),
        "step_tags": [tag_field(label) for label in recipe.labels],
        "end_at": list(end_at),
        "changed": [str(field) for field in placements if field.how in ("changed", "lost")],
        "sidecar": [field.field for field in placements if field.how == "sidecar"],
        "keep_internal": recipe.keep_internal,
        "software": f"rlds-ecosystem {version()}",
    }
    sidecar = ", ".join(f"`{field}`" for field in metadata["sidecar"])
    (folder / "metadata.json").write_text(
        json.dumps(metadata, indent=2, ensure_ascii=False) + "\n", encoding="utf-8"
    )
    readme = Path(__file__).with_name("readme.md").read_text("utf-8")
    readme = readme.format(
        path=download.data,
        title=target_format.title,
        num_episodes=count(download.episodes, "episode"),
        num_steps=count(download.steps, "step"),
        opening=target_format.open_code.format(path=download.data),
        changed="".join(f"- Changed or lost: {change}\n" for change in metadata["changed"])
        + (f"- Only in `rlds.sources.open`: {sidecar}\n" if sidecar else ""),
    )
    (folder / "README.md").write_text(readme, encoding="utf-8")
