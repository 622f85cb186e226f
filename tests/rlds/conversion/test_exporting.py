"""Common behaviour of exports, with a minimal format."""

import dataclasses
import os
from pathlib import Path

import numpy as np
import pytest
import raw_npz

import rlds.sources
from rlds.sources import (
    Episodes,
    Export,
    Field,
    Format,
    Placement,
    Source,
    SourceError,
    export,
)
from rlds.sources.sidecar import Sidecar, SidecarWriter, StoredSidecar
from rlds.sources.source import Fields
from rlds.sources.testing import differences
from rlds.sources.writing import sidecar_placements

NpzSource = rlds.sources.formats()["npz"].load()


class TableSource(Source):
    """A format with one file for each of two arrays of an episode."""

    def __init__(self, path):
        self._path = Path(path)
        self._folder = StoredSidecar.in_folder(self._path)
        self._sidecar = self._folder.sidecar

    @property
    def fields(self):
        return Fields(dict(self._sidecar.steps), dict(self._sidecar.episode))

    def inputs(self):
        return sorted(self._path.iterdir())

    def num_episodes(self, split):
        return len(self._folder)

    def key(self, split, index):
        return str(index)

    def read(self, split, index, fields=None, rows=slice(None)):
        columns = {
            path: np.load(self._path / f"{index}.{name}.npy")
            for path, name in self._sidecar.paths.items()
        }
        return self._sidecar.unpack(self._folder.read(split, index), columns)


class TableExport(Export):
    """Writes the format."""

    format = "table"

    def __init__(self, episodes, *, complete: bool = False):
        super().__init__(episodes)
        names = {"observation/joints": "o", "action": "a"}
        self.sidecar = Sidecar.create(episodes, names, ["observation/joints"] if complete else [])

    def placements(self):
        return sidecar_placements(self.sidecar)

    def write(self, path):
        path.mkdir()
        with SidecarWriter.in_folder(path, self.sidecar) as sidecar:
            for index, episode in enumerate(self.iter_episodes()):
                sidecar.add(episode)
                for field, column in self.sidecar.rows(episode).items():
                    np.save(path / f"{index}.{self.sidecar.paths[field]}.npy", column)


@pytest.fixture
def table(monkeypatch):
    """Registers the format."""
    format = Format("table", f"{__name__}:TableSource", f"{__name__}:TableExport")
    all_formats = {**rlds.sources.formats(), "table": format}
    for module in ("sources.opening", "sources.writing", "conversion.exporting"):
        monkeypatch.setattr(f"rlds.{module}.formats", lambda: all_formats)


@pytest.mark.slow
@pytest.mark.parametrize("complete", [False, True])
def test_an_export_reads_back_equal_and_overwrites_nothing(table, tmp_path, complete):
    files = raw_npz.sample()
    files["short.npz"] = raw_npz.episode(2, seed=4)
    path = raw_npz.write_folder(tmp_path / "raw", files)
    output = export(path, "table", tmp_path / "table", complete=complete)
    assert (output.num_episodes, output.num_steps) == (4, 4 + 6 + 5 + 3)
    assert {placement.how for placement in output.placements} == {"exact", "sidecar"}
    copies = rlds.sources.open(output.path, format="table")
    for episode, copy in zip(Episodes(NpzSource(path)), copies):
        assert list(differences(episode, copy)) == []
        assert episode.steps["note"].tolist() == copy.steps["note"].tolist()
        assert episode.origin == copy.origin
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["raw", "table"]
    with pytest.raises(FileExistsError, match="exists and is not overwritten"):
        export(path, "table", tmp_path / "table")


