import base64
import html
import importlib.util
import json
import os
import re

import audited_data
import camera_arm
import numpy as np
import pytest
import raw_atari_dqn_replay as raw
from tiny_datasets import episode, write_dataset

import rlds_tools
from rlds.video.decoding import ClipReader
from rlds_tools.command_line.commands import run
from rlds_tools.reporting import charts, video


@pytest.fixture(scope="session")
def faulty_dataset(tmp_path_factory):
    """A dataset of six episodes; the camera of one is black, another lacks its last flag."""
    episodes = [episode(length, seed=length) for length in (12, 8, 30, 11, 2, 40)]
    episodes[1]["steps"]["observation"]["camera"][:] = 0
    episodes[2]["steps"]["is_last"][:] = False
    for content in episodes:
        content["episode_id"] = f"<script>alert({content['episode_id']!r})</script>"
    return write_dataset(tmp_path_factory.mktemp("report") / "made" / "1.0.0", episodes)


@pytest.fixture(scope="session")
def page(faulty_dataset):
    return rlds_tools.report(faulty_dataset, frames=10).content


def test_a_page_has_its_sections_and_no_external_resources(page):
    assert re.findall(r'<section id="(\w+)"', page) == [
        *("overview", "findings", "audit", "episodes", "frames", "distributions", "dimensions"),
        *("states", "scores", "fields", "statistics", "provenance"),
    ]
    addresses = re.findall(r'(?:src|href|poster|srcset)="([^"]*)"', page)
    assert addresses
    assert all(re.match(r"#|data:(video/mp4|image/(webp|png));", address) for address in addresses)
    style = re.search("<style>(.*?)</style>", page, re.DOTALL)[1]
    assert "url(" not in style
    assert "@import" not in style
    assert "default-src 'none'" in html.unescape(page)
    # The policy allows no style and no event attributes.
    assert not re.search(r"<[a-z][^>]* (style|on\w+)=", page)
    identifiers = re.findall(r' id="([^"]*)"', page)
    assert len(identifiers) == len(set(identifiers))
    assert {link[1:] for link in addresses if link.startswith("#")} <= set(identifiers)


def test_findings_come_first_and_link_to_their_episodes(faulty_dataset, page):
    text = re.sub(r"<[^>]+>", " ", page).replace("\u00a0", " ")
    assert "1 error, 2 warnings" in text
    assert page.index("observation/camera is black") < page.index('id="distributions"')
    black = re.search(r"observation/camera is black</td><td>(.*?)</td>", page)[1]
    assert black == 'episode <a href="#episode-1">1</a>'
    report = rlds_tools.report(faulty_dataset, episodes=[3, 5], frames=3)
    assert report.shown == (3, 5)
    assert 'href="#episode-1"' not in report.content


@pytest.fixture(scope="session")
def faulty_arm(tmp_path_factory):
    """Twenty episodes, of which seven have a fault each."""
    episodes = audited_data.make_episodes("arm", 31, 20)
    episodes[9] = episodes[2]
    state, is_ninth = episodes[4].state, np.arange(len(episodes[4]))[:, None] == 9
    changes = {
        4: {"state": np.where(is_ninth, np.nan, state)},
        7: {"state": episodes[7].state[2:], "action": episodes[7].action[:-2]},
        11: {"state": episodes[11].state[:2], "action": episodes[11].action[:2]},
        14: {"state": episodes[14].state[:9], "action": episodes[14].action[:9]},
        17: {"task": ""},
    }
    folder = tmp_path_factory.mktemp("audited")
    for index, each in enumerate(episodes):
        each = each.changed(**changes.get(index, {}))
        rng = np.random.default_rng(2 if index == 9 else index)
        image = rng.integers(0, 255, (len(each), 16, 16, 3), np.uint8) * np.uint8(index != 16)
        columns = {"observation/state": each.state, "observation/image": image}
        columns |= {"action": each.action, "language_instruction": np.array(each.task)}
        np.savez(folder / f"{index:02}.npz", **columns)
    return str(folder)


