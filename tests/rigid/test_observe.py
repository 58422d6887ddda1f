"""What is seen of states, as tensors with gradients: links against robots, contacts against the report."""

import pytest
import torch

import pullback as pb

F64 = torch.float64


def arm_and_ball() -> pb.Sim:
    """Return a Panda that stands off the origin, turned, and a ball in the air."""
    world = pb.World()
    robot = pb.load("panda", dtype=F64)
    world.add_sphere("ball", radius=0.1, mass=1.0, position=(1.0, 0.0, 1.0))
    world.add(robot, name="arm", position=(0.3, -0.2, 0.1), orientation=(0, 0, 0.6, 0.8), collision_links=[])
    return world.compile(dt=1e-3, dtype=F64)


def random_state(sim: pb.Sim, batch: int, seed: int = 0) -> pb.State:
    """Return states all over."""
    generator = torch.Generator().manual_seed(seed)
    start = sim.initial_state(batch)
    dx = torch.randn(batch, 2 * sim.nv, dtype=F64, generator=generator)
    return sim.retract(start, dx)


LINKS = ["arm/panda_link3", "ball", "arm/panda_link7", "arm/panda_link0"]
OFFSET = torch.tensor([[0.1, 0.2, 0.3], [0.0, 0.0, 0.1], [0.05, -0.1, 0.2], [0.3, 0.1, 0.0]], dtype=F64)


def test_link_poses_are_those_of_the_robot():
    sim = arm_and_ball()
    state = random_state(sim, 3)
    p, quat = sim.link_poses(state, LINKS, OFFSET)
    assert p.shape == (3, 4, 3)
    assert quat.shape == (3, 4, 4)
    at = torch.tensor([0.3, -0.2, 0.1], dtype=F64)
    turn = torch.tensor([[0.28, -0.96, 0.0], [0.96, 0.28, 0.0], [0.0, 0.0, 1.0]], dtype=F64)
    robot = sim.world.robots["arm"]
    for k in (0, 2):
        origin, orientation = robot.compute_forward_kinematics(state.q[:, 7:], LINKS[k].split("/")[1])
        x, y, z, w = orientation.unbind(-1)
        axis = torch.stack([x, y, z], -1)
        d = OFFSET[k].expand(3, 3)
        moved = d + 2 * torch.linalg.cross(axis, torch.linalg.cross(axis, d) + w[:, None] * d)
        torch.testing.assert_close(p[:, k], (origin + moved) @ turn.mT + at)
    # a free body is where its coordinates say
    torch.testing.assert_close(sim.link_poses(state, ["ball"])[0][:, 0], state.q[:, :3])


def test_link_velocities_are_rates_of_poses_and_jacobians_of_rates():
    sim = arm_and_ball()
    state, h = random_state(sim, 3), 1e-6
    v, omega = sim.link_velocities(state, LINKS, OFFSET)
    ends = [sim.retract(state, torch.cat([s * h * state.qd, 0 * state.qd], -1)) for s in (1.0, -1.0)]
    forward, back = (sim.link_poses(end, LINKS, OFFSET)[0] for end in ends)
    torch.testing.assert_close(v, (forward - back) / (2 * h), rtol=0.0, atol=1e-8)
    for k, link in enumerate(LINKS):
        J = sim.link_jacobian(state, link, OFFSET[k])
        expected = (J @ state.qd[..., None])[..., 0]
        torch.testing.assert_close(torch.cat([v[:, k], omega[:, k]], -1), expected, rtol=0.0, atol=1e-12)


def test_gradients_of_links():
    """By state, offset and a link's place, with batched cotangents."""
    sim = arm_and_ball()
    state = random_state(sim, 2)
    place = torch.tensor([[0.02, -0.3, 0.1]], dtype=F64)

    def seen(q, qd, offset, place):
        sim.world.robots["arm"].set_link_param("panda_link3", "trans", place)
        now = pb.State(q, qd)
        # quaternions of robots are normalised, those of free bodies are what they are
        return *sim.link_poses(now, LINKS, offset), *sim.link_velocities(now, LINKS, offset)

    inputs = [x.clone().requires_grad_() for x in (state.q, state.qd, OFFSET, place)]
    assert torch.autograd.gradcheck(seen, inputs, check_batched_grad=True, fast_mode=True)
    jacobian = lambda q: sim.link_jacobian(pb.State(q, state.qd), LINKS[0], OFFSET[0])  # noqa: E731
    assert torch.autograd.gradcheck(jacobian, inputs[:1], check_batched_grad=True, fast_mode=True)


