"""A real browser: headless Chromium opens the live viewer and a standalone file, and the tests look at pixels."""

from __future__ import annotations

import contextlib
import io
import shutil
import time

import numpy as np
import pytest
import torch

import pullback as pb

pytest.importorskip("viser")
playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright: pip install -e '.[dev]'")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine: apt install chromium")

# a software renderer, and no network but this machine
FLAGS = ["--no-sandbox", "--use-gl=angle", "--use-angle=swiftshader", "--enable-unsafe-swiftshader"]
FLAGS += ["--ignore-gpu-blocklist", "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE localhost, EXCLUDE 127.0.0.1"]
WIDTH, HEIGHT = 760, 420
PANEL = 440
"""Left of this column there are no sliders."""
SECONDS = 180.0


class Page:
    """A page in the browser: what it looks like, and what it complained of."""

    def __init__(self, browser, url: str) -> None:
        self.page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
        self.errors: list[str] = []
        self.page.on("console", lambda m: self.errors.append(m.text) if m.type == "error" else None)
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.goto(url)
        self.page.wait_for_selector("canvas", timeout=1e3 * SECONDS)
        # a greeting about software rendering would hide a corner
        self.page.add_style_tag(content=".mantine-Notifications-root, [class*='Notification'] {display: none}")

    def picture(self) -> np.ndarray:
        """Return the part (H, W, 3) of the page where no sliders are."""
        from PIL import Image

        clip = {"x": 0, "y": 0, "width": PANEL - 100, "height": HEIGHT}
        taken = self.page.screenshot(clip=clip, timeout=1e3 * SECONDS)
        return np.asarray(Image.open(io.BytesIO(taken)).convert("RGB")).astype(int)

    def until(self, condition, what: str):
        """Return what a condition of the picture gives once it holds."""
        end = time.monotonic() + SECONDS
        while True:
            found = condition(self.picture())
            if found is not None and found is not False:
                return found
            assert time.monotonic() < end, what
            self.page.wait_for_timeout(100)

    def drawn(self, color: str = "orange") -> np.ndarray:
        """Return row and column of the middle of a ball once it is seen."""
        return self.until(lambda picture: middle(picture, color), f"nothing {color} is drawn")


def middle(picture: np.ndarray, color: str) -> np.ndarray | None:
    red, green, blue = np.moveaxis(picture, -1, 0)
    masks = {"orange": (red > green + 25) & (green > blue + 25), "blue": (blue > green + 20) & (green > red + 10)}
    places = np.stack(masks[color].nonzero(), -1)
    return places.mean(0) if len(places) > 30 else None


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, headless=True, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def falling() -> tuple[pb.Sim, pb.Trajectory]:
    world = pb.World()
    world.add_ground()
    world.add_sphere("ball", radius=0.15, mass=1.0, position=(0.0, 0.0, 1.0))
    sim = world.compile(dt=5e-3, dtype=torch.float64)
    return sim, sim.rollout(sim.initial_state(), 80)


@contextlib.contextmanager
def opened(browser, what: pb.viewer.Viewer | str):
    """Open a page, and close it and its viewer whatever happens; nobody complained meanwhile."""
    page = None
    try:
        page = Page(browser, what if isinstance(what, str) else what.url)
        yield page
        assert page.errors == []
        assert isinstance(what, str) or what.error is None
    finally:
        if page is not None:
            page.page.close()
        if not isinstance(what, str):
            what.stop()


def moved(now: np.ndarray | None, before: np.ndarray, pixels: float) -> bool:
    return now is not None and bool(np.abs(now - before).max() > pixels)


def test_a_slider_moves_the_robot_on_the_page(browser) -> None:
    viewer = pb.view(pb.load("pendulum2"), port=None, block=False)
    with opened(browser, viewer) as page:
        before = page.drawn("blue")
        _, _, slider = viewer.panel.joints.sliders[0]
        handle = page.page.get_by_role("slider").first
        handle.wait_for(timeout=1e3 * SECONDS)
        handle.focus()
        # from hanging down to pointing up
        page.page.keyboard.press("Home")
        page.until(lambda picture: moved(middle(picture, "blue"), before, 10.0), "the robot does not move on the page")
        assert slider.value == slider.min