def test_a_report_has_each_fault_once(faulty_arm):
    report = rlds_tools.report(faulty_arm, frames=2)
    faults = [(index, result.check) for result in report.findings for index in result.episodes]
    assert sorted(faults) == [
        (4, "not finite"),
        (7, "lag"),
        (9, "duplicate"),
        (11, "few steps"),
        (14, "short"),
        (16, "camera blank"),
        (17, "task"),
    ]
    assert all(result.count for result in report.findings)
    text = re.sub(r"<[^>]+>", " ", report.content)
    assert text.count("the state follows the action 2 rows earlier than usual") == 2
    assert "Not assessed: smoothness" in text
    assert set(report.shown) >= {4, 7, 9, 11, 14, 16, 17}
    assert rlds_tools.report(faulty_arm, frames=2, jobs=2).findings == report.findings
    checks = {result.check for result in rlds_tools.validate(faulty_arm).checks[0].findings}
    assert checks == {*dict(faults).values()} - {"lag", "short"}


def test_scores_are_shown_for_each_of_the_most_frequent_tasks_on_one_axis(tmp_path):
    episodes = audited_data.make_episodes("arm", 31, 18)
    tasks = [f"task {max(index - 4, 0)}" for index in range(18)]
    audited_data.write(
        tmp_path, [each.changed(task=task) for each, task in zip(episodes, tasks, strict=True)]
    )
    page = rlds_tools.report(str(tmp_path), frames=2).content
    _, _, by_task = page.partition("<summary>Steadiness by task</summary>")
    text = re.sub(r"<[^>]+>", " ", by_task.partition("</details>")[0])
    assert re.findall(r"(task \d+) .*? (\d+) episode", text)[:2] == [
        ("task 0", "5"),
        ("task 1", "1"),
    ]
    assert len(re.findall(r"task \d+ ", text)) == 12
    assert "2 other tasks" in text
    axes = re.findall(r"task \d+ +(\S+) +(\S+) ", text)
    assert len({*axes}) == 1
    assert "by task" not in rlds_tools.report(str(tmp_path), frames=2, where="index < 4").content


def test_a_report_has_a_common_fault_once(faulty_arm, tmp_path):
    for index in range(20):
        with np.load(f"{faulty_arm}/{index:02}.npz") as content:
            columns = dict(content)
        columns["observation/image"][:] = 0
        columns["observation/state"][0, 1] = np.nan
        np.savez(tmp_path / f"{index:02}.npz", **columns)
    findings = rlds_tools.report(tmp_path, frames=2).findings
    checks = [result.check for result in findings]
    assert [checks.count(name) for name in ("camera blank", "not finite")] == [1, 1]
    assert "camera black" not in checks


def test_findings_locate_values_that_are_not_finite(tmp_path):
    episodes = [episode(9, seed=seed) for seed in range(8)]
    episodes[3]["steps"]["observation"]["position"][4:, 1] = np.nan
    episodes[4]["steps"]["reward"][2] = -np.inf
    episodes[4]["steps"]["observation"]["position"][5, 0] = np.inf
    episodes[5]["steps"]["observation"]["camera"][:] = 0
    episodes[6]["steps"]["observation"]["camera"][:] = 77
    episodes[7]["steps"]["is_last"][:] = False
    path = write_dataset(tmp_path, episodes)
    report = rlds_tools.report(path, frames=2)
    locations = {finding.text: finding.where for finding in report.findings}
    assert locations["observation/position[1] is NaN"] == "episode 3, step 4"
    assert locations["observation/position[0] is infinite"] == "episode 4, step 5"
    assert locations["reward is infinite"] == "episode 4, step 2"
    assert set(report.shown) >= {3, 4, 5, 6, 7}
    assert "; 1 not finite, ignored" in report.content
    assert " · 1 not finite" in report.content


