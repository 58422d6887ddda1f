"""A stage in viser: the one place that draws in a browser, for replays and for the live viewer."""

from __future__ import annotations

import contextlib
import errno
import io
import socket
from typing import Any

import numpy as np

from pullback.core.errors import PullbackError
from pullback.core.extras import need_extra
from pullback.viewer.motion import Poses
from pullback.viewer.stage import FIELD_OF_VIEW, Actor, Frame, Plane, Stage, camera_position, round_down
from pullback.viewer.things import Dots, Drawn, Web

LOCAL = "127.0.0.1"
SECTION = 5.0
"""Cells of the ground between two strong lines."""


def start_server(port: int | None, *, host: str = LOCAL, label: str | None = None) -> Any:
    """Start viser without a word, on a free port if none is given; only this machine reaches it by default."""
    viser = need_extra("viser", "viz", "simulations are drawn")
    if port is None:
        with socket.socket() as probe:
            probe.bind((LOCAL, 0))
            port = int(probe.getsockname()[1])
    else:
        _check_port(host, port)
    with contextlib.redirect_stdout(io.StringIO()):
        return viser.ViserServer(host=host, port=port, label=label, verbose=False)


def stop_server(server: Any) -> None:
    """Stop viser without a word."""
    with contextlib.redirect_stdout(io.StringIO()):
        server.stop()


def _check_port(host: str, port: int) -> None:
    """Raise for a port that cannot be listened at."""
    if not isinstance(port, int) or not 0 < port < 65536:
        raise PullbackError(f"port is {port!r}; give a whole number from 1 to 65535, or None for a free one")
    with socket.socket() as probe:
        # as viser does: a port that was just closed is free
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise PullbackError(
                    f"port {port} is in use, perhaps by another viewer; stop it, or take another: --port {port + 1} on "
                    f"the command line, port={port + 1} in Python"
                ) from None
            raise PullbackError(f"cannot listen at {host}:{port}: {error.strerror}; take another port") from None


