"""Limits on files, lines of text, and files that are written whole."""

import gzip
import lzma
import os
import threading

import pytest
import torch

import pullback as pb
from pullback.core.errors import PullbackError, hint, shortened, unknown_name
from pullback.core.files import check_limit, read_lines, read_plain, write_whole
from pullback.core.state_file import read_state, write_state


def test_limits_hold_inside_their_block_only():
    with pb.file_limits(mesh_bytes=5) as limits:
        assert limits.mesh_bytes == 5
        with pytest.raises(PullbackError, match=r"x has 6 bytes, more than the limit mesh_bytes of 5; if you trust"):
            check_limit("mesh_bytes", 6, "x has")
        with pb.file_limits(links=1), pytest.raises(PullbackError, match="limit mesh_bytes"):
            check_limit("mesh_bytes", 6, "x has")
        check_limit("links", 1000, "x has")
    check_limit("mesh_bytes", 6, "x has")


def test_limits_are_those_of_the_thread_that_set_them():
    failed = []
    with pb.file_limits(mesh_bytes=5):
        other = threading.Thread(target=lambda: failed.append(check_limit("mesh_bytes", 6, "x has")))
        other.start()
        other.join()
    assert failed == [None]


@pytest.mark.parametrize(
    ("limits", "text"), [({"meshes": 3}, "no file limit named 'meshes'"), ({"links": 0}, "links is 0")]
)
def test_limits_that_are_none(limits, text):
    with pytest.raises(PullbackError, match=text), pb.file_limits(**limits):
        pass


def test_a_description_beyond_its_limits(tmp_path):
    path = tmp_path / "a.urdf"
    path.write_text('<robot name="a"><link name="a"/></robot>')
    for name, value in (("description_bytes", 10), ("description_elements", 1)):
        with (
            pb.file_limits(**{name: value}),
            pytest.raises(pb.DescriptionError, match=rf"a\.urdf.*limit {name} of {value};"),
        ):
            pb.load(path)
    assert pb.load(path).model.links[0].name == "a"


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("suffix", ["", ".xz", ".gz"])
def test_lines(tmp_path, end, suffix, monkeypatch):
    lines = ["one", "", "zwei é", "x" * 50, "last"]
    raw = end.join(lines).encode()
    path = tmp_path / f"a.txt{suffix}"
    path.write_bytes({"": raw, ".xz": lzma.compress(raw), ".gz": gzip.compress(raw)}[suffix])
    # pieces that end inside lines, characters and ends of lines
    for chunk in (1, 2, 3, 7, 1 << 20):
        monkeypatch.setattr("pullback.core.files.CHUNK", chunk)
        assert list(read_lines(path)) == lines


def test_a_line_that_is_too_long_is_named(tmp_path, monkeypatch):
    path = tmp_path / "a.txt"
    path.write_text("short\n" * 10 + "l" * 100 + "\nshort\n")
    for chunk in (16, 1 << 20):
        monkeypatch.setattr("pullback.core.files.CHUNK", chunk)
        with (
            pb.file_limits(line_bytes=50),
            pytest.raises(PullbackError, match=r"line 11 has at least .* limit line_bytes"),
        ):
            list(read_lines(path))


def test_a_packed_file_is_measured_before_its_first_line(tmp_path, monkeypatch):
    path = tmp_path / "a.txt.xz"
    path.write_bytes(lzma.compress(b"line\n" * 10_000))
    monkeypatch.setattr("pullback.core.files.SMALL", 1000)
    with pytest.raises(PullbackError, match="limit expansion of 50"):
        next(read_lines(path))
    with pb.file_limits(expansion=1000):
        assert next(read_lines(path)) == "line"


def test_special_files(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for name, text in (("pipe", "it is a pipe"), ("none", "does not exist"), ("", "it is a folder")):
        with pytest.raises(PullbackError, match=text):
            read_plain(tmp_path / name, "mesh_bytes")


def test_a_file_is_written_whole_or_not_at_all(tmp_path):
    path = tmp_path / "new" / "a.pt"
    write_whole(path, lambda file: file.write(b"before"))

    def fail(file):
        file.write(b"half")
        raise RuntimeError

    with pytest.raises(RuntimeError):
        write_whole(path, fail)
    assert path.read_bytes() == b"before"


def test_states(tmp_path):
    path = tmp_path / "a.pt"
    write_state(path, {"x": torch.arange(3), "n": 2.5})
    state = read_state(path)
    assert (state["x"].tolist(), state["n"]) == ([0, 1, 2], 2.5)
    path.write_bytes(path.read_bytes()[:-50])
    with pytest.raises(PullbackError, match=r"a\.pt cannot be read as a checkpoint \(it is no archive of tensors\)"):
        read_state(path)


def test_devices_that_are_not_there():
    world = pb.World()
    world.add_sphere("ball", radius=0.1, mass=1.0)
    name = f"cuda:{torch.cuda.device_count()}"
    for make in (lambda: pb.load("panda", device=name), lambda: world.compile(dt=1e-3, device=name)):
        with pytest.raises(PullbackError, match=rf"no device named '{name}' on this machine; choose from: cpu"):
            make()


def test_too_many_substeps():
    world = pb.World()
    with pytest.raises(PullbackError, match=r"substeps is 1,000,000,000; at most 10,000: give a smaller dt instead"):
        world.compile(dt=1e-3, substeps=10**9)


def test_words_of_errors_stay_short():
    assert shortened("a" * 1000) == "a" * 40 + " … " + "a" * 20
    assert len(str(unknown_name("link", "x" * 5000, ["y" * 5000] * 5000))) < 500
    assert hint("b", [f"name {k}" for k in range(100)]).endswith("name 39, …")
