"""`rlds card`: a README for a dataset, and its description for machines (Croissant)."""

from __future__ import annotations

import bisect
import dataclasses
import html
import json
import os
import re
import urllib.parse
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from rlds_ecosystem.files import stores
from rlds_ecosystem.files.whole_files import write_atomically
from rlds_ecosystem.model.texts import shorten
from rlds_ecosystem.progress import show_progress
from rlds_tools import markdown
from rlds_tools.inspection import (
    FORMAT_NAMES,
    InspectedField,
    InspectedSplit,
    Inspection,
    inspect,
    shape_text,
)
from rlds_tools.results import Block, Result, next_commands, size_text

if TYPE_CHECKING:
    from etils import epath
    from rich.progress import Progress

    from rlds.sources import AnySource

__all__ = ["Card", "card"]

# The license names of hubs, which are SPDX identifiers in lower case.
_LICENSES = (
    "afl-3.0 agpl-3.0 apache-2.0 artistic-2.0 bsd bsd-2-clause bsd-3-clause bsd-3-clause-clear "
    "bsl-1.0 c-uda cc cc-by-2.0 cc-by-2.5 cc-by-3.0 cc-by-4.0 cc-by-nc-2.0 cc-by-nc-3.0 "
    "cc-by-nc-4.0 cc-by-nc-nd-3.0 cc-by-nc-nd-4.0 cc-by-nc-sa-2.0 cc-by-nc-sa-3.0 cc-by-nc-sa-4.0 "
    "cc-by-nd-4.0 cc-by-sa-3.0 cc-by-sa-4.0 cc0-1.0 cdla-permissive-1.0 cdla-permissive-2.0 "
    "cdla-sharing-1.0 ecl-2.0 epl-1.0 epl-2.0 etalab-2.0 eupl-1.1 eupl-1.2 gfdl gpl gpl-2.0 "
    "gpl-3.0 isc lgpl lgpl-2.1 lgpl-3.0 lppl-1.3c mit mpl-2.0 ms-pl ncsa odbl odc-by ofl-1.1 "
    "openrail osl-3.0 pddl postgresql unlicense wtfpl zlib"
)
_SIZES = ("1K", "10K", "100K", "1M", "10M", "100M", "1B", "10B", "100B", "1T")
_WITHOUT_VIEWER = ("tfds", "envlogger")
# Texts that no file of the dataset holds.
_USER_TEXTS = ("description", "license", "citation")
_MAX_CELL_LENGTH = 201


@dataclasses.dataclass(frozen=True)
class Card(Result):
    """A card of a dataset.

    Attributes:
      path: The path of the dataset.
      name: The name of the dataset.
      readme: The README, in Markdown.
      front_matter: The front matter that hubs read, by key.
      croissant: The Croissant metadata; None if not requested.
      missing: The names of missing facts: "license", "citation", "description".
      readme_file: The path of the README.
      croissant_file: The path of the Croissant metadata.
    """

    path: str
    name: str
    readme: str
    front_matter: Mapping[str, Any]
    croissant: Mapping[str, Any] | None
    missing: tuple[str, ...]
    readme_file: str | None = None
    croissant_file: str | None = None

    @override
    def blocks(self) -> Iterator[Block]:
        written_files = [file for file in (self.readme_file, self.croissant_file) if file]
        if self.readme_file is None:
            yield from self.readme.rstrip("\n").split("\n")
        else:
            yield f"{self.name}: wrote {' and '.join(written_files)}"
        if self.readme_file and self.missing:
            options = " · ".join(f"--{name}" for name in self.missing)
            yield f"missing: {', '.join(self.missing)}; add with {options} --force"
        if self.readme_file:
            yield next_commands(["inspect", self.path], ["validate", self.path])

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(self.readme)}</pre>"


