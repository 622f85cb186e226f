"""`rlds card`: front matter, sections, code that runs, Croissant, hostile strings."""

import hashlib
import json
import re
from html import unescape
from pathlib import Path

import numpy as np
import pytest
import raw_d4rl
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

import rlds.sources
import rlds_tools
import tfds_files
from rlds_tools import markdown
from rlds_tools.command_line import main

HOSTILE_TEXT = "a|b `c` *d* <script>\"'\\ [x](y) # _e_ \x1b[2J é😀\n---\n```\nlicense: mit"


def split_card(card):
    """Returns the parsed front matter, and the body."""
    begin, front, body = card.readme.split("---\n", 2)
    assert not begin
    return yaml.safe_load(front), body


def run_code(card, monkeypatch, directory):
    """Runs the code of a card in a folder; returns the number of code blocks, and their names."""
    monkeypatch.chdir(directory)
    blocks = re.findall(r"```python\n(.*?)```", card.readme, re.DOTALL)
    names = {}
    for block in blocks:
        exec(block, names)
    return len(blocks), names


def test_a_card_of_a_log_has_its_counts_and_fields(log, tmp_path, monkeypatch):
    result = rlds_tools.card(log, license="CC-BY-4.0", tags=["catch"], name="Catch: a game")
    front, body = split_card(result)
    assert front == result.front_matter
    assert front == {
        "license": "cc-by-4.0",
        "pretty_name": "Catch: a game",
        "task_categories": ["reinforcement-learning"],
        "tags": ["rlds", "envlogger", "catch"],
        "size_categories": ["n<1K"],
        "viewer": False,
    }
    assert body.startswith("\n# Catch: a game\n")
    assert "| `train` | 3 | 30 |" in body
    assert "| `observation` | float32 | `(10, 5)` |" in body
    assert "The origin of the data is not recorded." in body
    assert "No citation is given." in body
    assert result.missing == ("citation",)
    assert str(Path(log).parent) not in result.readme
    num_blocks, names = run_code(result, monkeypatch, Path(log).parent)
    assert num_blocks == 2
    assert names["steps"][0].timestep.first()
    assert len(names["episodes"]) == 3


def test_card_of_an_undocumented_dataset_names_missing_sections(dataset, monkeypatch):
    result = rlds_tools.card(dataset)
    front, body = split_card(result)
    assert "license" not in front
    assert result.missing == ("description", "license", "citation")
    assert "No license is stated." in body
    assert "| `train` | 3 | 43 |" in body  # Counted; no file holds the total.
    assert "| `action` | int64 | `()` | Which way to go. |" in body
    assert "| `observation/camera` | uint8 | `(8, 8, 3)` | PNG |" in body
    without_tfds = result.readme.partition("With TensorFlow")[0]
    monkeypatch.chdir(Path(dataset).parent.parent)
    names = {}
    exec(re.findall(r"```python\n(.*?)```", without_tfds, re.DOTALL)[0], names)
    assert names["path"] == "tiny/1.0.0"
    assert names["steps"]["observation"]["camera"].shape == (5, 8, 8, 3)
    assert "tfds.builder_from_directory(path)" in body


def test_code_in_a_card_for_a_repository_downloads_it(log, tmp_path):
    folder = Path(log).parent
    result = rlds_tools.card(
        log, tmp_path / "README.md", croissant=tmp_path / "c.json", repository="me/catch"
    )
    assert 'snapshot_download("me/catch", repo_type="dataset")\n' in result.readme
    metadata = result.croissant["distribution"][0]
    assert metadata["contentUrl"].startswith(
        "https://huggingface.co/datasets/me/catch/resolve/main/"
    )
    try:
        result = rlds_tools.card(log, folder / "README.md", repository="me/catch")
    finally:
        (folder / "README.md").unlink(missing_ok=True)
    assert 'repo_type="dataset") + "/catch"\n' in result.readme


