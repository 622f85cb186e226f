import contextlib
import gzip
import io
import os
import stat
import tarfile
import zipfile
from pathlib import Path

import pytest
from etils import epath

from rlds.raw_files.archives import extract, read_member
from rlds.sources import SourceError
from rlds_tools.command_line.commands import run

FILES = {
    "tag/metadata.riegeli": b"metadata",
    "tag/2026/steps.riegeli": bytes(range(256)) * 9000,
    "tag/2026/" + "long/" * 20 + "é.txt": b"long",
    "tag/empty": b"",
}


@pytest.fixture
def cache_dir(tmp_path):
    return epath.Path(tmp_path / "extracted")


def member(name, kind=tarfile.REGTYPE, size=0, link=""):
    info = tarfile.TarInfo(name)
    info.type, info.size, info.linkname = kind, size, link
    return info


def write_tar(path, members, *, tar_format=tarfile.PAX_FORMAT):
    mode = "w:gz" if path.name.endswith("gz") else "w"
    with tarfile.open(path, mode, format=tar_format) as archive:
        for info, data in members:
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return epath.Path(path)


def write_zip(path, members, **options):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, **options) as archive:
        for name, data in members:
            archive.writestr(name, data)
    return epath.Path(path)


def read_files(directory):
    paths = [path for path in Path(directory).rglob("*") if path.is_file()]
    return {os.fspath(path.relative_to(directory)): path.read_bytes() for path in paths}