def card(
    path: str | os.PathLike[str],
    output: str | os.PathLike[str] | None = None,
    *,
    croissant: str | os.PathLike[str] | None = None,
    name: str | None = None,
    description: str | None = None,
    license: str | None = None,
    citation: str | None = None,
    homepage: str | None = None,
    published: str | None = None,
    repository: str | None = None,
    tasks: Sequence[str] = ("reinforcement-learning",),
    tags: Sequence[str] = (),
    format: str | None = None,
    options: Mapping[str, Any] | None = None,
    force: bool = False,
    progress: bool | None = None,
) -> Card:
    """Writes a README for a dataset, with the front matter that dataset hubs read.

    The card names facts that are missing, such as the license. Episodes are read only if the files
    do not declare the number of steps.

    Args:
      path: The dataset: a folder or a file, here or in an object store.
      output: The path of the README; None to write none.
      croissant: The path of Croissant metadata, JSON-LD with the checksums of all files, which
        needs reading all files; None to write none.
      name: The displayed name; the name of the dataset by default.
      description: The description of the dataset.
      license: The license, preferably an SPDX identifier such as "CC-BY-4.0".
      citation: The citation, in BibTeX.
      homepage: The URL of the page of the dataset.
      published: The date of publication for the Croissant metadata, such as "2026-11-22".
      repository: The repository on Hugging Face, "user/name", for the code that loads the dataset.
      tasks: The tasks of the dataset, by the names of Hugging Face, such as "robotics".
      tags: More tags.
      format: The name of the format, if it cannot be recognized.
      options: Options of the format; see `rlds.sources.open`.
      force: Whether to replace existing files.
      progress: Whether to show a progress bar; if None, on a terminal.

    Raises:
      FileExistsError: An output file exists.
      FileNotFoundError: The dataset does not exist.
      ValueError: The dataset is damaged, or its format is unknown; the message has the location.

    >>> import tempfile
    >>> import rlds_tools
    >>> log = tempfile.mkdtemp()
    >>> recording = rlds_tools.record("catch", log, episodes=3)
    >>> result = card(log, license="CC0-1.0")
    >>> result.front_matter["license"], result.front_matter["size_categories"], result.missing
    ('cc0-1.0', ['n<1K'], ('citation',))
    """
    for file in (output, croissant):
        if file is not None and not force and stores.as_path(file).exists():
            raise FileExistsError(
                f"{file} exists, and may have been edited. Pass --force to replace it."
            )
    dataset = inspect(path, format=format, options=options)
    if not isinstance(dataset, Inspection):
        raise ValueError(f"{path} is a single file of records. Give the folder of its dataset.")
    from rlds import sources
    from rlds.editing import lineage_of

    source = sources.formats()[dataset.format].source(path, **(options or {}))
    with show_progress(progress) as bars:
        splits = tuple(_with_totals(source, split, bars) for split in dataset.splits)
    texts = {"description": description, "license": license}
    texts |= {"citation": citation, "homepage": homepage}
    card_content = _CardContent(
        dataset=dataclasses.replace(dataset, splits=splits),
        source=source,
        root=_root(path, source),
        name=name or dataset.name,
        texts={name: value or getattr(source.source_info, name) for name, value in texts.items()},
        published=published,
        repository=repository,
        tasks=tuple(tasks),
        tags=tuple(tags),
        lineage=lineage_of(path, sources.Episodes(source, next(iter(source.splits)))),
    )
    readme_files: list[tuple[str | os.PathLike[str], str]] = []
    if output is not None:
        readme_files.append((output, card_content.readme(_folder_of(output))))
    document = None
    if croissant is not None:
        document = card_content.croissant(_folder_of(croissant), progress)
        readme_files.append((croissant, json.dumps(document, indent=2, ensure_ascii=False) + "\n"))
    for file, content in readme_files:
        write_atomically(file, content.encode(errors="replace"))
    return Card(
        path=os.fspath(path),
        name=card_content.name,
        readme=readme_files[0][1] if output is not None else card_content.readme(),
        front_matter=card_content.front_matter(),
        croissant=document,
        missing=card_content.missing(),
        readme_file=None if output is None else os.fspath(output),
        croissant_file=None if croissant is None else os.fspath(croissant),
    )


def _folder_of(file: str | os.PathLike[str]) -> str:
    file = os.fspath(file)
    return os.path.dirname(file if "://" in file else os.path.abspath(file))