def test_statistics_can_be_read_from_the_page(dataset):
    page = rlds_tools.report(dataset, frames=1).content
    text = re.search(r'<script type="application/json"[^>]*>(.*?)</script>', page, re.DOTALL)[1]
    result = json.loads(text)
    statistics = rlds_tools.stats(dataset).statistics
    for name in ("observation/position", "action", "reward"):
        np.testing.assert_allclose(result[name]["mean"], statistics[name].mean)
        np.testing.assert_allclose(result[name]["std"], statistics[name].std)
        np.testing.assert_allclose(result[name]["q99"], statistics[name].quantiles[0.99])


def test_texts_of_the_data_never_become_html(tmp_path):
    hostile = '</script><script>alert("1")</script><img src=x onerror=alert(1)>'
    for index in range(3):
        observation = np.random.default_rng(index).normal(size=(9, 2))
        np.savez(
            tmp_path / f"{index}.npz",
            observation=observation,
            action=np.arange(8.0),
            language_instruction=hostile,
        )
    content = rlds_tools.report(tmp_path).content
    assert "alert" in content
    assert "<script>alert" not in content
    assert "<img src=x" not in content


@pytest.mark.slow
def test_a_page_fits_into_max_size(faulty_dataset):
    sizes = [
        len(rlds_tools.report(faulty_dataset, max_size=size).content.encode())
        for size in (3_000_000, 130_000, 75_000)
    ]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] > 130_000 > sizes[1] > 75_000 > sizes[2]
    with pytest.raises(ValueError, match="does not fit into 1,000 bytes"):
        rlds_tools.report(faulty_dataset, max_size=1000)


def test_a_report_of_a_sample_is_labelled(faulty_dataset, page):
    assert "A sample" not in page
    report = rlds_tools.report(faulty_dataset, max_episodes=2, frames=2)
    assert (report.episodes, report.total, report.steps) == (2, 6, 52)
    assert "Sample: </b>this page shows 2 of 6 episodes (33 %), evenly spread." in report.content
    assert "2 of 6 episodes" in str(report)


def test_a_format_without_an_index_is_read_from_its_beginning(tmp_path):
    episodes = [raw.episode(index, terminal=True, shape=(8, 8), seed=index) for index in (5, 3, 9)]
    rows = raw.record(episodes)
    raw.write_run(tmp_path / "1" / "replay_logs", rows, capacity=len(rows["action"]))
    report = rlds_tools.report(tmp_path, max_episodes=2, frames=2)
    assert (report.episodes, report.total) == (2, None)
    assert "the first 2 episodes; the total is unknown" in report.content
    assert report.findings == ()
    report = rlds_tools.report(tmp_path, frames=2)
    assert (report.episodes, report.total) == (3, 3)