@pytest.mark.parametrize("tar_format", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
@pytest.mark.parametrize("name", ["log.tgz", "log.tar"])
def test_tar_members_are_extracted(tmp_path, cache_dir, name, tar_format):
    members = [(member("./tag/", tarfile.DIRTYPE), b""), (member("tag/none", tarfile.DIRTYPE), b"")]
    files = {**FILES, "long" * 40: b"long"}
    members += [(member(name), data) for name, data in files.items()]
    members += [(member("tag/.hidden"), b"hidden"), (member("tag/2026/._steps.riegeli"), b"")]
    directory = extract(write_tar(tmp_path / name, members, tar_format=tar_format), cache_dir)
    assert read_files(directory) == files
    assert (directory / "tag" / "none").is_dir()
    assert directory.name == name


def test_zip_members_are_extracted(tmp_path, cache_dir):
    path = write_zip(tmp_path / "log.zip", [("tag/", b""), ("tag/.hidden", b"x"), *FILES.items()])
    assert read_files(extract(path, cache_dir)) == FILES


def test_archives_of_the_same_name_are_extracted_separately(tmp_path, cache_dir):
    first, second = (epath.Path(tmp_path / name / "log.zip") for name in ("a", "b"))
    for path, data in ((first, b"one"), (second, b"other")):
        path.parent.mkdir()
        write_zip(path, [("file", data)])
        assert read_files(extract(path, cache_dir)) == {"file": data}
    inode = os.stat(extract(first, cache_dir) / "file").st_ino
    assert os.stat(extract(first, cache_dir) / "file").st_ino == inode  # Not extracted again.
    write_zip(first, [("file", b"changed")])
    assert read_files(extract(first, cache_dir)) == {"file": b"changed"}


@pytest.mark.parametrize("name", ["log.tar.gz", "log.tar", "log.zip"])
def test_truncated_and_damaged_archives_are_refused(tmp_path, cache_dir, name):
    if name.endswith(".zip"):
        path = write_zip(tmp_path / name, FILES.items())
    else:
        path = write_tar(tmp_path / name, [(member(key), data) for key, data in FILES.items()])
    intact = path.read_bytes()
    # A cut within the zeros after the end loses nothing.
    end = len(intact.rstrip(b"\0")) if name == "log.tar" else len(intact) - 1
    for size in (0, 1, 512, 1024, end // 2, end - 100, end):
        path.write_bytes(intact[:size])
        with pytest.raises(SourceError, match=name.replace(".", r"\.")):
            extract(path, cache_dir)
    assert not read_files(cache_dir)
    for position in range(0, len(intact), len(intact) // 15):
        path.write_bytes(
            intact[:position] + bytes([intact[position] ^ 0x41]) + intact[position + 1 :]
        )
        with contextlib.suppress(SourceError):
            actual = read_files(extract(path, cache_dir))
            # A tar file has no checksum of its data; a zip file stores each name twice.
            assert name == "log.tar" or sorted(actual.values()) == sorted(FILES.values())


@pytest.mark.parametrize(
    ("info", "message"),
    [
        (member("/etc/harm"), "leads out of the archive"),
        (member("tag/../../harm"), "leads out of the archive"),
        (member("tag\\harm"), "leads out of the archive"),
        (member("link", tarfile.SYMTYPE, link="/etc/passwd"), "neither a file nor a directory"),
        (member("link", tarfile.LNKTYPE, link="/etc/passwd"), "neither a file nor a directory"),
        (member("pipe", tarfile.FIFOTYPE), "neither a file nor a directory"),
        (member("file"), "a second file has this name"),
    ],
    ids=lambda value: value.name if isinstance(value, tarfile.TarInfo) else "",
)
def test_tar_members_that_are_not_plain_files_are_refused(tmp_path, cache_dir, info, message):
    plain_members = [(member("file"), b"a"), (member("directory/file"), b"b")]
    path = write_tar(tmp_path / "log.tar.gz", [*plain_members, (info, b"")])
    with pytest.raises(SourceError, match=message):
        extract(path, cache_dir)
    assert not read_files(tmp_path).keys() - {"log.tar.gz"}


def test_zip_members_that_are_not_plain_files_are_refused(tmp_path, cache_dir):
    link = zipfile.ZipInfo("link")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    path = write_zip(tmp_path / "log.zip", [(link, b"/etc/passwd")])
    with pytest.raises(SourceError, match="field 'link': neither a file"):
        extract(path, cache_dir)
    path = write_zip(tmp_path / "log.zip", [("../harm", b"")])
    with pytest.raises(SourceError, match="leads out of the archive"):
        extract(path, cache_dir)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("file", b"")
    with pytest.raises(SourceError, match="compressed by method 14"):
        extract(path, cache_dir)


def test_declared_sizes_beyond_the_archive_are_refused(tmp_path, cache_dir):
    header = member("zeros")
    header.size = 1 << 40
    path = epath.Path(tmp_path / "log.tar.gz")
    path.write_bytes(gzip.compress(header.tobuf()))
    with pytest.raises(SourceError, match=r"field 'zeros': 1,099,511,627,776 bytes are declared"):
        extract(path, cache_dir)
    long_name = member("x", tarfile.XHDTYPE)
    long_name.size = (1 << 33) - 1
    path.write_bytes(gzip.compress(long_name.tobuf(tarfile.USTAR_FORMAT)))
    with pytest.raises(SourceError, match=r"log\.tar\.gz"):
        extract(path, cache_dir)


def test_command_line_reports_truncated_archive_in_one_line(tmp_path, capsys):
    path = write_tar(tmp_path / "log.tar.gz", [(member(key), data) for key, data in FILES.items()])
    path.write_bytes(path.read_bytes()[:-20])
    arguments = ["--dataset=rlds_envlogger", os.fspath(path), os.fspath(tmp_path / "d")]
    assert run(["convert", *arguments]) == 1
    (line,) = capsys.readouterr().err.strip().splitlines()[-1:]
    assert line.startswith(f"error: {path}: ")


def test_pipe_is_refused_as_archive(tmp_path, cache_dir):
    os.mkfifo(tmp_path / "log.tar.gz")
    with pytest.raises(SourceError, match="not a regular file"):
        extract(epath.Path(tmp_path / "log.tar.gz"), cache_dir)


def test_a_single_member_of_a_zip_archive_is_read_up_to_a_limit(tmp_path):
    path = write_zip(tmp_path / "download.zip", [("0.pkl", bytes(1 << 20))])
    assert read_member(path, "0.pkl", 1 << 30) == bytes(1 << 20)
    with pytest.raises(SourceError, match=r"0\.pkl: it holds 1,048,576 bytes"):
        read_member(path, "0.pkl", 1 << 10)
