"""Toolpaths: interpolation, tables, generated tracks and rings, G-code."""

import numpy as np
import pytest

from pullback import thermal as th
from pullback.core.errors import PullbackError


def square():
    return th.Toolpath(t=[0, 1, 2, 3], x=[0, 2, 2, 0], y=[0, 0, 2, 2], z=[1, 1, 1, 1], on=[0, 1, 0, 1])


def test_position_state_and_direction_at_times():
    path = square()
    position, on, direction = path.at([-1.0, 0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0])
    assert np.allclose(position[:, 0], [0, 0, 1, 2, 2, 2, 0, 0])
    # the move that ends at a row counts at its time; nothing is lit outside the path
    assert on.tolist() == [False, False, True, True, False, False, True, False]
    assert np.allclose(direction[2], [1, 0, 0])
    assert np.allclose(direction[4], [0, 1, 0])
    assert path.duration == 3
    assert path.lit_time == 2


def test_a_pause_keeps_the_direction():
    path = th.Toolpath([0, 1, 2, 3], [0, 0, 0, 1], [0, 0, 3, 3], [0, 0, 0, 0], [0, 1, 1, 1])
    assert np.allclose(path.at([0.5, 1.5])[2], [[0, 1, 0], [0, 1, 0]])


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"t": [0, 1, 1, 3]}, "row 2 of the toolpath has t = 1 s after 1 s"),
        ({"x": [0, np.nan, 2, 3]}, "row 1 of the toolpath has x = nan"),
        ({"y": [0, 1]}, "column y of the toolpath has shape"),
    ],
)
def test_bad_toolpaths_name_the_row(change, text):
    columns = {"t": [0, 1, 2, 3], "x": [0] * 4, "y": [0] * 4, "z": [0] * 4, "on": [1] * 4}
    with pytest.raises(PullbackError, match=text):
        th.Toolpath(**{**columns, **change})


def test_tables_with_and_without_header(tmp_path):
    file = tmp_path / "path.csv"
    file.write_text("t,x,y,z,on\n# start\n0,0,0,1,0\n2,10,0,1,1\n")
    path = th.read_toolpath(file, unit=1e-3)
    assert path.x.tolist() == [0, 0.01]
    assert path.on.tolist() == [False, True]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0 0 0 0 0\n1 0 0 0\n", "line 2: 4 columns"),
        ("0 0 0 0 0\n1 0 zero 0 1\n", "line 2: .* no row of numbers"),
        ("0 0 0 0 0\n\n2 0 0 0 1\n1 0 0 0 1\n", "line 4: t = 1 s after 2 s"),
        ("0 0 0 0 0\n1 inf 0 0 1\n", "line 2: a number that is not finite"),
        ("t x y z on\n", "has 0 rows"),
    ],
)
def test_bad_tables_name_the_line(tmp_path, text, message):
    file = tmp_path / "bad.crs"
    file.write_text(text)
    with pytest.raises(PullbackError, match=message):
        th.read_toolpath(file)


def test_the_wall_of_in718():
    # 45 mm, 40 layers of 0.75 mm, 7 mm/s: 6.4286 s a track, 0.607 s between layers, the last ends at 280.8 s
    wall = th.box_on_plate((0.045, 0.003, 0.03), (0.0015, 0.0015, 0.00075), (0.06, 0.02, 0.006))
    path = th.layers(wall, speed=7e-3, hatch=3e-3, dwell=0.5)
    assert len(path.lit_rows) == 40
    assert path.duration == pytest.approx(280.8, abs=0.05)
    assert path.lit_time == pytest.approx(40 * 6.4286, abs=1e-2)
    assert np.diff(path.t)[1] + np.diff(path.t)[2] == pytest.approx(0.607, abs=1e-3)
    # bidirectional, at the tops of the layers
    ends = path.points[path.lit_rows]
    assert np.allclose(ends[:, 0], 0.0225 * (-1.0) ** np.arange(40))
    assert np.allclose(ends[:, 1], 0)
    assert np.allclose(ends[:, 2], 0.00075 * (1 + np.arange(40)))


def test_tracks_cover_the_area_at_any_angle():
    part = th.solid(lambda p: np.hypot(p[:, 0], p[:, 1]) > 0.003, (0.012, 0.012, 0.002), 0.0005)
    area = part.volumes.sum() / 0.002
    for angle in (0.0, 30.0, 67.0, 90.0):
        path = th.layers(part, speed=1.0, hatch=1e-4, layer=0.002, angle=angle)
        assert path.lit_time * 1e-4 == pytest.approx(area, rel=0.01)
    # the hole is crossed with the beam off
    middle = path.points[path.lit_rows] + path.points[path.lit_rows - 1]
    assert (np.abs(0.5 * middle[:, :2]).max(axis=1) > 0.002).all()
    turned = th.layers(part, speed=1.0, hatch=1e-3, turn=90)
    first, last = turned.directions[0], turned.directions[-1]
    assert abs(first[0]) == pytest.approx(1)
    assert abs(last[1]) == pytest.approx(1)
    inset = th.layers(part, speed=1.0, hatch=1e-3, inset=2e-4)
    assert inset.x.max() == pytest.approx(0.0058, abs=1e-9)


