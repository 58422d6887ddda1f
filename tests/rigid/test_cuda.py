"""Worlds on a GPU: the same states and gradients as on a CPU, in both types, with every kind of contact."""

import pytest
import torch

import pullback as pb

pytestmark = pytest.mark.gpu

TOES = ("toeFR", "toeFL", "toeRR", "toeRL")


def crowd(device: str, dtype: torch.dtype, smooth: str = "", tied: bool = False, **contact) -> pb.Sim:
    """Return a Laikago, a box, a capsule and a ball that touch the ground and each other, or pass through.

    The capsule may be tied to the box.
    """
    world = pb.World(contact=pb.PGS(**contact))
    dog = pb.load("laikago", base="floating", dtype=dtype, device=device)
    joints = [name for name in dog.joint_names if name != "floating_base"]
    bent = dict(zip(joints, (0.2, 0.0, -0.5) * 4))
    servo = pb.PositionServo(kp=150.0, kd=3.0, limit=100.0)
    world.add(dog, position=(0, 0, 0.4825), q=bent, actuators=servo, collision_links=TOES)
    world.add_box("box", size=(0.2, 0.2, 0.1), mass=2.0, position=(1.0, 0.0, 0.0499), friction=0.6, restitution=0.0)
    world.add_capsule("capsule", radius=0.05, length=0.1, mass=1.0, position=(1.0, 0.0, 0.1999), restitution=0.0)
    world.add_sphere("ball", radius=0.05, mass=0.5, position=(1.5, 0.0, 0.06), restitution=0.7)
    world.add_ground(friction=0.8, restitution=0.7)
    if tied:
        world.connect("capsule/capsule", "box/box", position_a=(0.05, 0.0, 0.0))
    options = {"integrator": smooth, "without": ["contacts", "limits", "friction"]} if smooth else {}
    return world.compile(dt=1e-3, dtype=dtype, device=device, **options)


def gradients(device: str, dtype: torch.dtype, steps: int = 20, **contact) -> list[torch.Tensor]:
    """Return the last states and the gradients by the initial velocity and the controls, of three worlds."""
    sim = crowd(device, dtype, **contact)
    start = sim.initial_state(3)
    generator = torch.Generator().manual_seed(0)
    qd = 0.3 * torch.randn(3, sim.nv, generator=generator, dtype=torch.float64)
    qd[:, -1] = -1.0
    qd = qd.to(dtype).to(device).requires_grad_()
    targets = torch.tensor((0.2, 0.0, -0.5) * 4, dtype=dtype, device=device)
    controls = targets.repeat(steps, 3, 1).requires_grad_()
    states = sim.rollout(pb.State(start.q, qd), controls, checkpoint=7, check=True)
    (states.q[-1].square().sum() + states.qd[-1].square().sum()).backward()
    assert qd.grad is not None
    assert controls.grad is not None
    return [x.detach().cpu().double() for x in (states.q[-1], states.qd[-1], qd.grad, controls.grad)]


@pytest.mark.parametrize("gradient", ["implicit", "unrolled"])
@pytest.mark.parametrize("friction", ["cone", "pyramid"])
def test_a_gpu_gives_what_a_cpu_gives(gradient, friction):
    expected = gradients("cpu", torch.float64, gradient=gradient, friction=friction)
    found = gradients("cuda", torch.float64, gradient=gradient, friction=friction)
    for ours, theirs in zip(found, expected):
        assert (ours - theirs).abs().max() <= 1e-6 * theirs.abs().max()


@pytest.mark.parametrize("options", [{"kinks": "downhill"}, {"tied": True}], ids=["kinks", "loop"])
def test_kinks_and_loops_on_a_gpu(options):
    expected = gradients("cpu", torch.float64, **options)
    found = gradients("cuda", torch.float64, **options)
    for ours, theirs in zip(found, expected):
        assert (ours - theirs).abs().max() <= 1e-6 * theirs.abs().max()


