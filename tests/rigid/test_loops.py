"""Closed loops: a four-bar linkage against geometry and MuJoCo, welds, gradients, and what is refused."""

import numpy as np
import pytest
import torch

import pullback as pb
from checks.conformance import AGREE, failures, measure
from checks.conformance_loops import loop_cases
from pullback.description.compile import compile_tree
from pullback.description.load import read
from pullback.description.tree import Loop, Pose
from pullback.description.urdf_writer import write_urdf
from pullback.rigid.world.items import rotation_matrix
from tests.rigid.loop_scenes import (
    AXIS,
    BARS,
    F64,
    closed_angles,
    closed_q,
    four_bar,
    four_bar_tree,
    gap,
)

DT = 1e-3
CASES = {case.name: case for case in loop_cases()}


def swing(world: pb.World, steps: int = 1000, dt: float = DT, dtype=F64) -> tuple[pb.Sim, pb.Trajectory]:
    """Return a second of motion without forces."""
    sim = world.compile(dt=dt, dtype=dtype)
    controls = torch.zeros(steps, 1, sim.nu, dtype=dtype)
    return sim, sim.rollout(sim.initial_state(), controls, check=True)


def energy_error(sim: pb.Sim, states: pb.Trajectory) -> float:
    """Return how far the energy strays from its start."""
    kinetic, potential = sim.energies(pb.State(states.q[:, 0], states.qd[:, 0]))
    total = kinetic + potential
    return float((total - total[0]).abs().max())


# -- motion ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["connect", "hinge"])
def test_a_four_bar_linkage_stays_closed(kind):
    _, states = swing(four_bar(kind=kind))
    q = states.q[:, 0]
    assert q[:, 0].max() - q[:, 0].min() > 3.0
    assert int(states.status.unconverged) == 0
    assert float(gap(q).max()) < 6e-5
    coupler, rocker = closed_angles(-q[:, 0].numpy())
    for ours, theirs in ((-(q[:, 0] + q[:, 1]).numpy(), coupler), (-q[:, 2].numpy(), rocker)):
        assert np.abs(np.sin(ours - theirs)).max() < 1e-4


def test_the_energy_error_is_of_first_order():
    coarse, fine = (energy_error(*swing(four_bar(), steps=n, dt=1.0 / n)) for n in (500, 1000))
    assert fine < 0.05
    assert 1.7 < coarse / fine < 2.3


def test_the_loop_opens_with_the_square_of_the_step():
    coarse, fine = (float(gap(swing(four_bar(), n, 1.0 / n)[1].q[:, 0]).max()) for n in (500, 1000))
    assert 3.0 < coarse / fine < 5.0


def test_redundant_rows_change_nothing():
    ends = [swing(four_bar(kind=kind))[1].q[-1] for kind in ("connect", "hinge")]
    torch.testing.assert_close(ends[0], ends[1], rtol=0.0, atol=1e-8)


@pytest.mark.parametrize("options", [{"warm_start": True}, {"gradient": "unrolled", "iterations": 2000}])
def test_other_settings_find_the_same_motion(options):
    usual = swing(four_bar(), 300)[1].q[-1]
    other = swing(four_bar(pb.PGS(**options)), 300)[1].q[-1]
    torch.testing.assert_close(usual, other, rtol=0.0, atol=1e-7)


def test_float32_stays_closed():
    _, states = swing(four_bar(dtype=torch.float32), dtype=torch.float32)
    assert float(gap(states.q[:, 0].double()).max()) < 1e-4
    double = swing(four_bar())[1]
    assert float((states.q[-1].double() - double.q[-1]).abs().max()) < 2e-3


def test_a_start_that_is_a_little_open_is_closed():
    world = four_bar()
    sim = world.compile(dt=DT, dtype=F64)
    q = closed_q(1.0) + torch.tensor([0.0, 0.01, 0.0], dtype=F64)
    states = sim.rollout(pb.State(q[None], torch.zeros(1, 3, dtype=F64)), torch.zeros(30, 1, 3, dtype=F64))
    gaps = gap(states.q[:, 0])
    assert float(gaps[0]) > 5e-3
    assert float(gaps[-1]) < 1e-5
    assert float(states.qd[-1].abs().max()) < 5.0


