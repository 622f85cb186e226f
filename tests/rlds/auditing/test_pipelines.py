"""Audits on Apache Beam equal those of processes, and leave no files."""

import json

import audited_data
import numpy as np
import pytest

import rlds.sources
from rlds.auditing import audit
from rlds_tools.command_line.commands import run

IN_THREADS = ["--direct_num_workers=2", "--direct_running_mode=multi_threading"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Forty episodes: one is late, and one is unreadable."""
    folder = tmp_path_factory.mktemp("pipelines") / "arm"
    episodes = audited_data.make_episodes("arm", 31, 40)
    episodes[5] = episodes[5].changed(state=episodes[5].state[2:], action=episodes[5].action[:-2])
    audited_data.write(folder, episodes)
    (folder / "0009.npz").write_bytes(b"no archive")
    return folder


def make_comparable(report):
    """Returns the attributes of an audit in a comparable form."""
    return {
        name: {key: np.asarray(it).tobytes() for key, it in value.items()}
        if name in ("scores", "ranks")
        else value
        for name, value in vars(report).items()
    }


@pytest.mark.parametrize(
    "options",
    [
        IN_THREADS,
        pytest.param(
            ["--direct_num_workers=2", "--direct_running_mode=multi_processing"],
            marks=pytest.mark.slow,
        ),
    ],
)
def test_audit_on_beam_equals_that_of_processes(folder, options, tmp_path):
    pytest.importorskip("apache_beam")
    draft = tmp_path / "new" / "draft"
    episodes = rlds.sources.open(folder)
    alone = audit(episodes, jobs=1)
    assert [*alone.unreadable] == [9]
    assert [finding.episode for finding in alone.findings] == [5]
    progress = []
    report = audit(
        episodes,
        jobs=1,
        progress=lambda *pair: progress.append(pair),
        beam_runner="DirectRunner",
        beam_options=options,
        draft=draft,
    )
    assert make_comparable(report) == make_comparable(alone)
    assert progress[-1] == (40, 40)
    assert not [*draft.iterdir()]


def test_interruption_leaves_no_files_in_the_draft(folder, tmp_path):
    pytest.importorskip("apache_beam")

    def interrupt(*_):
        assert [*tmp_path.iterdir()]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        audit(
            rlds.sources.open(folder),
            progress=interrupt,
            beam_runner="DirectRunner",
            draft=tmp_path,
        )
    assert not [*tmp_path.iterdir()]


def test_drafts_must_be_local_and_need_a_runner(folder, capsys):
    episodes = rlds.sources.open(folder)
    with pytest.raises(ValueError, match="is in an object store"):
        audit(episodes, beam_runner="DirectRunner", draft="gs://bucket/draft")
    with pytest.raises(ValueError, match=r"draft: only an audit with a beam_runner \(--runner\)"):
        audit(episodes, draft="here")
    assert run(["audit", str(folder), "--draft", "here"]) == 1
    assert "--runner" in capsys.readouterr().err


def test_the_command_passes_options_on_to_beam(folder, tmp_path, capsys, monkeypatch):
    pytest.importorskip("apache_beam")
    monkeypatch.chdir(folder.parent)
    reports = []
    for words in ([], ["--runner", "DirectRunner", *IN_THREADS, "--draft", str(tmp_path)]):
        assert run(["audit", "arm", "--json", *words]) == 1
        reports.append(json.loads(capsys.readouterr().out))
    assert reports[0] == reports[1]
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["--direct_num_workers=2"], "options of Beam need --runner"),
        (["other"], "expected one PATH"),
    ],
)
def test_command_names_unknown_words(folder, words, error, capsys):
    assert run(["audit", str(folder), *words]) == 2
    assert error in capsys.readouterr().err
