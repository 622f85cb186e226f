"""Static files of the pages, which no build step checks."""

import fnmatch
import hashlib
import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[3]
STATIC = ROOT / "rlds_creator" / "static"
FILES = sorted(path for path in STATIC.rglob("*") if path.is_file())
VENDOR = STATIC / "vendor"
OWN_MODULES = [path for path in FILES if path.suffix == ".js" and VENDOR not in path.parents]
# Imports of modules, and addresses of files that are loaded later.
_IMPORT = re.compile(r"""(?:\bfrom\s*|\bimport\s*\(?\s*)(["'`])([^"'`\n]+)\1""")


def read_imports(module):
    # Types come from declarations, which browsers do not load: `tsc` checks these.
    text = re.sub(r"^/\*\* @import .*$", "", module.read_text(), flags=re.M)
    return [name for _, name in _IMPORT.findall(text)]


def test_vendored_files_are_those_that_were_reviewed():
    lines = (VENDOR / "SHA256SUMS").read_text().splitlines()
    sums = {name: digest for digest, name in (line.split() for line in lines)}
    digests = {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in VENDOR.iterdir()
        if path.name not in ("SHA256SUMS", "README.md") and path.suffix != ".ts"
    }
    assert digests == sums
    assert {name for name in sums if name.endswith(".LICENSE")} == {
        "htm.LICENSE",
        "preact.LICENSE",
        "uplot.LICENSE",
    }


def test_imports_name_files_and_exports_of_the_package():
    for module in (path for path in FILES if path.suffix == ".js"):
        for name in read_imports(module):
            if "${" not in name:
                assert name.startswith(("./", "../")), f"{name} needs an import map or a network"
                assert (module.parent / name).resolve() in FILES, name
    for module in OWN_MODULES:
        for names, name in re.findall(
            r'^import\s*\{([^}]*)\}\s*from\s*"([^"]+)"', module.read_text(), re.M
        ):
            text = (module.parent / name).resolve().read_text()
            exported = set(re.findall(r"export (?:async )?(?:function|const|class) (\w+)", text))
            for group in re.findall(r"export\s*\{([^}]*)\}", text):
                exported |= {item.split(" as ")[-1].strip() for item in group.split(",")}
            for item in filter(str.strip, names.split(",")):
                name_of_import = item.split(" as ")[0].strip()
                assert name_of_import in exported, f"{module.name}: {name} has no {name_of_import}"


def test_addresses_have_pages():
    text = (STATIC / "app.js").read_text()
    pages = set(re.findall(r'page: "(\w+)"', text))
    styles = set(re.findall(r'"(\w+\.css)"', text))
    names = {path.relative_to(STATIC).as_posix() for path in FILES}
    assert len(pages) > 5
    assert {f"pages/{page}.js" for page in pages} == {
        name for name in names if name.startswith("pages/")
    }
    assert styles <= names
    for page in pages:
        assert re.search(r"^export default ", (STATIC / "pages" / f"{page}.js").read_text(), re.M)


def test_text_never_becomes_markup_and_nothing_is_loaded_from_elsewhere():
    # `style=${{...}}` sets properties, which the policy of the server allows; text would not work.
    banned = re.compile(
        r"""dangerouslySetInnerHTML|innerHTML|outerHTML|insertAdjacentHTML|document\.write"""
        r"""|\beval\(|new Function|\bstyle=(?!\$)["'\w]|\bon[a-z]+=["']|https?://(?!www\.w3\.org)"""
    )
    for module in OWN_MODULES:
        assert not banned.search(module.read_text()), module.name
    page = (STATIC / "index.html").read_text()
    assert not re.search(
        r"<script(?![^>]*\bsrc=)|<style|\sstyle=|\son\w+=|javascript:|https?://", page
    )
    for path in FILES:
        if path.suffix == ".css":
            assert not re.search(r"@import|https?://|url\((?![\"']?data:)", path.read_text())


def test_every_file_is_in_the_package():
    # A missing file is only missing in wheels, where no other test would notice.
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    patterns = settings["tool"]["setuptools"]["package-data"]
    for path in FILES:
        package = ".".join(path.parent.relative_to(ROOT).parts)
        package_patterns = [*patterns["*"], *patterns.get(package, [])]
        assert any(fnmatch.fnmatch(path.name, pattern) for pattern in package_patterns), path


def test_lines_have_at_most_120_characters():
    declarations = STATIC.rglob("*.d.ts")
    long_lines = [
        f"{module.relative_to(STATIC)}:{line_number}"
        for module in [*OWN_MODULES, *declarations]
        for line_number, line in enumerate(module.read_text().splitlines(), 1)
        if len(line) > 120
    ]
    assert not long_lines