def _root(path: str | os.PathLike[str], source: AnySource) -> epath.Path:
    """Returns the folder of the dataset, or its only file."""
    root = getattr(source, "directory", None) or stores.as_path(path)
    if not root.exists():  # The path is the name of a dataset.
        root = stores.as_path(os.path.commonpath([os.fspath(file) for file in source.inputs()]))
    return root


def _with_totals(source: AnySource, split: InspectedSplit, bars: Progress) -> InspectedSplit:
    """Returns a split with its numbers of episodes and steps; reads the episodes if needed."""
    if split.steps is not None and split.episodes is not None:
        return split
    from rlds import sources

    episodes = sources.Episodes(source, split.name)
    description = f"Counting the steps of {split.name}"
    summaries = bars.track(episodes.summaries(), split.episodes, description=description)
    lengths = [summary.num_steps for summary in summaries]
    return dataclasses.replace(split, episodes=len(lengths), steps=sum(lengths))


@dataclasses.dataclass(frozen=True)
class _CardContent:
    """The content of a dataset card; unknown facts are empty."""

    dataset: Inspection
    source: AnySource
    root: epath.Path
    name: str
    texts: Mapping[str, str]
    published: str | None
    repository: str | None
    tasks: tuple[str, ...]
    tags: tuple[str, ...]
    lineage: Mapping[str, Any] | None

    def missing(self) -> tuple[str, ...]:
        """Returns the names of the facts that are missing."""
        return tuple(fact for fact in _USER_TEXTS if not self.texts[fact])

    def all_tags(self) -> list[str]:
        """Returns the tags of the dataset, with tags of its storage format."""
        kinds = ("rlds", self.dataset.format, self.dataset.file_format)
        return list(dict.fromkeys(filter(None, (*kinds, *self.tags))))

    def front_matter(self) -> dict[str, Any]:
        """Returns the front matter, with the keys of Hugging Face."""
        episodes = sum(split.episodes or 0 for split in self.dataset.splits)
        return {
            **_license_fields(self.texts["license"]),
            "pretty_name": self.name,
            "task_categories": list(self.tasks),
            "tags": self.all_tags(),
            "size_categories": [_size_category(episodes)],
            # The hub's viewer supports only tables, and would show an error.
            **({"viewer": False} if self.dataset.format in _WITHOUT_VIEWER else {}),
        }

    def readme(self, directory: str | None = None) -> str:
        """Returns the README.

        Args:
          directory: The folder of the README in a repository; None if unknown.
        """
        dataset, splits, text = self.dataset, self.dataset.splits, markdown.plain_text
        kind = " · ".join(
            filter(
                None,
                [
                    FORMAT_NAMES.get(dataset.format, dataset.format),
                    dataset.file_format,
                    f"version {dataset.version}" if dataset.version else "",
                    "" if dataset.num_bytes is None else size_text(dataset.num_bytes),
                ],
            )
        )
        sections = [
            f"---\n{_yaml(self.front_matter())}---",
            f"# {text(self.name)}",
            markdown.paragraphs(self.texts["description"]) or "No description is given.",
            _homepage_line(self.texts["homepage"]),
            "## Content",
            f"Format: {text(kind)}",
            "An episode is a sequence of steps as defined by "
            "[RLDS](https://github.com/google-research/rlds). A step holds an observation, the "
            "action taken from it, and the resulting reward and discount. If the final observation "
            "was recorded, the last step holds it, with placeholders for action, reward and "
            "discount.",
            markdown.table(
                ["split", ">episodes", ">steps"],
                [[markdown.code(s.name), f"{s.episodes:,}", f"{s.steps:,}"] for s in splits],
            ),
            "### Fields of a step",
            _field_table(dataset.step_fields),
            *(
                ["### Fields of an episode", _field_table(dataset.episode_fields)]
                if dataset.episode_fields
                else []
            ),
            "## Loading",
            *self._loading_section(directory),
            "## Lineage",
            _lineage_section(dataset.metadata, self.lineage),
            "## Citation",
            markdown.fenced(self.texts["citation"], "bibtex")
            if self.texts["citation"]
            else "No citation is given.",
            "## License",
            text(self.texts["license"])
            or "No license is stated. Ask the authors before you use or share the dataset.",
            *(f"- {text(conflict)}" for conflict in (self.lineage or {}).get("conflicts", ())),
        ]
        return "\n\n".join(filter(None, sections)) + "\n"

    def _loading_section(self, directory: str | None) -> Iterator[str]:
        split = self.dataset.splits[0].name if self.dataset.splits else "train"
        path = _string_literal(self._root_name())
        path_code = f"path = {path}  # Folder of the dataset."
        if self.repository:
            subfolder = self._path_below(directory)
            path_code = (
                "from huggingface_hub import snapshot_download\n\n"
                f'path = snapshot_download({_string_literal(self.repository)}, repo_type="dataset")'
                + (f" + {_string_literal('/' + subfolder)}" if subfolder else "")
            )
        yield markdown.fenced(
            f"{path_code}\n\n"
            "from rlds import sources  # pip install rlds-ecosystem\n\n"
            f"episodes = sources.open(path, {_string_literal(split)})\n"
            "steps = episodes.columns(0)  # Arrays with a leading axis for time.",
            "python",
        )
        if self.dataset.format == "tfds":
            yield "With TensorFlow Datasets:"
            yield markdown.fenced(
                "import tensorflow_datasets as tfds\n\n"
                "builder = tfds.builder_from_directory(path)\n"
                f"dataset = builder.as_dataset(split={_string_literal(split)})\n"
                'steps = next(iter(dataset))["steps"]',
                "python",
            )
        if self.dataset.format == "envlogger":
            yield "With EnvLogger:"
            yield markdown.fenced(
                "import envlogger\n\n"
                "with envlogger.Reader(path) as log:\n"
                "    steps = list(log.episodes[0])",
                "python",
            )

    def _root_name(self) -> str:
        """Returns the path that begins at the folder of the dataset."""
        folders = [*filter(None, os.path.abspath(self.root).split(os.sep))]
        base = self.dataset.name.partition("/")[0]
        start = len(folders) - 1
        if base in folders:
            start -= folders[::-1].index(base)
        return "/".join(folders[start:])

    def _path_below(self, directory: str | None) -> str:
        """Returns the path of the dataset relative to a folder; empty if the dataset is outside."""
        path = os.path.relpath(self.root, directory) if directory else "."
        return "" if path.partition("/")[0] in (".", "..") else path.replace(os.sep, "/")

    def croissant(self, directory: str, progress: bool | None) -> dict[str, Any]:
        """Returns the Croissant metadata, with the checksums of all files.

        Args:
          directory: The folder of the metadata file.
          progress: Whether to show a progress bar.
        """
        from rlds_tools import croissant

        page = f"https://huggingface.co/datasets/{self.repository}" if self.repository else ""
        properties = {
            "name": self.name,
            "description": self.texts["description"] or "No description is given.",
            "license": self.texts["license"],
            "url": self.texts["homepage"] if _is_web_page(self.texts["homepage"]) else page,
            "version": self.dataset.version,
            "datePublished": self.published,
            "citeAs": self.texts["citation"],
            "keywords": self.all_tags(),
            **croissant.provenance(self.lineage),
        }
        subfolder = self._path_below(directory)
        base = f"{page}/resolve/main/{subfolder}".rstrip("/") + "/" if page else None
        paths = self._files()
        files = []
        with show_progress(progress, of_bytes=True) as bars:
            bar = bars.add_task("Checksums", total=sum(path.stat().length for path in paths))
            for path, has_episodes in paths.items():
                num_bytes, sha256 = croissant.checksum(path, lambda size: bars.advance(bar, size))
                name = self._file_name(path)
                url = _url(base + name) if base else _relative_url(path, directory)
                files.append(croissant.File(name, url, num_bytes, sha256, has_episodes))
        dataset = self.dataset
        fields = dataset.episode_fields, dataset.step_fields
        return croissant.describe(properties, dataset.splits, *fields, files)

    def _files(self) -> dict[epath.Path, bool]:
        """Returns all files; the values tell if a file holds episodes."""
        from tfds_files import summary

        paths = dict.fromkeys(map(stores.as_path, self.source.inputs()), True)
        if self.dataset.format == "tfds":
            files = [self.root / summary.INFO_FILE, self.root / summary.FEATURES_FILE]
            files.append(self.root / summary.METADATA_FILE)
            paths.update((file, False) for file in files if file.exists())
        return paths

    def _file_name(self, path: epath.Path) -> str:
        if path != self.root and path.is_relative_to(self.root):
            return str(path.relative_to(self.root).as_posix())
        return str(path.name)