def test_linearize_on_a_gpu():
    found = []
    for device in ("cpu", "cuda"):
        sim = crowd(device, torch.float64)
        controls = torch.tensor((0.2, 0.0, -0.5) * 4, dtype=torch.float64, device=device).repeat(5, 2, 1)
        states = sim.rollout(sim.initial_state(2), controls)
        linear = sim.linearize(states, controls)
        found.append([x.cpu() for x in (linear.A, linear.B)])
    for ours, theirs in zip(*found):
        assert (ours - theirs).abs().max() <= 1e-6 * theirs.abs().max()


def test_float32_on_a_gpu_is_float64_to_its_precision():
    expected = gradients("cpu", torch.float64)
    found = gradients("cuda", torch.float32)
    for ours, theirs, tolerance in zip(found, expected, (1e-4, 1e-2, 2e-2, 2e-2)):
        assert (ours - theirs).abs().max() <= tolerance * theirs.abs().max()


@pytest.mark.parametrize("integrator", ["rk4", "midpoint"])
def test_steps_without_contact_on_a_gpu(integrator):
    expected = gradients("cpu", torch.float64, smooth=integrator)
    for dtype, tolerance in ((torch.float64, 1e-9), (torch.float32, 1e-3)):
        for ours, theirs in zip(gradients("cuda", dtype, smooth=integrator), expected):
            assert (ours - theirs).abs().max() <= tolerance * theirs.abs().max()


def test_closed_loop_on_a_gpu():
    sim = crowd("cuda", torch.float32)
    state, u = sim.initial_state(2), torch.zeros(2, sim.nu, device="cuda", requires_grad=True)
    for _ in range(5):
        state = sim.step(state, u)
    state.q.sum().backward()
    assert u.grad is not None
    assert torch.isfinite(u.grad).all()


def kitchen(device: str, dtype: torch.dtype, contact: pb.PGS | pb.Compliant) -> list[torch.Tensor]:
    """Return the last states of a can, a rock and a ball over a block with a hole, and the gradient by the first."""
    world = pb.World(contact=contact)
    world.add_ground(friction=0.8)
    world.add_cylinder("can", radius=0.05, length=0.12, mass=0.3, position=(0, 0, 0.0599))
    corners = [[x, y, z] for x in (-0.05, 0.05) for y in (-0.04, 0.04) for z in (-0.03, 0.03)]
    world.add_mesh("rock", corners, mass=0.5, position=(0.4, 0, 0.0299))
    block = pb.sdf.box((0.1, 0.1, 0.05)) - pb.sdf.cylinder(0.03, 0.4)
    world.add_field("block", block, static=True, position=(-0.5, 0, 0.05))
    world.add_sphere("ball", radius=0.04, mass=0.1, position=(-0.5, 0.001, 0.126))
    sim = world.compile(dt=1e-3, dtype=dtype, device=device)
    start = sim.initial_state(2)
    qd = 0.1 * torch.randn(2, sim.nv, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    qd = qd.to(dtype).to(device).requires_grad_()
    states = sim.rollout(pb.State(start.q, qd), 20, check=True)
    (states.q[-1].square().sum() + states.qd[-1].square().sum()).backward()
    assert qd.grad is not None
    return [x.detach().cpu().double() for x in (states.q[-1], states.qd[-1], qd.grad)]


CONTACTS = {"sweeps": pb.PGS(cfm=1e-3), "exact": pb.Exact(cfm=1e-3), "compliant": pb.Compliant()}


@pytest.mark.parametrize("contact", CONTACTS.values(), ids=CONTACTS.keys())
def test_cylinders_meshes_and_fields_under_every_solver(contact):
    expected = kitchen("cpu", torch.float64, contact)
    found = kitchen("cuda", torch.float64, contact)
    for ours, theirs in zip(found, expected):
        assert (ours - theirs).abs().max() <= 1e-6 * theirs.abs().max()