def test_offsets_that_do_not_fit():
    sim = arm_and_ball()
    with pytest.raises(pb.PullbackError, match=r"offset has shape \(3, 3\); expected \(3,\), \(4, 3\) or \(B, 4, 3\)"):
        sim.link_poses(sim.initial_state(), LINKS, torch.zeros(3, 3, dtype=F64))
    with pytest.raises(pb.PullbackError, match="states of 2 worlds, parameters or offsets of 3; give as many"):
        sim.link_poses(sim.initial_state(2), LINKS, torch.zeros(3, 4, 3, dtype=F64))
    with pytest.raises(pb.PullbackError, match="no link named 'arm/panda_link33'; did you mean"):
        sim.link_poses(sim.initial_state(), ["arm/panda_link33"])


# -- contacts --------------------------------------------------------------------------------------------------------

SOLVERS = {
    "sweeps": pb.PGS(tolerance=1e-13),
    "warm start": pb.PGS(tolerance=1e-13, warm_start=True),
    "few sweeps, unrolled": pb.PGS(gradient="unrolled", iterations=10, tolerance=0.0),
    "exact": pb.Exact(cfm=1e-3),
    "compliant": pb.Compliant(stiffness=1e4, onset=1e-3),
}
RADIUS, MASS = 0.1, 1.5


def pushed(contact: pb.PGS | pb.Compliant, mu: torch.Tensor | float = 0.4) -> pb.Sim:
    """Return a ball on the ground, against another one."""
    world = pb.World(contact=contact)
    world.add_ground(friction=mu)
    world.add_sphere("ball", radius=RADIUS, mass=MASS, position=(0.0, 0.0, 0.0995), friction=mu)
    world.add_sphere("other", radius=0.12, mass=1.0, position=(0.2195, 0.0, 0.1195), friction=mu)
    return world.compile(dt=1e-3, dtype=F64)


def rolling(sim: pb.Sim, worlds: int = 2) -> pb.State:
    """Return the balls as they move, a little off, in two worlds."""
    start = sim.initial_state(worlds)
    generator = torch.Generator().manual_seed(3)
    qd = 0.3 * torch.randn(worlds, sim.nv, dtype=F64, generator=generator)
    qd[:, 3] = 0.5
    # pressed to the ground
    qd[:, [5, 11]] = -0.05
    return pb.State(start.q, qd, start.impulses)


def test_contacts_are_those_of_the_report():
    sim = pushed(pb.PGS())
    state = rolling(sim)
    found = sim.contact_tensors(state)
    for w, contacts in enumerate(sim.contacts(state)):
        assert int((found.pair[w] >= 0).sum()) == len(contacts) == 3
        for c, contact in enumerate(contacts):
            assert sim.pair_names[int(found.pair[w, c])] == contact.shapes
            for name in ("gap", "point", "normal", "force"):
                expected = torch.tensor(getattr(contact, name), dtype=F64)
                torch.testing.assert_close(getattr(found, name)[w, c], expected)
        # the rest is empty
        assert not found.force[w, len(contacts) :].any()


def test_wrenches_are_the_change_of_momentum():
    sim = pushed(pb.PGS(tolerance=1e-13))
    state = rolling(sim)
    state.qd[:, :3] = 0.0
    after = sim.step(state)
    force, torque = sim.contact_wrenches(state, ["ball"])
    # velocities of free bodies are in their own axes, which are the world's before the step
    v = sim.link_velocities(after, ["ball"])[0] - sim.link_velocities(state, ["ball"])[0]
    weight = torch.tensor([0.0, 0.0, -9.81], dtype=F64)
    torch.testing.assert_close(force, MASS * (v / sim.dt - weight), rtol=0.0, atol=1e-6)
    spin = after.qd[:, :3] - state.qd[:, :3]
    torch.testing.assert_close(torque[:, 0], 0.4 * MASS * RADIUS**2 * spin / sim.dt, rtol=0.0, atol=1e-6)
    one, _ = sim.contact_wrenches(state, ["ball", "other"], other="ground")
    assert one[..., 2].min() > 5.0
    both = sim.contact_wrenches(state, ["ball"], other="other")[0] + one[:, :1]
    torch.testing.assert_close(both, force)