@pytest.mark.slow
def test_physics_runs_and_a_body_is_dragged(browser, falling) -> None:
    viewer = pb.view(falling[0], port=None, block=False)
    with opened(browser, viewer) as page:
        before = page.drawn()
        page.page.get_by_role("button", name="run", exact=True).click()
        page.until(lambda picture: moved(middle(picture, "orange"), before, 30.0), "the ball does not fall")
        panel = viewer.panel
        page.until(lambda picture: abs(float(panel.physics.state.qd[0, 5])) < 0.01, "the ball does not come to rest")
        # the arrow of the handle that points upwards
        place, up = np.array(panel.handle.position), np.array([0.0, 0.0, 1.0])
        low, high = screen(viewer, place + 0.75 * panel.handle.scale * up), screen(viewer, place + 0.9 * up)
        page.page.mouse.move(*low)
        page.page.wait_for_timeout(1000)
        page.page.mouse.down()
        for share in np.linspace(0.1, 1.0, 10):
            page.page.mouse.move(*(low + share * (high - low)))
            page.page.wait_for_timeout(100)
        page.until(lambda picture: float(panel.physics.state.q[0, 2]) > 0.4, "the spring does not lift the ball")
        page.page.mouse.up()


def screen(viewer: pb.viewer.Viewer, point: np.ndarray) -> np.ndarray:
    """Return the pixel (x, y) at which the page's camera sees a point."""
    (client,) = viewer.server.get_clients().values()
    camera = client.camera
    forward = np.array(camera.look_at) - camera.position
    forward /= np.linalg.norm(forward)
    right = np.cross(forward, [0.0, 0.0, 1.0])
    right /= np.linalg.norm(right)
    seen = np.stack([right, np.cross(forward, right), forward]) @ (point - camera.position)
    focal = 0.5 * HEIGHT / np.tan(0.5 * camera.fov)
    return np.array([0.5 * WIDTH, 0.5 * HEIGHT]) + focal * seen[:2] / seen[2]


@pytest.mark.slow
def test_a_trajectory_is_played_and_paused_on_the_page(browser, falling) -> None:
    viewer = pb.view(*falling, port=None, block=False)
    with opened(browser, viewer) as page:
        before = page.drawn()
        page.until(lambda picture: moved(middle(picture, "orange"), before, 20.0), "it does not play")
        page.page.get_by_role("button", name="pause", exact=True).click()
        page.page.get_by_role("button", name="play", exact=True).wait_for(timeout=1e3 * SECONDS)
        assert viewer.panel.playing is False


@pytest.mark.slow
def test_a_standalone_file_plays_without_a_network(browser, falling, tmp_path) -> None:
    file = pb.viewer.save_replay(*falling, tmp_path / "fall.html", title="falls")
    with opened(browser, file.as_uri()) as page:
        before = page.drawn()
        page.until(lambda picture: moved(middle(picture, "orange"), before, 20.0), "it does not play")


@pytest.mark.slow
def test_a_part_is_drawn_by_its_temperature(browser, tmp_path) -> None:
    th = pb.thermal
    mesh = th.box_on_plate(size=(0.004, 0.002, 0.002), cell=(1e-3, 1e-3, 1e-3), plate=(0.006, 0.004, 0.001))
    path = th.layers(mesh, speed=7e-3, hatch=2e-3, dwell=0.2)
    process = th.Process(
        mesh, path, material=th.material("in718"), births=th.births(mesh, path), dt=0.02, duration=path.duration,
        source=th.Gaussian(radius=1.12e-3, absorptivity=0.4), fixed={"bottom": 300.0},
    )  # fmt: skip
    history = process.run(300.0, snapshots=range(0, process.steps + 1, 4))
    file = pb.viewer.save_replay(process, history, tmp_path / "wall.html", limits=(300.0, 1300.0))
    for what in (file.as_uri(), pb.view(process, history, limits=(300.0, 1300.0), port=None, block=False)):
        with opened(browser, what) as page:
            # cold metal is nearly black, and hot metal orange
            page.until(lambda picture: (picture.sum(-1) < 120).sum() > 300, "no cold metal is drawn")
            page.drawn("orange")


@pytest.mark.slow
def test_gradients_and_particles_are_drawn(browser, falling, tmp_path) -> None:
    sim, _ = falling
    start = sim.initial_state()
    motion = sim.rollout(pb.State(start.q.requires_grad_(), start.qd, start.impulses), 40)
    motion.q.retain_grad()
    motion.q[-1, 0, 2].backward()
    cloud = torch.rand(3, 400, 3) * 0.3 + torch.tensor([-0.6, -0.15, 0.0])
    file = pb.viewer.save_replay(
        sim, motion, tmp_path / "arrows.html", gradients={"ball": motion.q.grad[..., :3]},
        particles=([0.0, 0.1, 0.2], cloud),
    )  # fmt: skip

    def green(picture: np.ndarray) -> bool:
        red, green, blue = np.moveaxis(picture, -1, 0)
        return ((green > red + 30) & (green > blue + 15)).sum() > 15

    def crimson(picture: np.ndarray) -> bool:
        red, green, blue = np.moveaxis(picture, -1, 0)
        return ((red > green + 60) & (blue > green - 20)).sum() > 15

    with opened(browser, file.as_uri()) as page:
        page.until(green, "no gradient is drawn")
        page.until(crimson, "no particles are drawn")