def test_only_web_addresses_become_links(dataset, tmp_path):
    result = rlds_tools.card(
        dataset, homepage="javascript:alert(1)", croissant=tmp_path / "a.json", repository="me/a"
    )
    assert "Homepage: javascript:alert(1)" in result.readme
    assert result.croissant["url"] == "https://huggingface.co/datasets/me/a"
    result = rlds_tools.card(dataset, homepage="https://x.org/a b")
    assert "Homepage: <https://x.org/a%20b>" in result.readme


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::PendingDeprecationWarning")
def test_croissant_files_are_valid_and_load(dataset, log, tmp_path):
    mlcroissant = pytest.importorskip("mlcroissant")
    for path, kind in [(dataset, "tfrecord"), (log, "riegeli")]:
        file = tmp_path / f"{kind}.json"
        result = rlds_tools.card(
            path,
            croissant=file,
            license="MIT",
            citation="@misc{x}",
            homepage="https://x.org",
            published="2026-11-22",
        )
        assert json.loads(file.read_text()) == result.croissant
        loaded = mlcroissant.Dataset(jsonld=str(file))
        assert not loaded.metadata.issues.errors
        # A log has no version.
        recommended = [re.search(r"\w+\"", text)[0] for text in loaded.metadata.issues.warnings]
        assert recommended == (['version"'] if kind == "riegeli" else [])
        steps = 30 if kind == "riegeli" else 43
        expected = {"splits/name": "train", "splits/episodes": 3, "splits/steps": steps}
        assert list(loaded.records("splits")) == [expected]
        fields = {field.name: field for field in loaded.metadata.record_sets[2].fields}
        assert fields["action"].data_type is np.int64
        assert fields["is_last"].data_type is bool
        files = result.croissant["distribution"][:-1]
        for entry in files:
            content = (tmp_path / entry["contentUrl"]).read_bytes()
            assert entry["sha256"] == hashlib.sha256(content).hexdigest()
            assert entry["contentSize"] == f"{len(content)} B"
        paths = [each for each in Path(path).rglob("*") if each.is_file()]
        assert len(files) == len(paths)
    assert fields["observation"].array_shape_tuple == (10, 5)
    # The provenance of a converted dataset.
    shards = rlds.sources.export(log, "webdataset", tmp_path / "first").path
    converted = rlds.sources.export(shards, "tfds", tmp_path / "made").path
    result = rlds_tools.card(converted, croissant=tmp_path / "made.json")
    assert not mlcroissant.Dataset(jsonld=result.croissant_file).metadata.issues.errors
    (activity,) = result.croissant["prov:wasGeneratedBy"]
    assert activity["prov:label"] == "convert format: tfds"
    assert activity["prov:wasAssociatedWith"]["prov:label"].startswith("rlds-ecosystem ")
    (origin,) = result.croissant["prov:wasDerivedFrom"]
    assert origin["identifier"].startswith("files:sha256:")
    assert origin["prov:wasDerivedFrom"][0]["prov:label"] == Path(log).name
    assert "convert format: webdataset" in result.readme


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::PendingDeprecationWarning")
def test_croissant_describes_fields_of_all_kinds(tmp_path):
    mlcroissant = pytest.importorskip("mlcroissant")
    golden = Path(__file__).parents[1] / "golden" / "tfds_4_9_10" / "tfrecord"
    file = tmp_path / "golden.json"
    result = rlds_tools.card(golden, croissant=file)
    assert "| `test` | 2 | 4 |" in result.readme
    assert "| `complex` | complex64 | `(2,)` | stored as bytes |" in result.readme
    loaded = mlcroissant.Dataset(jsonld=str(file))
    assert not loaded.metadata.issues.errors
    [_, episodes, steps] = loaded.metadata.record_sets
    assert "complex" not in {field.name for field in episodes.fields}  # Croissant has no such type.
    shapes = {field.name: field.array_shape_tuple for field in steps.fields}
    assert shapes["observation/of_any_size"] == (-1, -1, 1)
    assert len(list(loaded.records("splits"))) == 2


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::PendingDeprecationWarning")
def test_hostile_strings_never_become_markup(tmp_path):
    mlcroissant = pytest.importorskip("mlcroissant")
    tensor = tfds_files.Tensor(dtype=np.dtype(np.float32), doc=HOSTILE_TEXT)
    step = tfds_files.Features(features={"a|b `c` <d> é": tensor})
    features = tfds_files.Features(features={"steps": tfds_files.Dataset(feature=step)})
    directory = tmp_path / "nasty" / "1.0.0"
    columns = {"a|b `c` <d> é": np.ones(3, np.float32)}  # Without flags, as in some datasets.
    with tfds_files.append_to(
        directory, features, "nasty", description=HOSTILE_TEXT, metadata={"made|by": HOSTILE_TEXT}
    ) as writer:
        writer.add({"steps": columns})
    result = rlds_tools.card(
        directory,
        croissant=tmp_path / "c.json",
        license=HOSTILE_TEXT,
        citation=HOSTILE_TEXT,
        name=HOSTILE_TEXT,
        tags=[HOSTILE_TEXT],
    )
    front, body = split_card(result)
    assert front["pretty_name"] == front["tags"][-1] == HOSTILE_TEXT
    assert front["license"] == "other"
    assert re.fullmatch(r"[a-z0-9.-]+", front["license_name"])
    assert "<script>" not in body.partition("## Citation")[0]
    assert "<script>" not in result._repr_html_()
    assert "\x1b" not in result.readme
    [row] = [line for line in body.splitlines() if line.startswith("| ``a")]
    assert row.startswith("| ``a\\|b `c` <d> é`` | float32 |")
    assert len(re.findall(r"(?<!\\)\|", row)) == 5
    # The fence is longer than any in the citation.
    assert "````bibtex\n" in body
    assert "\nlicense: mit\n````" in body
    assert re.findall("<h[1-6]>", render(body)) == ["<h1>", "<h2>", "<h3>", *["<h2>"] * 4]
    assert not mlcroissant.Dataset(jsonld=str(tmp_path / "c.json")).metadata.issues.errors