@pytest.mark.parametrize("name", SOLVERS)
def test_gradients_of_contact_forces(name):
    """By state and friction: sliding and pressed contacts, forces, points, normals and gaps."""
    sim = pushed(SOLVERS[name])
    state = rolling(sim)
    generator = torch.Generator().manual_seed(5)
    values = {"q": state.q, "qd": state.qd, "mu": torch.tensor(0.4, dtype=F64)}
    found = sim.contact_tensors(state)
    weights = [torch.randn(x.shape, dtype=F64, generator=generator) for x in found[1:]]

    def loss(x: dict[str, torch.Tensor]) -> torch.Tensor:
        sim.world.set_shape("ball", friction=x["mu"])
        seen = sim.contact_tensors(pb.State(x["q"], x["qd"], state.impulses))
        return torch.stack([(w * part).sum() for w, part in zip(weights, seen[1:])]).sum()

    leaves = {key: value.clone().requires_grad_() for key, value in values.items()}
    gradients = torch.autograd.grad(loss(leaves), list(leaves.values()))
    for key, gradient in zip(values, gradients):
        d = torch.randn(values[key].shape, dtype=F64, generator=generator)
        given = float((gradient * d).sum())
        with torch.no_grad():
            errors = []
            for h in (1e-6, 1e-7, 1e-8):
                up, down = (loss(values | {key: values[key] + s * h * d}) for s in (1.0, -1.0))
                errors.append(abs(float((up - down) / (2 * h)) - given))
        assert abs(given) > 1e-3, key
        assert min(errors) < 1e-5 * max(1.0, abs(given)), key


def test_forces_by_controls_of_a_gripper():
    """How hard the Panda's fingers hold a ball, by the drive of one of them: half of its force each."""
    world = pb.World(gravity=(0, 0, 0))
    arm = pb.load("panda_gripper", dtype=F64)
    world.add(arm, name="arm", q={"panda_joint4": -1.5, "panda_finger_joint1": 0.0195}, actuators={
        "panda_finger_joint1": pb.Torque()}, collision_links=["panda_leftfinger", "panda_rightfinger"])  # fmt: skip
    state = world.compile(dt=1e-3, dtype=F64).initial_state()
    tip = world.compile(dt=1e-3, dtype=F64).link_poses(state, ["arm/panda_hand_tcp"])[0][0, 0]
    world.add_sphere("ball", radius=0.02, mass=0.1, position=tip.tolist())
    sim = world.compile(dt=1e-3, dtype=F64, without=["limits"])
    state = sim.initial_state()
    u = torch.tensor([[-20.0]], dtype=F64, requires_grad=True)
    fingers = ["arm/panda_leftfinger", "arm/panda_rightfinger"]
    force, _ = sim.contact_wrenches(state, fingers, u, other="ball")
    squeeze = force.norm(dim=-1)
    (slope,) = torch.autograd.grad(squeeze.sum(), u)
    with torch.no_grad():
        up, down = (sim.contact_wrenches(state, fingers, u + h, other="ball")[0].norm(dim=-1) for h in (1e-4, -1e-4))
    assert float(slope) == pytest.approx(float((up - down).sum()) / 2e-4, rel=1e-6)
    # of the drive's force, some moves the arm away
    assert 0.5 < -float(slope) <= 1.0 + 1e-6


def test_what_has_no_forces():
    world = pb.World()
    world.add_sphere("ball", radius=0.1, mass=1.0)
    sim = world.compile(dt=1e-3, dtype=F64, integrator="rk4")
    with pytest.raises(pb.PullbackError, match="is for motion without contact, so there are no contact forces"):
        sim.contact_tensors(sim.initial_state())
    sim = world.compile(dt=1e-3, dtype=F64)
    with pytest.raises(pb.PullbackError, match="no contact between 'ball' and anything else is computed"):
        sim.contact_wrenches(sim.initial_state(), ["ball"])
    with pytest.raises(pb.PullbackError, match="use contact_tensors"):
        torch.func.grad(lambda q: (sim.contacts(pb.State(q, q[:, :6])), q.sum())[1])(torch.zeros(1, 7, dtype=F64))