def _license_fields(license: str) -> dict[str, str]:
    if not license:
        return {}
    from rlds.sources.licenses import spdx_of

    if spdx_of(license) in _LICENSES.split():
        return {"license": spdx_of(license)}
    name = re.sub(r"[^a-z0-9.]+", "-", license.lower()).strip("-.") or "other"
    link = {"license_link": license} if license.startswith(("https://", "http://")) else {}
    return {"license": "other", "license_name": name, **link}


def _size_category(num_examples: int) -> str:
    """Returns the hubs' name for a number of examples."""
    index = bisect.bisect_right([10**power for power in range(3, 13)], num_examples)
    if index == 0:
        return f"n<{_SIZES[0]}"
    return f"n>{_SIZES[-1]}" if index == len(_SIZES) else f"{_SIZES[index - 1]}<n<{_SIZES[index]}"


def _yaml(values: Mapping[str, Any]) -> str:
    lines = []
    for name, value in values.items():
        if isinstance(value, list):
            lines += [f"{name}:", *(f"- {_scalar(item)}" for item in value)]
        else:
            lines.append(f"{name}: {_scalar(value)}")
    return "".join(f"{line}\n" for line in lines)


def _scalar(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else markdown.yaml_text(value)


def _field_table(fields: Sequence[InspectedField]) -> str:
    code, text = markdown.code, markdown.plain_text
    rows = [
        [code(field.name), text(field.dtype), code(shape_text(field.shape)), text(field.notes)]
        for field in fields
    ]
    columns = ["field", "dtype", "shape", "notes"]
    if not any(field.notes for field in fields):
        columns, rows = columns[:-1], [row[:-1] for row in rows]
    return markdown.table(columns, rows)


def _lineage_section(metadata: Mapping[str, Any], lineage: Mapping[str, Any] | None) -> str:
    from rlds_ecosystem.model.nests import named_leaves
    from rlds_tools.editing import describe_lineage

    origin = ""
    if lineage is not None:
        lines = [f"by {lineage['by']}", *describe_lineage(lineage)]
        origin = markdown.fenced("\n".join(lines), "text")
    metadata = {name: value for name, value in metadata.items() if name != "lineage"}
    if not metadata:
        return origin or "The origin of the data is not recorded."
    rows = []
    for name, value in named_leaves(metadata):
        content = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        rows.append([markdown.code(name), markdown.plain_text(shorten(content, _MAX_CELL_LENGTH))])
    table = markdown.table(["recorded", "value"], rows)
    return f"{origin}\n\n{table}" if origin else table


def _string_literal(text: str) -> str:
    """Returns text as a Python literal in double quotes."""
    return json.dumps(text, ensure_ascii=False)


def _is_web_page(url: str) -> bool:
    return url.startswith(("http://", "https://"))


def _homepage_line(url: str) -> str:
    """Returns a link to a web page; plain text for other URLs, such as `javascript:`."""
    if not url:
        return ""
    return f"Homepage: {f'<{_url(url)}>' if _is_web_page(url) else markdown.plain_text(url)}"


def _url(url: str) -> str:
    return urllib.parse.quote(url, safe=":/?#[]@!$&'()*+,;=%~")


def _relative_url(path: epath.Path, directory: str) -> str:
    if "://" in os.fspath(path):
        return _url(os.fspath(path))
    return _url(os.path.relpath(path, directory).replace(os.sep, "/"))