class Scene:
    """The nodes that viser draws of a stage; `show` moves them."""

    def __init__(self, server: Any, stage: Stage, frame: Frame, aside: float = 0.0) -> None:
        """Draw everything once; `aside` moves it to the left of the picture's middle, in radii of the frame."""
        self.server, self.scene = server, server.scene
        self.stage, self.frame = stage, frame
        self._look(aside)
        self.grids: list[tuple[Any, np.ndarray, np.ndarray]] = []
        """Drawn planes, each with its place and rotation."""
        for plane in stage.planes:
            self._add_plane(plane, opaque=True)
        if not stage.planes:
            # no ground to stand on, but lines tell up from down
            below = frame.centre - np.array([0.0, 0.0, frame.radius])
            self._add_plane(Plane("floor", below, np.eye(3)), opaque=False)
        self.nodes = [(actor, self._add(actor)) for actor in stage.actors]
        self.drawn: dict[str, tuple[Any, Drawn]] = {}
        """Nodes of things by name, and what they show."""

    def _look(self, aside: float) -> None:
        """Put the camera, with z upwards, and the light."""
        server, (centre, radius) = self.server, self.frame
        server.scene.set_up_direction("+z")
        camera = server.initial_camera
        camera.fov = FIELD_OF_VIEW
        position = camera_position(self.frame)
        across = np.cross(centre - position, [0.0, 0.0, 1.0])
        shift = aside * radius * across / np.linalg.norm(across)
        camera.look_at = centre + shift
        camera.position = position + shift
        camera.near, camera.far = 0.01 * radius, 200.0 * radius
        server.scene.configure_default_lights(enabled=True, cast_shadow=True)

    def _add_plane(self, plane: Plane, *, opaque: bool) -> None:
        """Draw a plane as a grid around the place of action."""
        import viser.transforms as tf

        (centre, radius), R = self.frame, plane.rotation
        cell = round_down(0.3 * radius)
        place = centre - R[:, 2] * ((centre - plane.point) @ R[:, 2])
        grid = self.scene.add_grid(
            f"/static/{plane.name}",
            width=16.0 * radius,
            height=16.0 * radius,
            cell_size=cell,
            section_size=SECTION * cell,
            fade_distance=16.0 * radius,
            cell_color=(214, 214, 210),
            section_color=(190, 190, 186),
            plane_color=(236, 236, 232),
            plane_opacity=1.0 if opaque else 0.0,
            shadow_opacity=0.35 if opaque else 0.0,
            position=place,
            wxyz=tf.SO3.from_matrix(R).wxyz,
        )
        self.grids.append((grid, place, R))

    def _add(self, actor: Actor) -> Any:
        vertices, faces = actor.mesh.vertices.astype(np.float32), actor.mesh.faces.astype(np.uint32)
        side = "double" if actor.is_static else "front"
        if len(actor.tiles) == 1:
            return self.scene.add_mesh_simple(actor.name, vertices, faces, color=actor.color, side=side)
        count = len(actor.tiles)
        return self.scene.add_batched_meshes_simple(
            actor.name,
            vertices,
            faces,
            np.tile(np.array([1.0, 0.0, 0.0, 0.0], np.float32), (count, 1)),
            np.zeros((count, 3), np.float32),
            batched_colors=actor.color,
            side=side,
            lod="off",
        )

    def move_ground(self, travel: np.ndarray) -> None:
        """Move the lines on all planes along (3,) [m]; they repeat, so that a part of a section is enough."""
        section = SECTION * round_down(0.3 * self.frame.radius)
        for grid, place, R in self.grids:
            along = travel @ R
            grid.position = place + R @ np.array([*(along[:2] % section), along[2]])

    def show(self, poses: dict[str, dict[int, Poses]], k: int = 0) -> None:
        """Move all nodes to where they are in a moment."""
        for actor, node in self.nodes:
            position, wxyz = poses[actor.item.name][actor.link]
            if len(actor.tiles) == 1:
                node.position, node.wxyz = position[k, actor.tiles[0]], wxyz[k, actor.tiles[0]]
            else:
                node.batched_positions = position[k, actor.tiles].astype(np.float32)
                node.batched_wxyzs = wxyz[k, actor.tiles].astype(np.float32)

    def draw(self, name: str, drawn: Drawn, *, visible: bool = True) -> None:
        """Draw something in place of what was drawn by this name before."""
        node, last = self.drawn.get(name, (None, None))
        if node is None:
            node = self._add_drawn(f"/{name}", drawn)
        elif drawn is not last and len(drawn.points):
            setattr(node, "vertices" if isinstance(drawn, Web) else "points", drawn.points)
        visible = visible and len(drawn.points) > 0
        if node.visible != visible:
            node.visible = visible
        self.drawn[name] = node, drawn

    def hide(self, name: str) -> None:
        """Hide what is drawn by this name, if anything is."""
        if name in self.drawn:
            self.drawn[name][0].visible = False

    def _add_drawn(self, place: str, drawn: Drawn) -> Any:
        scene = self.scene
        if isinstance(drawn, Dots):
            return scene.add_point_cloud(place, *drawn[:2], point_size=drawn.size, point_shape="circle")
        if isinstance(drawn, Web):
            options = {"color": drawn.color, "side": "double", "flat_shading": True}
            return scene.add_mesh_simple(place, drawn.points, drawn.faces, **options)
        # a node is never empty
        points = drawn.points.astype(np.float32) if len(drawn.points) else np.zeros((1, 2, 3), np.float32)
        if not drawn.head:
            return scene.add_line_segments(place, points, drawn.color, thickness=drawn.width * self.frame.radius)
        sizes = {"shaft_radius": 0.2 * drawn.head, "head_radius": 0.52 * drawn.head, "head_length": drawn.head}
        return scene.add_arrows(place, points, drawn.color, **sizes)
