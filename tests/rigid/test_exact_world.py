"""The exact solver in worlds, orientations of the newer shapes, and warm starts that are left out."""

import pytest
import torch

import pullback as pb
from tests.rigid.worlds import F64

DT = 1e-3


def stack(contact: pb.PGS) -> pb.World:
    """Return three boxes, the top one to be pushed."""
    world = pb.World(contact=contact)
    world.add_ground(friction=0.5)
    for k in range(3):
        place = (0.01 * k, 0.0, 0.05 + 0.1 * k)
        world.add_box(f"box{k}", size=(0.2, 0.2, 0.1), mass=1.0, position=place, friction=0.5)
    return world


def test_a_stack_that_sweeps_do_not_solve_is_solved():
    states = {}
    for name, contact in {"sweeps": pb.PGS(finish=False), "default": pb.PGS(), "exact": pb.Exact()}.items():
        sim = stack(contact).compile(dt=DT, dtype=F64)
        start = sim.initial_state()
        start.qd[0, 15] = 0.3
        states[name] = sim.rollout(start, 100)
    assert states["sweeps"].status.unconverged > 50
    for name in ("default", "exact"):
        assert states[name].status.unconverged == 0
        # nothing drives the boxes sideways
        assert states[name].q[-1, 0, 1::7].abs().max() < 1e-12
        torch.testing.assert_close(states[name].q[-1, 0, 14], states["sweeps"].q[-1, 0, 14], rtol=0, atol=1e-5)
    torch.testing.assert_close(states["default"].q, states["exact"].q, rtol=0, atol=1e-9)


@pytest.mark.parametrize("friction", ["cone", "pyramid"])
@pytest.mark.parametrize("solver", [pb.Exact, pb.PGS])
def test_gradients_of_the_exact_solution(solver, friction):
    sim = stack(solver(friction=friction, cfm=1e-2)).compile(dt=DT, dtype=F64)
    start = sim.initial_state()
    generator = torch.Generator().manual_seed(0)
    qd = 0.02 * torch.randn(1, sim.nv, dtype=F64, generator=generator)
    qd[0, 15] += 0.3
    weights = torch.randn(1, sim.nv, dtype=F64, generator=generator)

    def loss(qd):
        states = sim.rollout(pb.State(start.q, qd), 20)
        assert states.status.unconverged == 0
        return (weights * states.qd[-1]).sum()

    swept = stack(pb.PGS(friction=friction, cfm=1e-2, finish=False)).compile(dt=DT, dtype=F64)
    assert swept.rollout(pb.State(start.q, qd), 20).status.unconverged > 0
    (gradient,) = torch.autograd.grad(loss(qd.requires_grad_()), qd)
    direction = torch.randn(1, sim.nv, dtype=F64, generator=generator)
    ahead, behind = (loss(qd.detach() + h * direction) for h in (1e-7, -1e-7))
    assert (gradient * direction).sum() == pytest.approx(float(ahead - behind) / 2e-7, rel=1e-5)


def test_exact_has_one_gradient():
    with pytest.raises(pb.PullbackError, match=r"pb\.Exact differentiates the solution"):
        pb.Exact(gradient="unrolled")


@pytest.mark.parametrize("kind", ["cylinder", "mesh", "field"])
def test_gradients_by_the_orientation_of_a_static_shape(kind):
    """A ball that slides down it."""

    def end(orientation):
        world = pb.World()
        if kind == "cylinder":
            world.add_cylinder("slope", radius=0.3, length=0.1, static=True)
        elif kind == "mesh":
            corners = [[x, y, z] for x in (-0.3, 0.3) for y in (-0.3, 0.3) for z in (-0.05, 0.05)]
            world.add_mesh("slope", corners, static=True)
        else:
            world.add_field("slope", pb.sdf.box((0.3, 0.3, 0.05)), static=True)
        world.set_shape("slope", orientation=orientation, friction=0.2)
        world.add_sphere("ball", radius=0.05, mass=1.0, position=(0.02, 0.01, 0.1025))
        sim = world.compile(dt=DT, dtype=F64)
        states = sim.rollout(sim.initial_state(), 60)
        return states.q[-1, 0, 0] + 0.5 * states.q[-1, 0, 1] - 0.7 * states.q[-1, 0, 2]

    orientation = torch.tensor([0.05, 0.15, 0.02, 0.98], dtype=F64, requires_grad=True)
    (gradient,) = torch.autograd.grad(end(orientation), orientation)
    assert gradient.abs().max() > 1e-4
    for k in range(4):
        ahead, behind = (end(orientation.detach() + h * torch.eye(4, dtype=F64)[k]) for h in (1e-6, -1e-6))
        assert gradient[k] == pytest.approx(float(ahead - behind) / 2e-6, rel=1e-4, abs=1e-7)


@pytest.mark.parametrize("gradient", ["implicit", "unrolled"])
def test_a_warm_start_that_adds_energy_is_left_out(gradient):
    """Impulses a million times too large are as good as none, and have no gradient."""
    steps = {}
    for warm in (False, True):
        world = pb.World(contact=pb.PGS(warm_start=warm, iterations=3, gradient=gradient))
        world.add_ground(friction=0.5)
        world.add_box("box", size=(0.2, 0.2, 0.1), mass=1.0, position=(0, 0, 0.05))
        sim = world.compile(dt=DT, dtype=F64)
        state = sim.initial_state()
        if warm:
            impulses = sim.step(state).impulses.detach()
            impulses.view(-1, 6)[:, 3:] *= 1e6
            state = pb.State(state.q, state.qd, impulses.requires_grad_())
        steps[warm] = sim.step(state)
    assert torch.equal(steps[True].qd, steps[False].qd)
    (adj,) = torch.autograd.grad(steps[True].qd.square().sum(), impulses)
    assert torch.equal(adj, torch.zeros_like(adj))