def two_spheres(kind: str) -> pb.World:
    """Return two bodies in empty space that are held together at a point between them."""
    world = pb.World(gravity=(0, 0, 0))
    world.add_sphere("a", radius=0.1, mass=1.0, position=(0, 0, 1), orientation=(0.1, 0.2, 0.3, 1.0))
    world.add_sphere("b", radius=0.05, mass=0.3, position=(0.4, 0.1, 1.2), orientation=(0.3, -0.2, 0.1, 1.0))
    axis = {"axis": (0.3, 0.5, -0.7)} if kind == "hinge" else {}
    getattr(world, kind)("a", "b", position_a=(0.1, 0.2, 0.05), **axis)
    return world


@pytest.mark.parametrize(("kind", "held"), [("connect", 0), ("hinge", 1), ("weld", 3)])
def test_bodies_in_space_keep_their_momentum(kind, held):
    world = two_spheres(kind)
    sim = world.compile(dt=DT, dtype=F64)
    state = sim.initial_state()
    state.qd[:] = torch.randn(12, generator=torch.Generator().manual_seed(1), dtype=F64)
    states = sim.rollout(state, 500)
    rows = sim.parameters()
    totals = sim._programs.momentum()(states.q[:, 0], states.qd[:, 0], rows.placements, rows.inertias)
    # from the first step on, which makes the velocities fit the loop: linear momentum to the last digits
    torch.testing.assert_close(totals[1:, 3:6], totals[:1, 3:6].expand(500, 3), rtol=0.0, atol=1e-12)
    drift = (totals[1:, :3] - totals[1, :3]).abs().max()
    assert float(drift) < 5e-3 * float(totals[1, :3].norm())
    # how many directions of one body stay where they were, seen from the other
    seen = [
        rotation_matrix(q[3:7].numpy()).T @ rotation_matrix(q[10:14].numpy()) for q in (states.q[0, 0], states.q[-1, 0])
    ]
    turn = seen[0].T @ seen[1]
    kept = np.sum(np.abs(np.linalg.eigvals(turn) - 1.0) < 1e-4)
    # any turn keeps its own axis
    assert kept == max(held, 1)
    if kind == "hinge":
        axis = np.array([0.3, 0.5, -0.7])
        np.testing.assert_allclose(seen[0].T @ axis, seen[1].T @ axis, atol=1e-4)


# -- gradients -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", list(CASES))
def test_gradients_agree_with_central_differences(name):
    row = measure(CASES[name], [("cone", "implicit"), ("cone", "unrolled")], single=False)
    assert not failures(row)
    assert row.modes < AGREE
    assert not any(result.kinks for result in row.results.values())


@pytest.mark.parametrize("warm_start", [False, True])
def test_gradients_of_the_linkage(warm_start):
    """By a mass, an anchor, the initial state and torques, over 100 steps."""
    generator = torch.Generator().manual_seed(2)
    values = {
        "mass": torch.tensor(1.6, dtype=F64),
        "anchor": torch.tensor([0.8, 0.0, 0.0], dtype=F64),
        "qd": torch.randn(3, generator=generator, dtype=F64),
        "u": torch.randn(100, 3, generator=generator, dtype=F64),
    }

    def loss(x: dict[str, torch.Tensor]) -> torch.Tensor:
        contact = pb.PGS(tolerance=1e-13, warm_start=warm_start)
        world = four_bar(contact, position_a=x["anchor"], position_b=(BARS["rocker"], 0.0, 0.0))
        world.robots["bars"].set_link_param("coupler", "mass", x["mass"])
        sim = world.compile(dt=2e-3, dtype=F64)
        start = sim.initial_state()
        end = sim.rollout(pb.State(start.q, x["qd"][None], start.impulses), x["u"][:, None])[-1]
        return (end.q * torch.tensor([0.3, -1.0, 0.7], dtype=F64)).sum() + 0.1 * end.qd.sum()

    leaves = {name: value.clone().requires_grad_() for name, value in values.items()}
    found = torch.autograd.grad(loss(leaves), list(leaves.values()))
    for name, gradient in zip(values, found):
        d = torch.randn(values[name].shape, generator=generator, dtype=F64)
        with torch.no_grad():
            errors = []
            for h in (1e-5, 1e-6):
                up, down = (loss(values | {name: values[name] + s * h * d}) for s in (1.0, -1.0))
                errors.append(abs(float((up - down) / (2 * h) - (gradient * d).sum())))
        assert min(errors) < 1e-6 * max(1.0, abs(float((gradient * d).sum()))), name


