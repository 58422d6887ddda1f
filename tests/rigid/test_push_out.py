"""Bodies that start inside others leave slowly, whatever the time step; gradients against differences."""

import pytest
import torch

import pullback as pb
from tests.rigid.worlds import F64, load

RADIUS = 0.05


def buried(depth: float, **contact) -> pb.World:
    world = pb.World(contact=pb.PGS(**contact))
    world.add_ground()
    world.add_sphere("ball", radius=RADIUS, mass=0.3, position=(0.0, 0.0, RADIUS - depth))
    return world


@pytest.mark.parametrize("dt", [1e-4, 1e-3, 1e-2])
@pytest.mark.parametrize("depth", [2e-3, 1e-2])
def test_a_buried_ball_comes_to_the_surface_and_not_far_above(dt, depth):
    world = buried(depth)
    sim = world.compile(dt=dt, dtype=F64)
    height = sim.rollout(sim.initial_state(), round(0.3 / dt), checkpoint=1).q[:, 0, 2]
    assert height.max() < RADIUS + 2.5e-3
    assert height[-1] > RADIUS - 1e-3


def test_the_speed_is_a_setting():
    for speed in (0.1, 0.5):
        world = buried(0.01, max_push_speed=speed)
        sim = world.compile(dt=1e-4, dtype=F64)
        assert float(sim.step(sim.initial_state()).qd[0, 5]) == pytest.approx(speed, rel=1e-4)
    world = buried(0.01, max_push_speed=float("inf"))
    sim = world.compile(dt=1e-4, dtype=F64)
    assert float(sim.step(sim.initial_state()).qd[0, 5]) == pytest.approx(10.0, rel=1e-4)
    with pytest.raises(pb.PullbackError, match="max_push_speed"):
        pb.PGS(max_push_speed=0.0)


@pytest.mark.parametrize(("depth", "slope"), [(0.01, 1.0), (1e-3, 0.9)])
def test_gradients_by_the_depth(depth, slope):
    """At its speed the way out does not depend on the depth; slower it does."""
    world = buried(depth)
    sim = world.compile(dt=1e-3, dtype=F64)
    start = sim.initial_state()

    def height(z: torch.Tensor) -> torch.Tensor:
        q = torch.cat([start.q[:, :2], z[None, None], start.q[:, 3:]], -1)
        return sim.rollout(pb.State(q, start.qd), 1).q[-1, 0, 2]

    z = start.q[0, 2].clone().requires_grad_()
    (found,) = torch.autograd.grad(height(z), z)
    ends = [height(z.detach() + change) for change in (1e-7, -1e-7)]
    assert float(found) == pytest.approx(float(ends[0] - ends[1]) / 2e-7, rel=1e-6)
    assert float(found) == pytest.approx(slope, rel=1e-3)


@pytest.mark.parametrize(("beyond", "by_start"), [(0.3, 1.0), (0.01, 0.9)])
def test_a_joint_comes_back_from_beyond_its_limit(beyond, by_start):
    world = pb.World(gravity=(0.0, 0.0, 0.0))
    arm = load("iiwa7")
    world.add(arm, name="arm")
    sim = world.compile(dt=1e-3, dtype=F64)
    start = sim.initial_state()
    end = arm.model.bodies[0].joint.limits.upper

    def angle(x: torch.Tensor) -> torch.Tensor:
        q = torch.cat([x[None, None], start.q[:, 1:]], -1)
        return sim.step(pb.State(q, start.qd)).q[0, 0]

    x = torch.tensor(end + beyond, dtype=F64, requires_grad=True)
    assert float((x - angle(x)).detach() / 1e-3) == pytest.approx(min(2.0, 100.0 * beyond), rel=1e-3)
    (found,) = torch.autograd.grad(angle(x), x)
    ends = [angle(x.detach() + change) for change in (1e-7, -1e-7)]
    assert float(found) == pytest.approx(float(ends[0] - ends[1]) / 2e-7, rel=1e-6)
    assert float(found) == pytest.approx(by_start, rel=1e-2)
