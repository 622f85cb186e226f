"""`rlds create`."""

import re
import signal
import socket
import subprocess
import sys

import pytest
from creator_server import call, fetch

from rlds_tools.command_line import commands


def test_invalid_options_are_reported(tmp_path, capsys) -> None:
    for option in ("nothing", "=python", "old=/no/such/python"):
        assert commands.run(["create", str(tmp_path), "--interpreter", option]) == 2
        assert "--interpreter" in capsys.readouterr().err
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = str(listener.getsockname()[1])
        assert commands.run(["create", str(tmp_path / "new"), "--port", port]) == 1
        assert "--port 0" in capsys.readouterr().err
    assert commands.run(["create", str(tmp_path), "--port", "0", "--host", "192.0.2.1"]) == 1
    url = "mysql://localhost/x"
    assert commands.run(["create", str(tmp_path), "--port", "0", "--database", url]) == 1
    assert "mysql" in capsys.readouterr().err
    assert commands.run(["create", str(tmp_path), "--port", "0", "--database", "lab"]) == 1
    assert "--database: 'lab' is neither a URL" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()
    (tmp_path / "file").touch()
    assert commands.run(["create", str(tmp_path / "file"), "--port", "0"]) == 1
    assert f"{tmp_path / 'file'} is a file" in capsys.readouterr().err


def test_windows_is_refused_with_the_supported_systems(tmp_path, capsys, monkeypatch) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    assert commands.run(["create", str(tmp_path / "new")]) == 1
    assert "Linux or macOS" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


@pytest.mark.slow
def test_first_start_for_other_people_prints_an_invitation(tmp_path) -> None:
    def start(*options):
        command = [sys.executable, "-m", "rlds_tools", "create", str(tmp_path), "--port", "0"]
        return subprocess.Popen(
            [*command, "--host", "0.0.0.0", "--no-open", *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def stop(process):
        process.send_signal(signal.SIGINT)
        output = process.communicate(timeout=600)[0]
        assert process.returncode == 0, output
        return output

    process = start("--allowed-host", "lab.example.org")
    assert process.stdout.readline() == "3 studies, 0 episodes\n"
    link = re.match(r"http://lab\.example\.org:(\d+)/enter#(\S+)", process.stdout.readline())
    address = f"http://127.0.0.1:{link[1]}"
    assert call(address, "GET", "/api/studies")[0] == 401
    body = {"token": link[2], "name": "Ada"}
    _, headers, _ = fetch(address, "POST", "/api/enter", body, headers={"host": "lab.example.org"})
    cookie = headers["set-cookie"].partition(";")[0]
    me = call(address, "GET", "/api/me", cookie=cookie)[1]
    assert (me["person"]["name"], me["person"]["role"]) == ("Ada", "owner")
    studies = call(address, "GET", "/api/studies", cookie=cookie)[1]["studies"]
    assert studies[0]["name"] == "CartPole"
    assert call(address, "GET", "/api/me", headers={"host": "example.com"})[0] == 400
    assert stop(process) == ""

    file = tmp_path / "lab.sqlite"
    process = start("--database", str(file))
    assert process.stdout.readline() == f"database {file}\n"
    assert process.stdout.readline() == "3 studies, 0 episodes\n"
    assert "/enter#" in process.stdout.readline()
    stop(process)
    process = start("-q")
    assert re.fullmatch(r"http://localhost:\d+\n", process.stdout.readline())
    stop(process)
    for options in (["--invite"], ["--host", "127.0.0.1", "--login", "--invite"]):
        process = start("-q", *options)
        assert "/enter#" in process.stdout.readline()
        stop(process)
