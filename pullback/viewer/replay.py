"""A replay of a simulation as one HTML file that any browser plays, without a network."""

from __future__ import annotations

import contextlib
import html
import io
import re
import socket
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pullback.core.errors import PullbackError
from pullback.description.compile import WORLD
from pullback.rigid.sim import Sim
from pullback.rigid.state import State, Trajectory
from pullback.rigid.world.items import Placed, rotation_matrix
from pullback.viewer.motion import Film, Forces, contact_forces, film, find_link, is_free_body, link_poses
from pullback.viewer.shapes import LinkMesh, Mesh, link_meshes, of_world

Tensor = torch.Tensor
Color = tuple[int, int, int]

ROBOTS: tuple[Color, ...] = ((72, 108, 164), (64, 140, 112), (130, 94, 160))
BODIES: tuple[Color, ...] = ((232, 130, 52), (206, 74, 84), (70, 160, 170), (214, 176, 60), (150, 120, 90))
STATIC: Color = (168, 168, 174)
FORCE: Color = (190, 0, 20)
PATHS: tuple[Color, ...] = ((232, 130, 52), (30, 120, 220), (60, 160, 80), (160, 60, 160))
CLOUD: tuple[Color, Color] = ((200, 60, 90), (250, 190, 90))
LAST_FRAME = 0.8
"""For how long [s] the last frame stays before the film starts again."""
WEAKEST = 0.02
"""Forces below this share of the usual ones are not drawn."""


def save_replay(
    sim: Sim,
    states: Trajectory | Sequence[State],
    path: str | Path,
    *,
    controls: Tensor | None = None,
    world: int = 0,
    forces: bool = True,
    fps: float = 30.0,
    title: str = "",
    paths: Sequence[str | Tensor | np.ndarray] = (),
    particles: tuple[Sequence[float] | np.ndarray, Tensor | np.ndarray] | None = None,
) -> Path:
    """Write a replay of one of the worlds as a standalone HTML file, and return its path.

    `states` is the trajectory of a rollout, or a list of states one step apart. Contact forces are drawn as arrows if
    there are no actuators or their `controls` (T, B, nu) are given. `paths` are lines to draw: points (n, 3) [m], or
    the name of a free body or of a `robot/link` whose way is drawn. `particles` are times [s] (S,) and places [m]
    (S, n, 3) of material points at them, of which the nearest in time is drawn.
    """
    _need_viser()
    moments = _finite(film(sim, states, fps), world)
    items = sim.world.items
    poses = {item.name: link_poses(sim, item, moments.q, world) for item in items}
    meshes = link_meshes(items, world)
    lines = [_line(items, poses, given) for given in paths]
    arrows: list[Forces] = []
    if forces and (controls is not None or not sim.nu):
        arrows = contact_forces(sim, moments, controls, world)
    with _quiet_server() as server:
        scene = server.scene
        centre, radius = _stage(meshes, poses, lines)
        top = np.array([centre[0], centre[1], centre[2] + 0.7 * radius])
        _look(server, centre, radius)
        _add_static(scene, items, meshes, world, centre, radius)
        for number, line in enumerate(lines):
            pairs = np.stack([line[:-1], line[1:]], 1)
            scene.add_line_segments(f"/paths/{number}", pairs, PATHS[number % len(PATHS)], thickness=0.006 * radius)
        cloud = None if particles is None else _Particles(scene, *particles)
        page = _record(server, moments, meshes, poses, _Arrows(scene, arrows, radius), cloud, title, top)
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    name = html.escape(title or path.stem)
    path.write_text(re.sub("<title>.*?</title>", lambda _: f"<title>{name}</title>", page, count=1), encoding="utf-8")
    return path


def _need_viser() -> None:
    try:
        import viser  # noqa: F401
    except ImportError as error:
        raise PullbackError("a replay is drawn with viser, which is not there; pip install 'pullback[viz]'") from error


@contextlib.contextmanager
def _quiet_server() -> Iterator[Any]:
    """Start viser on a free port of this machine alone, without a word, and stop it afterwards."""
    import viser

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with contextlib.redirect_stdout(io.StringIO()):
        server = viser.ViserServer(host="127.0.0.1", port=port, verbose=False)
    try:
        yield server
    finally:
        with contextlib.redirect_stdout(io.StringIO()):
            server.stop()


def _finite(moments: Film, world: int) -> Film:
    """Return the moments before the world became not finite."""
    worlds = moments.q.shape[1]
    if not 0 <= world < worlds:
        raise PullbackError(f"world is {world}; the states have {worlds}: give 0 to {worlds - 1}")
    ok = torch.isfinite(moments.q[:, world]).all(-1) & torch.isfinite(moments.qd[:, world]).all(-1)
    count = len(ok) if bool(ok.all()) else int((~ok).nonzero()[0, 0])
    if not count:
        raise PullbackError(f"world {world} is not finite from the start; there is nothing to draw")
    if count < len(ok):
        warnings.warn(
            f"world {world} is not finite from {moments.times[count]:g} s on; the replay ends there", stacklevel=3
        )
    cut: list[Any] = [None if x is None else x[:count] for x in moments]
    return Film(*cut)


