"""The export formats of recordings."""

from __future__ import annotations

import dataclasses
import importlib.util
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rlds_ecosystem import install_command

if TYPE_CHECKING:
    from rlds.sources import Placement
    from rlds_creator.exporting.recipes import Recipe

__all__ = ["FORMATS", "ExportFormat"]

_OPEN_CODE = 'rlds.sources.open("{path}")'


@dataclasses.dataclass(frozen=True)
class ExportFormat:
    """A format that recordings can be exported to.

    Attributes:
      name: The name of the format.
      title: The name of the format in the user interface.
      module: A required module; "" for none.
      extra: The extra that installs the module.
      open_code: Python code that opens the data, with `{path}` in it.
      path: The path of the data in the folder of the export, with `{name}` in it.
      defaults: Default options of the format, with `{name}` in them.
      source: The name of the format in `rlds.sources`, if it differs.
    """

    name: str
    title: str
    module: str = ""
    extra: str = ""
    open_code: str = _OPEN_CODE
    path: str = "{name}"
    defaults: Mapping[str, str] = dataclasses.field(default_factory=dict)
    source: str = ""

    @property
    def requires(self) -> str:
        """The shell command that installs the dependencies of the format; "" for none."""
        return install_command(self.extra) if self.extra else ""

    @property
    def installed(self) -> bool:
        """Whether the dependencies of the format are installed."""
        return not self.module or importlib.util.find_spec(self.module) is not None

    def write(
        self,
        recipe: Recipe,
        folder: Path,
        name: str,
        options: Sequence[str],
        progress: Callable[[float], None],
    ) -> tuple[Path, Sequence[Placement]]:
        """Writes the episodes of a recipe, and their labels.

        Args:
          recipe: The recipe.
          folder: The folder of the export.
          name: The name of the data.
          options: Options of the format, as for `rlds convert -T`.
          progress: A callback for the fraction of the read episodes, from 0 to 1.

        Returns:
          The path of the data, and the placement of each field.

        Raises:
          SourceError: An episode is damaged.
          ValueError: The format cannot store the episodes, or an option does not exist.
        """
        from rlds.conversion import exporting
        from rlds.sources.options import options_of, parse_options
        from rlds_creator.exporting.labels import write_labels

        format = self.source or self.name
        export_class = exporting.export_class(format)
        given_options = parse_options(options_of(export_class), options, format)
        path = folder / export_class.part_name(self.path.format(name=name))
        defaults = {key: value.format(name=name) for key, value in self.defaults.items()}
        episodes = recipe.episodes(progress)
        writer = exporting.prepare(episodes, format, **{**defaults, **given_options})
        report = exporting.write_export(writer, path, verify=False, allow_loss=True)
        write_labels(recipe, path, format, **writer.read_options())
        return path, report.placements


_GZIP = {"compression": "gzip"}
FORMATS: Mapping[str, ExportFormat] = {
    format.name: format
    for format in (
        ExportFormat(
            "log", "EnvLogger log", open_code='envlogger.Reader("{path}")', source="envlogger"
        ),
        ExportFormat(
            "tfds",
            "TFDS dataset",
            open_code='tfds.builder_from_directory("{path}").as_dataset()',
            path="{name}/1.0.0",
            defaults={"name": "{name}", "version": "1.0.0"},
        ),
        ExportFormat("minari", "Minari dataset", "h5py", "hdf5", path="{name}-v0", defaults=_GZIP),
        ExportFormat("lerobot", "LeRobot dataset", "pyarrow", "lerobot"),
        ExportFormat("robomimic", "robomimic (HDF5)", "h5py", "hdf5", defaults=_GZIP),
        ExportFormat("zarr", "Zarr buffer of Diffusion Policy", "numcodecs", "zarr"),
        ExportFormat("webdataset", "WebDataset"),
        ExportFormat("mcap", "MCAP files", "mcap", "ros"),
        ExportFormat("aloha", "ALOHA (HDF5)", "h5py", "hdf5"),
        ExportFormat("maniskill", "ManiSkill (HDF5)", "h5py", "hdf5"),
        ExportFormat("d4rl", "D4RL (HDF5)", "h5py", "hdf5"),
        ExportFormat("d3rlpy", "d3rlpy (HDF5)", "h5py", "hdf5"),
    )
}

"""The formats that recordings can be exported to, by name."""
