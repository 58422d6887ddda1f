"""A closed loop beside contact, under every solver: gradients against central differences."""

import pytest
import torch

import pullback as pb

F64 = torch.float64

SOLVERS = {
    "sweeps": pb.PGS(),
    "warm start": pb.PGS(warm_start=True),
    "sides of kinks": pb.PGS(kinks="downhill"),
    "exact": pb.Exact(cfm=1e-3),
    "compliant": pb.Compliant(stiffness=1e4, onset=1e-3),
}


def coupled_balls(contact: pb.PGS | pb.Compliant) -> pb.Sim:
    """Return two balls on the ground, held together at a point between them."""
    world = pb.World(contact=contact)
    world.add_ground(friction=0.5)
    world.add_sphere("a", radius=0.1, mass=1.0, position=(0, 0, 0.1001))
    world.add_sphere("b", radius=0.1, mass=0.7, position=(0.25, 0, 0.1001))
    world.connect("a", "b", position_a=(0.125, 0, 0), position_b=(-0.125, 0, 0))
    return world.compile(dt=1e-3, dtype=F64)


@pytest.mark.parametrize("name", SOLVERS)
def test_gradient_of_a_loop_that_rolls(name):
    sim = coupled_balls(SOLVERS[name])
    start = sim.initial_state()
    weights = torch.linspace(1.0, 2.0, sim.nq, dtype=F64)

    def loss(qd: torch.Tensor) -> torch.Tensor:
        states = sim.rollout(pb.State(start.q, qd, start.impulses), 60, check=True)
        assert int(states.status.unconverged) == 0
        return states.q[-1, 0] @ weights

    qd = torch.zeros(1, sim.nv, dtype=F64)
    qd[0, 3:6] = torch.tensor([0.3, 0.4, 0.05])
    wanted = qd.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(loss(wanted), wanted)
    along = torch.randn(1, sim.nv, dtype=F64, generator=torch.Generator().manual_seed(1))
    expected = (loss(qd + 1e-6 * along) - loss(qd - 1e-6 * along)) / 2e-6
    assert float((gradient * along).sum()) == pytest.approx(float(expected), rel=1e-7)