def test_linearize_is_the_gradient_of_a_step():
    sim, states = swing(four_bar(), 20)
    maps = sim.linearize(states, torch.zeros(20, 1, 3, dtype=F64))
    state = torch.cat([states.q[10, 0], states.qd[10, 0]])

    def after(x: torch.Tensor) -> torch.Tensor:
        end = sim.step(pb.State(x[None, :3], x[None, 3:]))
        return torch.cat([end.q[0], end.qd[0]])

    expected = torch.autograd.functional.jacobian(after, state)
    torch.testing.assert_close(maps.A[10, 0], expected, rtol=1e-9, atol=1e-9)


# -- files -----------------------------------------------------------------------------------------------------------

MJCF = """
<mujoco>
  <compiler angle="radian"/>
  <option timestep="1e-4" solver="Newton" iterations="200" tolerance="1e-14"/>
  <worldbody>
    <body name="ground" pos="0.1 0 1">
      <geom type="sphere" size="0.02" contype="0" conaffinity="0"/>
      <site name="on_ground" pos="0.75 0 0"/>
      <body name="crank">
        <joint name="crank_joint" axis="0 1 0"/>
        <geom type="capsule" fromto="0 0 0 0 0 0.3" size="0.02" contype="0" conaffinity="0"/>
        <body name="coupler" pos="0 0 0.3">
          <joint name="coupler_joint" axis="0 1 0"/>
          <geom type="capsule" fromto="0 0 0 0.7 0 0.2" size="0.02" contype="0" conaffinity="0"/>
          <site name="end" pos="0.7 0 0.2" euler="0.3 0.2 0.1"/>
        </body>
      </body>
      <body name="rocker" pos="0.75 0 0">
        <joint name="rocker_joint" axis="0 1 0"/>
        <geom type="capsule" fromto="0 0 0 -0.05 0 0.5" size="0.02" contype="0" conaffinity="0"/>
        <site name="top" pos="-0.05 0 0.5" euler="0.3 0.2 0.1"/>
        <body name="flag" pos="0 0 0.2" euler="0.1 0.2 0.3">
          <joint name="flag_joint" type="ball"/>
          <geom type="box" size="0.1 0.05 0.02" pos="0 0.1 0" contype="0" conaffinity="0"/>
        </body>
      </body>
    </body>
  </worldbody>
  <equality>{equality}</equality>
</mujoco>
"""
STIFF = 'solref="2e-4 5" solimp="0.999 0.9999 0.001 0.5 2"'
EQUALITIES = {
    "bodies": f'<connect body1="coupler" body2="rocker" anchor="0.7 0 0.2" {STIFF}/>',
    "sites": f'<connect site1="end" site2="top" {STIFF}/>',
    "weld of bodies": f'<connect site1="end" site2="top" {STIFF}/>'
    f'<weld body1="flag" body2="rocker" anchor="0.1 0.2 0.3" {STIFF}/>',
    "weld to the world": f'<weld body1="flag" body2="world" {STIFF}/><joint name="j" joint1="crank_joint"/>',
}


@pytest.mark.parametrize("name", list(EQUALITIES))
def test_mjcf_moves_as_in_mujoco(name, tmp_path):
    mujoco = pytest.importorskip("mujoco")
    path = tmp_path / "bars.xml"
    path.write_text(MJCF.format(equality=EQUALITIES[name]))
    world = pb.World()
    world.add(pb.load(path, dtype=F64), name="bars", collision_links=[], actuators={})
    assert len(world.loops) == EQUALITIES[name].count("<connect") + EQUALITIES[name].count("<weld")
    sim = world.compile(dt=1e-4, dtype=F64)
    state = sim.initial_state()
    model = mujoco.MjModel.from_xml_path(str(path))
    if name == "weld to the world":
        # the loop leaves the first two bars alone, and the crank is not held here
        assert any("equality constraint 'j': it holds 1 joints" in p for p in read(path).problems)
        model.eq_active0[1] = 0
    data = mujoco.MjData(model)
    states = sim.rollout(state, 10000, checkpoint=10000, check=True)
    mujoco.mj_step(model, data, 10000)
    ours = states.q[-1, 0, :3].numpy()
    assert np.abs(ours).max() > 4.0
    np.testing.assert_allclose(ours, data.qpos[:3], atol=2e-4)


URDF_LOOP = (
    '<loop_joint name="close" type="{}"><link1 link="coupler" xyz="{} 0 0"/><link2 link="rocker" {}/></loop_joint>'
)