def test_rings_of_the_hourglass_take_as_long_as_the_published_path():
    path = th.rings(th.hourglass(), speed=5e-3, hatch=2e-3)
    assert path.duration == pytest.approx(323.45, rel=0.01)
    assert path.lit_time == pytest.approx(305.2, rel=0.01)


def test_generated_paths_refuse_nonsense():
    part = th.solid(lambda p: p[:, 0] < 1, (0.01, 0.01, 0.002), 0.001)
    with pytest.raises(PullbackError, match="speed = 0"):
        th.layers(part, speed=0)
    with pytest.raises(PullbackError, match="dwell = -1"):
        th.layers(part, speed=1, dwell=-1)
    with pytest.raises(PullbackError, match="the inset leaves no track"):
        th.layers(part, speed=1, inset=0.01)
    with pytest.raises(PullbackError, match="no element set named 'part'"):
        th.layers(part, speed=1, build="part")


def gcode(tmp_path, text):
    file = tmp_path / "part.gcode"
    file.write_text(text)
    return th.read_gcode(file)


def test_gcode_of_a_laser(tmp_path):
    path = gcode(
        tmp_path,
        """%
        N10 G21 G90 (millimetres; absolute)
        G0 X10 Y0 Z1 F6000 ; travel
        M3 S800
        G1 X20 F300
        Y10
        G4 P500
        M5
        G1 X0
        G91
        G1 Y-10
        """,
    )
    assert np.allclose(path.points[-1], [0, 0, 1e-3])
    assert path.on.tolist() == [False, False, True, True, False, False, False]
    # 10 mm at 5 mm/s twice, half a second of rest
    assert np.allclose(np.diff(path.t)[1:4], [2, 2, 0.5])
    assert np.diff(path.t)[0] == pytest.approx(np.hypot(10, 1) / 100)


def test_gcode_of_an_extruder_in_inches(tmp_path):
    path = gcode(tmp_path, "G20\nG1 X1 F60 E1\nG1 X2 E1\nG92 X0 E0\nM83\nG1 X1 E0.5\nG1 Y1 E-0.5\n")
    assert path.on.tolist() == [False, True, False, True, False]
    assert np.allclose(path.x, np.array([0, 1, 2, 3, 3]) * 0.0254)
    assert np.allclose(np.diff(path.t), 1)


@pytest.mark.parametrize("words", ["I-5 J0", "R5"])
def test_arcs_become_chords(tmp_path, words):
    path = gcode(tmp_path, f"G0 X5 Y0 F600\nG3 X0 Y5 {words} F60\n")
    arc = path.points[path.lit_rows]
    assert np.allclose(np.hypot(arc[:, 0], arc[:, 1]), 5e-3)
    assert (arc[:, :2] >= -1e-12).all()
    assert path.lit_time == pytest.approx(2.5 * np.pi, rel=2e-3)
    back = gcode(tmp_path, f"G0 X5 Y0 F600\nG2 X0 Y5 {'I-5 J0' if 'I' in words else 'R-5'} F60\n")
    length = 7.5 * np.pi
    assert back.lit_time == pytest.approx(length, rel=2e-3)


def test_a_full_circle(tmp_path):
    path = gcode(tmp_path, "G0 X5 Y0 F600\nG2 X5 Y0 I-5 J0 F60\n")
    assert path.lit_time == pytest.approx(10 * np.pi, rel=2e-3)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("G0 X1 F100\nG1 Xone\n", "line 2: cannot read"),
        ("G1 X1\n", "line 1: a move before the first F"),
        ("X1 F10\n", "line 1: a position before the first G0"),
        ("G1 X1 F-5\n", "line 1: a feed of -5"),
        ("G0 X0 F9\nG2 X5 Y0\n", "line 2: an arc without I, J or R"),
        ("G0 X0 F9\nG2 X5 Y0 I1 J0\n", "line 2: the arc ends 4 mm from its centre and starts 1 mm"),
        ("G0 X0 F9\nG2 X5 Y0 R1\n", "line 2: no arc of radius 1 mm joins points 5 mm apart"),
        ("G21\n", "has no moves"),
    ],
)
def test_bad_gcode_names_the_line(tmp_path, text, message):
    with pytest.raises(PullbackError, match=message):
        gcode(tmp_path, text)
