"""Exports: recorded episodes become a folder, or a ZIP file, that others can use."""

from __future__ import annotations

import collections
import dataclasses
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlds_creator.exporting.archives import write_archive
from rlds_creator.exporting.recipes import Recipe, tag_field
from rlds_creator.exporting.recordings import ExportError
from rlds_creator.exporting.targets import FORMATS, Format
from rlds_ecosystem import version
from rlds_ecosystem.files.whole_files import made_at_once
from rlds_ecosystem.model.names import what_there_is
from rlds_tools.converting import dataset_name
from rlds_tools.results import count

if TYPE_CHECKING:
    from rlds.sources import Placement

__all__ = ["Exported", "export"]

# How much of the work a ZIP file is.
_PART_OF_ZIP = 0.2


@dataclasses.dataclass(frozen=True)
class Exported:
    """What an export has made.

    Attributes:
      num_episodes: How many episodes it has.
      num_steps: How many steps they have.
      num_cut: How many of them end at a label before their last step.
      paths: The data in its format, relative to the folder of the export.
      output: The folder, or the ZIP file.
      num_bytes: The size of all files.
    """

    num_episodes: int
    num_steps: int
    num_cut: int
    paths: Sequence[str]
    output: str
    num_bytes: int


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
) -> Exported:
    """Exports recorded episodes.

    The folder of an export has the data, in `NAME`, `NAME/1.0.0` or `NAME-v0` as the format has it,
    and beside it `README.md` and `metadata.json`, which say what it is. It appears when it is
    complete.

    Steps have the tags of annotators as `tag:LABEL`, a bool, if any of the episodes has the label.
    Beside what was recorded, the metadata of an episode has `episode_index`, `num_steps` (with the
    step of the reset), `total_reward`, `state`, `reason`, `success`, and `tags`, those of the
    episode as a whole; and `is_practice`, `consent` and `consent_time`, if any of the episodes is
    practice, or has a consent. An episode that was left before its end, or that is cut, is
    truncated: its last step is LAST, with its reward and its
    discount as they were recorded.

    Args:
      directories: For each episode the directory of its log, with its `annotations.json`.
      output: The folder, or the ZIP file; must not exist yet, or be an empty folder.
      format: One of `FORMATS`. The longest episode has to fit into memory a few times,
        uncompressed.
      name: What the data is called, in any words; its files get a name that is made of them.
      keep_internal: Whether to keep what only the tool needs: `image`, `keys`, `info`, `inputs`,
        `time`, `fps`, `camera` and `quality` of the steps, `notes` of the episodes.
      end_at: Labels. An episode ends at the first step that has one of them, whose observation is
        the final one; its `reason` is "tag". If it is the first step of all, the episode has no
        other, and no action.
      options: Options of the format, as `rlds convert -T` takes them: `fps=10`.
      archive: Whether to make a ZIP file. It has a single folder.
      progress: Called with how much is done, from 0 to 1.

    Returns:
      What was made.

    Raises:
      ExportError: The episodes cannot be exported: one is damaged, they are of different
        environments, or the format cannot hold them. Nothing is left.
      FileExistsError: There is something at the place of the output.
      ImportError: What the format needs is not installed; says what to install.
      OSError: It cannot be written.
    """
    chosen = _format(format)
    target, report = Path(output), progress or (lambda _: None)
    file_name = dataset_name(name)
    with made_at_once(target) as made:
        recipe = Recipe(
            [os.fspath(directory) for directory in directories],
            keep_internal=keep_internal,
            end_at=end_at,
        )
        # What else is made beside it goes away.
        folder = made.with_name(f"{made.name}.files") if archive else made
        folder.mkdir()
        end = 1 - _PART_OF_ZIP * archive
        try:
            data, placements = chosen.write(
                recipe, folder, file_name, options, lambda done: report(end * done)
            )
        except ValueError as error:
            raise _as_export_error(error, chosen, folder, recipe) from error
        path = data.relative_to(folder).as_posix()
        _describe(folder, chosen, name, path, recipe, end_at, placements)
        num_bytes = sum(found.stat().st_size for found in folder.rglob("*") if found.is_file())
        report(end)
        if archive:
            write_archive(folder, made, file_name, lambda done: report(end + (1 - end) * done))
            num_bytes = made.stat().st_size
    return Exported(
        num_episodes=len(recipe.recordings),
        num_steps=sum(recipe.lengths),
        num_cut=recipe.num_cut,
        paths=[path],
        output=os.fspath(output),
        num_bytes=num_bytes,
    )