def test_report_command_overwrites_only_reports(faulty_dataset, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert run(["report", faulty_dataset, "--frames", "2", "--episodes", "0,2:4"]) == 0
    assert "report.html" in capsys.readouterr().out
    assert "Episode 3" in (tmp_path / "report.html").read_text()
    assert run(["report", faulty_dataset, "-o", "page.html", "--frames", "2", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["findings"][0]["severity"] == "error"
    assert run(["report", faulty_dataset, "-o", "page.html", "--frames", "2"]) == 0
    (tmp_path / "mine.html").write_text("<p>Mine")
    capsys.readouterr()
    assert run(["report", faulty_dataset, "-o", "mine.html"]) == 2
    assert "'mine.html' exists, and is not a report. Pass --overwrite" in capsys.readouterr().err
    monkeypatch.setattr("webbrowser.open", lambda address: False)
    assert run(["report", faulty_dataset, "-o", "mine.html", "--overwrite", "--open"]) == 0
    assert "No browser is available. Open mine.html in a browser." in capsys.readouterr().err
    (tmp_path / "mine.html").unlink()
    assert sorted(os.listdir()) == ["page.html", "report.html"]
    for options in (
        ["--max-size", "3"],
        ["--episodes", "x"],
        ["--cameras"],
        ["-o", "no/x"],
        ["-o", "x.md"],
    ):
        assert run(["report", faulty_dataset, *options]) == 2
    capsys.readouterr()
    for options, message in (
        (["--episodes", "6"], "no episode 6"),
        (["--cameras", "eye"], "there are: observation/camera"),
    ):
        assert run(["report", faulty_dataset, *options]) == 1
        assert message in capsys.readouterr().err


def test_an_interrupted_save_leaves_no_file(faulty_dataset, tmp_path, monkeypatch):
    report = rlds_tools.report(faulty_dataset, frames=2)

    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", interrupt)
    with pytest.raises(KeyboardInterrupt):
        report.save(tmp_path / "report.html")
    assert not os.listdir(tmp_path)


def test_a_report_of_a_log_shows_itself_in_a_notebook(log):
    report = rlds_tools.report(log)
    assert "<video" not in report.content
    assert "action is 1 in all steps" in report.content
    assert report._repr_html_().startswith("<iframe srcdoc=")


@pytest.mark.parametrize(("missing", "kind"), [((), "mp4"), (("av",), "webp")])
def test_frames_are_webp_without_pyav(missing, kind, tmp_path, monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda n: None if n in missing else find(n))
    rng = np.random.default_rng(0)
    depth = np.linspace(0.5, 4, 7 * 65 * 33, dtype=np.float32).reshape(7, 65, 33)
    views = {"rgb": rng.integers(0, 255, (7, 21, 33, 3), np.uint8), "depth": depth}
    np.savez(
        tmp_path / "0.npz",
        action=np.zeros(6),
        **{f"observation/{name}": view for name, view in views.items()},
    )
    content = rlds_tools.report(tmp_path).content
    figures = re.search('<div class="cameras">(.*?)</div>', content, re.DOTALL)[1]
    assert f"data:{'video' if kind == 'mp4' else 'image'}/{kind};base64," in figures
    assert re.search(r"depth, 0\.5\d* is black, 3\.9\d* is white", figures)


def test_frames_of_video_cameras_are_shown(tmp_path):
    pytest.importorskip("av")
    camera_arm.record(tmp_path)
    content = rlds_tools.report(tmp_path, cameras=["observation/top"], frames=4).content
    video_bytes, _ = re.findall('<video src="data:video/mp4;base64,([^"]+)"', content)
    with ClipReader(base64.b64decode(video_bytes)) as reader:
        frames = reader.frames(0, len(reader))[:, ::2, ::2].astype(int)
    expected = [camera_arm.Arm().frames(row)[0] for row in (0, 13, 26, 39)]
    assert np.abs(frames - expected).mean() < 10
    assert "First frame of episode 1" in content
    with pytest.raises(KeyError, match="no camera 'x'; there are: observation/"):
        rlds_tools.report(tmp_path, cameras=["x"])


def test_videos_keep_the_order_of_frames():
    av = pytest.importorskip("av")
    import io

    images = [np.full((20, 31, 3), 25 * i, np.uint8) for i in range(10)]
    with av.open(io.BytesIO(video._as_mp4([video._enlarge(i) for i in images], 20))) as container:
        means = [frame.to_ndarray(format="rgb24").mean() for frame in container.decode(video=0)]
    np.testing.assert_allclose(means, [25 * i for i in range(10)], atol=4)


def test_charts_stay_small_and_readable():
    values = np.concatenate([np.arange(1000.0), [1e9]])
    text = charts.histogram(values, "x")
    assert "2 outside" in text
    assert "no values" in charts.histogram(np.array([np.nan]), "x")
    for constant in (5.0, 1e300, -1e-300):
        assert "NaN" not in charts.histogram(np.full(4, constant), "x")
    curve = np.zeros(100_000)
    curve[77_777], curve[77_779] = 1, np.nan
    drawing, bounds = charts.curves([curve, np.full(100_000, np.nan)], "x")
    assert len(drawing) < 10_000
    assert bounds == "0 to 1"
    assert " 4" in drawing  # The peak, which a curve of averages would lose.
    # The row after the last action keeps its position on the axis, so that curves are in step.
    drawing, _ = charts.curves([np.array([0, 1, np.nan])], "x")
    assert "M0 76h0L150 4" in drawing
