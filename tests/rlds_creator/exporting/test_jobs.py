"""Jobs: exports in their own processes, which leave nothing when they fail or are killed."""

import asyncio
import os
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest
from recorded_episodes import write_episode

from rlds_creator.exporting.jobs import ExportRequest, run_export
from rlds_creator.exporting.recordings import ExportError


@pytest.fixture(scope="module")
def recording(tmp_path_factory):
    return write_episode(tmp_path_factory.mktemp("episodes") / "a", 4)


def test_job_writes_an_archive_and_reports_progress(recording, tmp_path):
    async def run():
        progress = []
        request = ExportRequest(name="Maze 1", end_at=("x",))
        return await run_export(request, [recording], tmp_path / "job", progress.append), progress

    result, progress = asyncio.run(run())
    assert result.path == str(tmp_path / "job" / "maze_1.zip")
    assert (result.episodes, result.steps) == (1, 4)
    with zipfile.ZipFile(result.path) as archive:
        assert archive.testzip() is None
    assert progress
    assert os.listdir(tmp_path / "job") == ["maze_1.zip"]


@pytest.mark.slow
def test_failed_job_reports_the_error_and_leaves_nothing(recording, tmp_path):
    async def run():
        logs = [recording, tmp_path / "missing"]
        with pytest.raises(ExportError, match="the log of episode missing") as caught:
            await run_export(ExportRequest(), logs, tmp_path / "missing job")
        with pytest.raises(ExportError, match="no format 'pickle'"):
            await run_export(ExportRequest(format="pickle"), [recording], tmp_path / "other job")
        await run_export(ExportRequest(), [recording], tmp_path / "good job")
        return caught.value

    error = asyncio.run(run())
    assert str(tmp_path) not in str(error)
    assert str(tmp_path) in error.details
    assert os.listdir(tmp_path) == ["good job"]


@pytest.mark.slow
def test_cancelled_job_leaves_nothing(tmp_path):
    """While its process starts, and while it writes."""
    recording = write_episode(tmp_path / "a", 3000)

    async def run():
        is_writing = asyncio.Event()
        jobs = [
            asyncio.create_task(
                run_export(
                    ExportRequest(),
                    [recording] * 50,
                    tmp_path / f"job{index}",
                    lambda _: is_writing.set(),
                )
            )
            for index in range(2)
        ]
        await asyncio.sleep(0.05)
        jobs[1].cancel()
        await is_writing.wait()
        jobs[0].cancel()
        for job in jobs:
            with pytest.raises(asyncio.CancelledError):
                await job

    asyncio.run(run())
    assert os.listdir(tmp_path) == ["a"]


@pytest.mark.slow
@pytest.mark.parametrize("victim", ["the job", "the server"])
def test_kill_of_job_or_server_leaves_no_process_and_no_partial_export(victim, tmp_path):
    recording = write_episode(tmp_path / "a", 3000)
    program = f"""
import asyncio
from rlds_creator.exporting.jobs import ExportRequest, run_export

logs, folder = [{str(recording)!r}] * 100, {str(tmp_path / "job")!r}
asyncio.run(run_export(ExportRequest(), logs, folder, lambda fraction: print(fraction, flush=True)))
"""
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout.readline()
        [job] = children_of(server.pid)
        os.kill(job if victim == "the job" else server.pid, signal.SIGKILL)
        _, errors = server.communicate(timeout=600)
    deadline = time.monotonic() + 60
    while Path(f"/proc/{job}").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not Path(f"/proc/{job}").exists()
    if victim == "the job":
        assert "its process was killed" in errors
        assert not (tmp_path / "job").exists()
    else:  # Only the empty folder of the job is left.
        assert os.listdir(tmp_path / "job") == []


def children_of(pid):
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return [int(child) for task in tasks for child in (task / "children").read_text().split()]