def _format(name: str) -> Format:
    if name not in FORMATS:
        raise ExportError(f"no format {name!r:.100}; {what_there_is(name, FORMATS)}")
    chosen = FORMATS[name]
    if not chosen.installed:
        raise ImportError(f"{chosen.title}: not installed; run `{chosen.requires}`")
    return chosen


def _as_export_error(
    error: ValueError, chosen: Format, folder: Path, recipe: Recipe
) -> ExportError:
    """Returns what went wrong, without paths."""
    from rlds.raw_files.untrusted import SourceError

    if isinstance(error, ExportError):
        return error
    text = f"{chosen.title} cannot hold these episodes: {error}"
    if isinstance(error, SourceError):
        of = [one.name for one in recipe.recordings if error.file.startswith(one.directory)]
        text = f"episode {of[0] if of else error.episode}: {error.what}"
    for place in {str(folder), *(os.path.dirname(one.directory) for one in recipe.recordings)}:
        text = text.replace(f"{place}/", "")
    return ExportError(text, details=str(error))


def _describe(
    folder: Path,
    chosen: Format,
    name: str,
    path: str,
    recipe: Recipe,
    end_at: Sequence[str],
    placements: Sequence[Placement],
) -> None:
    """Writes what says what an export is, for people and for programs."""
    states = collections.Counter(
        "" if state is None else state.value
        for state in (episode.annotations.state for episode in recipe.recordings)
    )
    described: dict[str, Any] = {
        "name": name,
        "format": chosen.name,
        "data": path,
        "num_episodes": len(recipe.recordings),
        "num_steps": sum(recipe.lengths),
        "num_cut": recipe.num_cut,
        "states": dict(sorted(states.items())),
        "studies": sorted({episode.annotations.study.name for episode in recipe.recordings}),
        "environments": sorted({episode.environment for episode in recipe.recordings}),
        "step_tags": [tag_field(label) for label in recipe.labels],
        "end_at": list(end_at),
        "changed": [str(one) for one in placements if one.how in ("changed", "lost")],
        "sidecar": [one.field for one in placements if one.how == "sidecar"],
        "keep_internal": recipe.keep_internal,
        "software": f"rlds-ecosystem {version()}",
    }
    beside = [f"`{one}`" for one in described["sidecar"]]
    (folder / "metadata.json").write_text(
        json.dumps(described, indent=2, ensure_ascii=False) + "\n", encoding="utf-8"
    )
    (folder / "README.md").write_text(
        _README.format(
            path=path,
            title=chosen.title,
            num_episodes=count(len(recipe.recordings), "episode"),
            num_steps=count(sum(recipe.lengths), "step"),
            opening=chosen.opening.format(path=path),
            changed="".join(f"- Changed or lost: {one}\n" for one in described["changed"])
            + (f"- Only in `rlds.sources.open`: {', '.join(beside)}\n" if beside else ""),
        ),
        encoding="utf-8",
    )


_README = """\
# {path}

Episodes that people played in the browser, recorded with `rlds create` of the RLDS ecosystem.

- {title} · {num_episodes} · {num_steps}
- Open it in Python: `{opening}`
- Look at it: `rlds inspect {path}`
{changed}
`metadata.json` has the names of the studies and the environments, and how the export was made.

## What the episodes hold

The observations, actions, rewards and discounts are those of the environment. Beside them:

| field of a step | |
|---|---|
| `tag:LABEL` | whether an annotator gave the label to the step |
| `image` | the picture that the player saw, a file |
| `keys` | the inputs that made the action that led here: JSON, their names and values |
| `inputs` | what the player did since the step before: JSON, `[[ms, name, value, key], ...]` |
| `info` | what the environment said beside the observation, JSON |
| `time` | when the step was recorded, in seconds since 1970 |
| `fps`, `camera`, `quality` | how the environment was shown |

All but the tags are there only if the export was asked to keep them.

| field of an episode | |
|---|---|
| `agent_id` | stands for the player; the same one has another in another study |
| `episode_id` | the identifier of the recording |
| `episode_index` | which one of this export it is |
| `num_steps` | how many steps it has, with the one of the reset |
| `total_reward` | the sum of its rewards |
| `state` | `completed`, `cancelled`, `rejected`, `abandoned` or `failed` |
| `reason` | `terminated`, `truncated`, `user`, `expired`, `failed`, `stopped`; `tag` if cut |
| `success` | what the player said |
| `is_practice` | whether it is practice; only if any of the episodes is |
| `consent`, `consent_time` | the text to which the player had agreed, and when; only if any had |
| `tags` | the tags that annotators gave to the episode as a whole: a list in JSON |
| `notes` | what annotators wrote about it, if the export was asked to keep it |
"""
