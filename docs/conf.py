"""Settings of the documentation site, which `make docs` builds."""

import contextlib
import enum
import inspect
import os
import re
import shutil
import sys
import tempfile
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any

from google.protobuf.message import Message
from sphinx.application import Sphinx
from sphinx.domains.python import PyObject
from sphinx.errors import PycodeError
from sphinx.pycode import ModuleAnalyzer

sys.path.insert(0, str(Path(__file__).parent))
from commands import as_markdown

import rlds_ecosystem
import rlds_tools
from rlds.sources import AnySource, Source, Stream
from tfds_builders.quiet import quiet_libraries

# The modules whose docstrings are read load TensorFlow, which says much.
quiet_libraries()

DOCS = Path(__file__).parent
ROOT = DOCS.parent
REPOSITORY = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]["Source"]

project = "RLDS"
author = copyright = "The authors of rlds-ecosystem"
version = release = rlds_ecosystem.version()

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "sphinx_design",
]
# A notebook is executed again if its code changes. `NB_EXECUTION_MODE=off` builds pages without
# figures. `force` executes all notebooks: use it after changes of the library.
nb_execution_mode = os.environ.get("NB_EXECUTION_MODE", "cache")
nb_execution_cache_path = str(ROOT / "build" / "notebooks")
nb_execution_in_temp = True
nb_output_stderr = "remove"  # Banners of libraries. Errors end the build.
nb_execution_raise_on_error = True
nb_execution_timeout = 900  # Seconds for a cell.

myst_enable_extensions = ["colon_fence", "deflist", "fieldlist"]
myst_heading_anchors = 4

html_theme = "furo"
html_title = "RLDS"
html_show_sourcelink = False
html_copy_source = False
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_extra_path = ["_sample"]
html_search_scorer = str(DOCS / "search_scores.js")
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#1a5fb4", "color-brand-content": "#1a5fb4"},
    "dark_css_variables": {"color-brand-primary": "#82b4f2", "color-brand-content": "#82b4f2"},
}

# What the copy button leaves out: the prompts of Python and of a shell.
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

default_role = "py:obj"  # Docstrings put names between single backticks, as Markdown does.
autodoc_default_options = {"members": True, "member-order": "bysource"}
autodoc_typehints_format = "short"
toc_object_entries_show_parents = "hide"
python_maximum_signature_line_length = 80
napoleon_use_ivar = True


def setup(app: Sphinx) -> None:
    """Fetches kind is outside of docs/, and adapts autodoc to the docstrings of this project."""
    app.connect("config-inited", _make_sample_report)
    app.connect("builder-inited", _copy_notebooks)
    app.connect("source-read", _read_page)
    app.connect("autodoc-skip-member", _skip_member)
    app.connect("autodoc-process-docstring", _prepare_docstring, priority=400)  # Before napoleon.
    for field in PyObject.doc_field_types:
        if field.name == "variable":
            field.label = "Attributes"


def _make_sample_report(app: Sphinx, config: Any) -> None:
    (DOCS / "_sample").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        rlds_tools.record("CartPole-v1", f"{folder}/cartpole", episodes=50, seed=0, progress=False)
        report = rlds_tools.report(f"{folder}/cartpole", progress=False)
        report.save(DOCS / "_sample" / "sample_report.html")  # `report.html` is a page.


def _copy_notebooks(app: Sphinx) -> None:
    shutil.rmtree(DOCS / "notebooks", ignore_errors=True)
    shutil.copytree(
        ROOT / "examples" / "notebooks",
        DOCS / "notebooks",
        ignore=lambda folder, names: [name for name in names if not name.endswith(".ipynb")],
    )


def _read_page(app: Sphinx, page: str, source: list[str]) -> None:
    """Makes links to files outside of docs/ links to the repository."""
    folder = (DOCS / page).parent
    if page == "changelog":
        app.env.note_dependency(str(ROOT / "CHANGELOG.md"))
        source[0] = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
        folder = ROOT

    if page == "cli":
        source[0] += as_markdown()

    def link(match: re.Match[str]) -> str:
        file = (folder / match[1]).resolve()
        if file == ROOT / "examples" / "notebooks" / "README.md":
            file = DOCS / "notebooks.md"
        if file.is_relative_to(DOCS):
            return f"]({os.path.relpath(file, (DOCS / page).parent)}{match[2] or ''})"
        if file.is_relative_to(ROOT) and file.exists():
            return f"]({REPOSITORY}/blob/main/{file.relative_to(ROOT)}{match[2] or ''})"
        return match[0]

    source[0] = re.sub(r"\]\(([\w./-]+)(#[\w-]+)?\)", link, source[0])


def _skip_member(
    app: Sphinx, kind: str, name: str, obj: Any, skip: bool, options: Any
) -> bool | None:
    if kind == "class" and isinstance(obj, type) and issubclass(obj, Message):
        return True  # A nested protocol buffer.
    if kind == "class" and name in {*dir(Source), *dir(Stream)} and _is_of_a_format(obj):
        return True  # `Source` says kind it does.
    # A package's names are on its page, with a docstring or without; so are the values of enums.
    is_exported = kind == "module" and name not in (options.exclude_members or ())
    return False if is_exported or isinstance(obj, enum.Enum) else None


def _is_of_a_format(member: Any) -> bool:
    function = getattr(member, "fget", member)
    module, name = (getattr(function, key, "") for key in ("__module__", "__qualname__"))
    owner = getattr(sys.modules.get(module), name.partition(".")[0], None)
    return isinstance(owner, type) and issubclass(owner, AnySource) and module != Source.__module__


def _prepare_docstring(
    app: Sphinx, kind: str, name: str, obj: Any, options: Any, lines: list[str]
) -> None:
    if kind == "module":
        _find_docs_of_constants(obj)
    # Four more spaces after an empty line are code, as in Markdown.
    for index in range(len(lines) - 1, 1, -1):
        before = next(line for line in reversed(["-", *lines[:index]]) if line.strip())
        if not lines[index - 1].strip() and _indent(lines[index]) >= _indent(before) + 4:
            lines[index:index] = [" " * _indent(before) + "::", ""]
    if kind in {"attribute", "data", "property"}:
        lines[:0] = [
            "..",
            "",
        ]  # Otherwise napoleon takes words before a colon for a type.


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip()) if line.strip() else 0


def _find_docs_of_constants(package: ModuleType) -> None:
    """Gives autodoc the constants that a package has from its modules, with their docstrings."""
    inside = [name for name in sys.modules if name.startswith(f"{package.__name__}.")]
    docs = {}
    for module in [package.__name__, *inside]:
        with contextlib.suppress(PycodeError):  # It is compiled.
            docs.update(ModuleAnalyzer.for_module(module).find_attr_docs())
    of_package = ModuleAnalyzer.for_module(package.__name__).find_attr_docs()
    for name in getattr(package, "__all__", ()):
        exported = getattr(package, name)
        if not (inspect.isroutine(exported) or isinstance(exported, type | ModuleType)):
            of_package["", name] = docs.get(("", name), [""])