READER = MarkdownIt("commonmark").enable("table")


def render(text):
    """Returns the HTML of a Markdown text."""
    return READER.render(text)


def visible_text(html):
    """Returns the text that a browser shows."""
    return " ".join(unescape(re.sub("<[^>]*>", "", html)).split())


TEXTS = st.one_of(
    st.text("ab1 -+#>=.)(*_`[]!|~\\<&;:/\n\t'\"$%@{}", max_size=12),
    st.text(max_size=8),
    st.sampled_from(["no", "1.0", "1e3", "0x1", "null", "2001-01-01", "a: b", "- x", HOSTILE_TEXT]),
)


@given(TEXTS)
@settings(max_examples=200, deadline=None, derandomize=True)
def test_any_text_is_shown_unchanged(text):
    assert yaml.safe_load(f"a: {markdown.yaml_text(text)}") == {
        "a": text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    }
    visible = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    paragraph = render(markdown.plain_text(text))
    assert visible_text(paragraph) == visible
    assert re.fullmatch(r"(<p>[^<]*</p>\n)?", paragraph)
    row = render(markdown.table(["a", "b"], [[markdown.plain_text(text), markdown.code(text)]]))
    cells = re.findall(r"<td>(.*?)</td>", row)
    assert [visible_text(cell) for cell in cells] == [visible, visible]
    block = render(markdown.fenced(text))
    assert block.startswith("<pre><code>")
    assert block.count("<") == 4


def test_existing_files_stay_without_force(log, tmp_path):
    readme = tmp_path / "README.md"
    readme.write_text("mine")
    for arguments in {"output": readme}, {"croissant": readme}:
        with pytest.raises(FileExistsError, match=r"README\.md exists"):
            rlds_tools.card(log, **arguments)
    assert readme.read_text() == "mine"
    rlds_tools.card(log, readme, force=True)
    assert readme.read_text().startswith("---\n")


def test_the_code_in_a_card_of_a_single_file_runs(tmp_path, monkeypatch):
    pytest.importorskip("h5py")
    file = raw_d4rl.mujoco_v2(tmp_path / "hopper_medium-v2.hdf5")
    result = rlds_tools.card(file, croissant=tmp_path / "c.json")
    assert result.missing == ("license",)
    assert "fu2020d4rl" in result.readme
    _, names = run_code(result, monkeypatch, tmp_path)
    assert names["path"] == file.name
    counts = len(names["episodes"]), sum(episode.num_steps for episode in names["episodes"])
    assert f"| `train` | {counts[0]:,} | {counts[1]:,} |" in result.readme
    assert [entry["name"] for entry in result.croissant["distribution"]] == [file.name, "data"]


def test_card_command_prints_or_writes_and_overwrites_nothing(
    dataset, tmp_path, capsys, monkeypatch
):
    def run(*arguments):
        with pytest.raises(SystemExit) as exit:
            main(["card", *arguments])
        return exit.value.code

    monkeypatch.chdir(tmp_path)
    Path("cite.bib").write_text("@misc{tiny}")
    assert run(dataset, "--citation", "cite.bib") == 0
    text = capsys.readouterr().out
    assert text == rlds_tools.card(dataset, citation="@misc{tiny}").readme
    assert run(dataset, "-o", "README.md", "--task", "robotics", "--license", "MIT") == 0
    output = capsys.readouterr().out
    assert output.startswith("tiny: wrote README.md\nmissing: description, citation;")
    assert output.splitlines()[-1].startswith("next: ")
    assert "- robotics\ntags:" in Path("README.md").read_text()
    assert run(dataset, "-o", "README.md") == 1
    assert "--force" in capsys.readouterr().err
    assert run(dataset, "--json") == 0
    assert json.loads(capsys.readouterr().out)["front_matter"]["size_categories"] == ["n<1K"]
    assert run(str(tmp_path / "nowhere")) == 1