def test_urdf_closes_loops(tmp_path):
    q = closed_q(1.0)
    angle = float(q[0] + q[1] - q[2])
    frames = [Pose(np.array([BARS["coupler"], 0, 0])), Pose(np.array([BARS["rocker"], 0, 0]))]
    path = write_urdf(four_bar_tree([Loop("close", "connect", "coupler", "rocker", *frames)]), tmp_path / "bars.urdf")
    text = path.read_text()
    assert '<loop_joint name="close" type="spherical">' in text
    place = f'xyz="{BARS["rocker"]} 0 0" rpy="0 {angle} 0"'
    start = text.index("<loop_joint")
    ends = [swing(four_bar(), 200)[1].q[-1]]
    for kind, axis in (("spherical", ""), ("revolute", '<axis xyz="0 1 0"/></loop_joint>')):
        element = URDF_LOOP.format(kind, BARS["coupler"], place).replace("</loop_joint>", axis or "</loop_joint>")
        path.write_text(text[:start] + element + "</robot>")
        world = pb.World()
        world.add(pb.load(path, dtype=F64), q=q)
        ends.append(swing(world, 200)[1].q[-1])
        torch.testing.assert_close(ends[-1], ends[0], rtol=0.0, atol=1e-8)
    again = read(write_urdf(read(path), tmp_path / "again.urdf")).loops[0]
    assert again.kind == "hinge"
    np.testing.assert_allclose(again.frame_b.rotation[:, 2], AXIS, atol=1e-12)


# -- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("bars/copler", "bars/rocker"), "no link named 'bars/copler'; did you mean 'bars/coupler'"),
        (("bar/coupler",), "no robot or free body named 'bar'; did you mean 'bars'"),
        (("bars", "bars/rocker"), "no link named 'bars'"),
        (("bars/rocker", "bars/rocker"), "cannot move against each other"),
        (("bars/ground",), "cannot move against each other"),
    ],
)
def test_links_that_cannot_be_held(arguments, message):
    with pytest.raises(pb.PullbackError, match=message):
        four_bar().connect(*arguments)


def test_an_open_loop_is_refused():
    world = four_bar(position_b=(BARS["rocker"] - 0.02, 0.0, 0.0))
    with pytest.raises(pb.PullbackError, match=r"open at the start: .* 0\.02 m apart; start from coordinates"):
        world.compile(dt=DT)
    world = pb.World()
    world.add_sphere("a", radius=0.1, mass=1.0)
    world.weld("a", orientation_b=(0.1, 0.0, 0.0, 1.0))
    with pytest.raises(pb.PullbackError, match=r"turned by 0\.199 rad"):
        world.compile(dt=DT)


def test_settings_that_loops_do_not_go_with():
    with pytest.raises(pb.PullbackError, match="give cfm > 0"):
        four_bar(pb.PGS(cfm=0.0)).compile(dt=DT)
    with pytest.raises(pb.PullbackError, match="give position_b too"):
        four_bar(position_a=torch.tensor([0.8, 0.0, 0.0], requires_grad=True))
    with pytest.raises(pb.PullbackError, match="no option named 'positon_a'"):
        four_bar(positon_a=(0, 0, 0))
    with pytest.raises(pb.PullbackError, match="loop_erp"):
        pb.PGS(loop_erp=2.0)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('type="spherical"', 'type="ball"', "choose from: spherical, revolute, fixed"),
        ('link="coupler"', 'link="couple"', "did you mean 'coupler'"),
        ('link="coupler"', 'link="rocker"', "holds link 'rocker' to itself"),
        ("<link1 ", "<link3 ", "no link1"),
    ],
)
def test_loop_joints_that_cannot_be_read(old, new, message, tmp_path):
    loop = Loop("close", "connect", "coupler", "rocker", Pose(), Pose())
    path = write_urdf(four_bar_tree([loop]), tmp_path / "bars.urdf")
    start = path.read_text().index("<loop_joint")
    text = path.read_text()
    path.write_text(text[:start] + text[start:].replace(old, new, 1))
    with pytest.raises(pb.PullbackError, match=message):
        read(path)


def test_bodies_held_together_do_not_touch():
    world = pb.World()
    for name, x in (("a", 0.0), ("b", 0.15)):
        world.add_sphere(name, radius=0.1, mass=1.0, position=(x, 0, 0))
    world.connect("a", "b", position_a=(0.075, 0, 0))
    assert world.compile(dt=DT, dtype=F64).arrays.npair == 0


def test_a_description_with_a_loop_to_the_world_has_no_urdf(tmp_path):
    tree = compile_tree(four_bar_tree([Loop("close", "weld", "rocker", None)])).tree
    with pytest.raises(pb.PullbackError, match="no word for"):
        write_urdf(tree, tmp_path / "bars.urdf")