def test_odd_episodes_survive_a_round_trip(table):
    """Flags that break the rules, text with zeros, values of any length, images as files."""
    sidecar = Sidecar(
        {"image": Field(np.uint8, (2, 2, 3), encoding="png"), "text": Field(str), "x": Field("f8")},
        {"seed": Field(np.int64), "words": Field(bytes, (None,))},
        {"x": "x"},
    )
    png = bytes.fromhex("89504e470d0a1a0a") + b"\x00 rest"
    steps = {
        "image": np.array([png, png, png], object),
        "text": np.array(["", "a\0", "ü"], object),
        "x": np.array([np.nan, -0.0, np.inf]),
        "is_first": np.array([False] * 3),
        "is_last": np.array([False] * 3),
        "is_terminal": np.array([False, True, True]),
    }
    metadata = {"seed": np.int64(7), "words": np.array([b"a\0", b""], object)}
    episode = rlds.sources.SourceEpisode(
        "k", steps, rlds.sources.Origin("f", 0, 3), truncated=True, metadata=metadata
    )
    actual = Sidecar.from_json(sidecar.to_json()).unpack(
        sidecar.pack(episode), {"x": steps["x"][:2]}
    )
    assert list(differences(episode, actual)) == []
    changed = dataclasses.replace(actual, key="other", metadata={"seed": np.int64(7)})
    assert list(differences(episode, changed)) == [
        "key: 'k' became 'other'",
        "words: missing",
    ]


def test_failed_exports_leave_no_files(table, tmp_path):
    path = raw_npz.write_folder(tmp_path / "raw", raw_npz.sample())
    with pytest.raises(ValueError, match=r"which has no writer; expected one of .*table"):
        export(path, "floppy", tmp_path / "made")
    with pytest.raises(TypeError, match="no option 'complet'; its options are: complete=true"):
        export(path, "table", tmp_path / "made", complet=True)
    (path / "episode_2.npz").write_bytes(b"PK")
    with pytest.raises(SourceError, match=r"episode_2\.npz") as error:
        export(path, "table", tmp_path / "made")
    assert "To skip unreadable episodes, pass skip_damaged=True" in error.value.__notes__[0]
    assert [entry.name for entry in tmp_path.iterdir()] == ["raw"]
    with pytest.warns(UserWarning, match="1 episode is damaged and left out"):
        output = export(path, "table", tmp_path / "made", skip_damaged=True)
    assert (output.num_episodes, len(output.left_out)) == (2, 1)
    for name, why in (("train[1:2]", r"episode_2\.npz"), ("train[:0]", "has no episodes to write")):
        with pytest.raises(ValueError, match=why):
            export(path, "table", tmp_path / "none", split=name, skip_damaged=True)
    assert not (tmp_path / "none").exists()


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="There is no full disk.")
def test_an_export_to_a_full_disk_names_the_target_and_leaves_nothing(table, tmp_path, monkeypatch):
    def write(self, path):
        path.mkdir()
        with open("/dev/full", "wb", buffering=0) as file:
            file.write(b"episodes")

    path = raw_npz.write_folder(tmp_path / "raw", raw_npz.sample())
    monkeypatch.setattr(TableExport, "write", write)
    with pytest.raises(OSError, match=f"No space left .*: '{tmp_path / 'made'}'\n") as error:
        export(path, "table", tmp_path / "made")
    assert "Free disk space, or write to another disk" in error.value.__notes__[0]
    assert [entry.name for entry in tmp_path.iterdir()] == ["raw"]


def test_losses_are_refused_before_anything_is_written(table, tmp_path, monkeypatch):
    path = raw_npz.write_folder(tmp_path / "raw", raw_npz.sample())
    lost = Placement("steps/goal", "", "lost", "the format has no goals")
    monkeypatch.setattr(TableExport, "placements", lambda self: [lost])
    with pytest.raises(ValueError, match=r"steps/goal .lost: the format has no goals"):
        export(path, "table", tmp_path / "made")
    assert export(path, "table", tmp_path / "made", allow_loss=True).placements == (lost,)


def test_verification_detects_exports_that_change_values(table, tmp_path, monkeypatch):
    path = raw_npz.write_folder(tmp_path / "raw", raw_npz.sample())
    real = Sidecar.row

    def row(self, episode):
        steps = {**episode.steps, "reward": episode.steps["reward"] + 1}
        return real(self, dataclasses.replace(episode, steps=steps))

    monkeypatch.setattr(Sidecar, "row", row)
    with pytest.raises(ValueError, match=r"episode 0 .*steps/reward: values differ"):
        export(path, "table", tmp_path / "made")
    assert not (tmp_path / "made").exists()