def _line(items: Sequence[Placed], poses: dict[str, Any], given: str | Tensor | np.ndarray) -> np.ndarray:
    """Return the points (n, 3) of a path."""
    if isinstance(given, str):
        item, link = find_link(items, given)
        return poses[item.name][link][0]
    points = given.detach().cpu().numpy() if isinstance(given, Tensor) else np.asarray(given, float)
    if points.ndim != 2 or points.shape[1] != 3 or len(points) < 2:
        raise PullbackError(f"a path has shape {points.shape}; expected points (n, 3), or the name of what moves")
    return points


def _placed(mesh: Mesh, pose: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    """Return the corners (F, 8, 3) of a mesh's bounding box in each moment."""
    low, high = mesh.vertices.min(0), mesh.vertices.max(0)
    corners = np.array([[(low, high)[i][0], (low, high)[j][1], (low, high)[k][2]] for i, j, k in np.ndindex(2, 2, 2)])
    position, wxyz = pose
    turned = np.stack([corners @ rotation_matrix(np.roll(quat, -1)).T for quat in wxyz])
    return turned + position[:, None]


def _stage(meshes: Sequence[LinkMesh], poses: dict[str, Any], lines: Sequence[np.ndarray]) -> tuple[np.ndarray, float]:
    """Return centre and radius [m] of where things happen: of all that moves, and of static shapes not much larger."""
    moving = [_placed(mesh, poses[item.name][link]).reshape(-1, 3) for item, link, mesh in meshes if link != WORLD]
    static = [_placed(mesh, poses[item.name][link])[0] for item, link, mesh in meshes if link == WORLD]
    points = np.concatenate([np.zeros((0, 3)), *(moving or static), *lines])
    if not len(points):
        return np.zeros(3), 1.0
    _, reach = _around(points)
    return _around(np.concatenate([points, *(x for x in static if _around(x)[1] < reach)]))


def _around(points: np.ndarray) -> tuple[np.ndarray, float]:
    """Return centre and radius of the ball around the bounding box of points (n, 3)."""
    low, high = points.min(0), points.max(0)
    return 0.5 * (low + high), max(0.5 * float(np.linalg.norm(high - low)), 1e-3)


def _look(server: Any, centre: np.ndarray, radius: float) -> None:
    """Put the camera, with z upwards, and the light."""
    server.scene.set_up_direction("+z")
    direction = np.array([0.55, -1.0, 0.45]) / np.linalg.norm([0.55, -1.0, 0.45])
    camera = server.initial_camera
    camera.fov = 0.7
    camera.look_at = centre
    camera.position = centre + 2.8 * radius * direction
    camera.near, camera.far = 0.01 * radius, 200.0 * radius
    server.scene.configure_default_lights(enabled=True, cast_shadow=True)


def _color(items: Sequence[Placed], item: Placed, link: int) -> Color:
    """Return the colour of a link: one for each robot and body, every other link of a robot a little lighter."""
    if item.robot is None:
        return STATIC
    free = is_free_body(item)
    alike = [i for i in items if i.robot is not None and is_free_body(i) == free]
    choice = BODIES if free else ROBOTS
    color = np.array(choice[alike.index(item) % len(choice)], float)
    if not free and link % 2:
        color += 0.3 * (255.0 - color)
    r, g, b = color.astype(int).tolist()
    return r, g, b


def _add_static(
    scene: Any, items: Sequence[Placed], meshes: Sequence[LinkMesh], world: int, centre: np.ndarray, radius: float
) -> None:
    """Draw planes as grids around the place of action, and static shapes."""
    cell = _round(0.3 * radius)
    for item in items:
        for shape in item.shapes if item.robot is None else []:
            if shape.kind != "plane":
                continue
            given = shape.orientation
            R = shape.rotation if given is None else rotation_matrix(of_world(given, 1, world))
            p = of_world(shape.position, 1, world)
            foot = centre - R[:, 2] * ((centre - p) @ R[:, 2])
            scene.add_grid(
                f"/static/{item.name}",
                width=16.0 * radius,
                height=16.0 * radius,
                cell_size=cell,
                section_size=5.0 * cell,
                fade_distance=16.0 * radius,
                cell_color=(214, 214, 210),
                section_color=(190, 190, 186),
                plane_color=(236, 236, 232),
                plane_opacity=1.0,
                shadow_opacity=0.35,
                position=foot,
                wxyz=_wxyz(R),
            )
    for item, link, mesh in meshes:
        if link == WORLD:
            scene.add_mesh_simple(f"/static/{item.name}", *mesh, color=STATIC, side="double")


def _round(x: float) -> float:
    """Return the largest of ..., 0.1, 0.2, 0.5, 1, 2, 5, ... that is not above a number."""
    power = 10.0 ** np.floor(np.log10(x))
    return float(power * max(digit for digit in (1.0, 2.0, 5.0) if digit * power <= x * (1 + 1e-9)))


def _wxyz(R: np.ndarray) -> np.ndarray:
    """Return the quaternion of a rotation matrix."""
    import viser.transforms as tf

    return tf.SO3.from_matrix(R).wxyz


def _record(
    server: Any,
    moments: Film,
    meshes: Sequence[LinkMesh],
    poses: dict[str, Any],
    pushes: _Arrows,
    cloud: _Particles | None,
    title: str,
    top: np.ndarray,
) -> str:
    """Record the moments one after another and return the page that plays them."""
    scene, items = server.scene, list({id(m.item): m.item for m in meshes}.values())
    nodes = []
    for item, link, mesh in meshes:
        if link != WORLD:
            name = f"/{item.name}/{item.robot.model.links[link].name}" if item.robot else f"/{item.name}"
            node = scene.add_mesh_simple(name, *mesh, color=_color(items, item, link))
            nodes.append((node, poses[item.name][link]))
    clock = scene.add_label("/time", "", position=top, anchor="bottom-center", font_screen_scale=1.3)
    recording = server.get_scene_serializer()
    for k, time in enumerate(moments.times):
        for node, (position, wxyz) in nodes:
            node.position, node.wxyz = position[k], wxyz[k]
        clock.text = "\n".join(x for x in (title, f"{time:.2f} s", pushes.legend) if x)
        pushes.show(k)
        if cloud is not None:
            cloud.show(time)
        last = k + 1 == len(moments.times)
        recording.insert_sleep(LAST_FRAME if last else float(moments.times[k + 1] - time))
    return recording.as_html()


class _Particles:
    """Material points as a cloud, coloured by their height at the start so that one sees them move."""

    def __init__(self, scene: Any, times: Sequence[float] | np.ndarray, points: Tensor | np.ndarray) -> None:
        x = points.detach().cpu().numpy() if isinstance(points, Tensor) else np.asarray(points)
        self.times, self.points = np.asarray(times, dtype=np.float64), x.astype(np.float32)
        if x.ndim != 3 or x.shape[-1] != 3 or x.shape[:1] != self.times.shape or not x.size:
            raise PullbackError(
                f"particles are times {self.times.shape} and places {x.shape}; expected (S,) and (S, n, 3)"
            )
        low, high = x[0].min(0), x[0].max(0)
        share = ((x[0, :, 2] - low[2]) / max(high[2] - low[2], 1e-9))[:, None]
        colors = (np.array(CLOUD[0]) * (1.0 - share) + np.array(CLOUD[1]) * share).astype(np.uint8)
        size = 0.5 * float(np.prod(np.maximum(high - low, 1e-9)) / x.shape[1]) ** (1.0 / 3.0)
        self.node = scene.add_point_cloud("/particles", self.points[0], colors, point_size=size, point_shape="circle")

    def show(self, time: float) -> None:
        """Show the points at the time nearest to this."""
        self.node.points = self.points[int(np.abs(self.times - time).argmin())]


class _Arrows:
    """Forces as arrows, all of one scale: three of four are shorter than a third of the stage's radius."""

    def __init__(self, scene: Any, moments: Sequence[Forces], radius: float) -> None:
        sizes = np.concatenate([np.zeros(0), *(np.linalg.norm(m.forces, axis=1) for m in moments)])
        sizes = sizes[sizes > 0.0]
        self.moments = list(moments)
        self.node = None
        self.legend = ""
        if not len(sizes):
            return
        usual = float(np.quantile(sizes, 0.75))
        self.weakest = WEAKEST * usual
        self.longest = radius
        # a round number of newtons to a decimetre
        newtons = _round(0.3 * usual / radius)
        self.scale = 0.1 / newtons
        self.legend = f"arrows: {newtons:g} N are 0.1 m"
        self.head = 0.05 * radius
        sizes_of = {"shaft_radius": 0.012 * radius, "head_radius": 0.028 * radius, "head_length": self.head}
        self.node = scene.add_arrows("/forces", np.zeros((1, 2, 3)), FORCE, visible=False, **sizes_of)

    def show(self, k: int) -> None:
        """Show the forces of a moment."""
        if self.node is None:
            return
        points, forces = self.moments[k]
        sizes = np.linalg.norm(forces, axis=1)
        seen = sizes > self.weakest
        lengths = np.clip(self.scale * sizes[seen], self.head, self.longest)[:, None]
        ways = lengths * forces[seen] / sizes[seen][:, None]
        self.node.visible = bool(seen.any())
        if seen.any():
            self.node.points = np.stack([points[seen], points[seen] + ways], 1).astype(np.float32)
