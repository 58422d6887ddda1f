"""Room for contacts: enough in piles, growing where it is not, and an error where it was given and does not do."""

import pytest
import torch

import pullback as pb
from pullback.rigid.state import CONTACT_OVERFLOW
from tests.rigid.worlds import F64

SIDE = 0.1


def cubes(side: int, layers: int, *, walls: bool = False) -> pb.World:
    """Return cubes that lie side by side and on each other, in a bin if there are walls."""
    world = pb.World()
    world.add_ground()
    for k in range(side * side * layers):
        x, y, z = k % side, k // side % side, k // side**2
        place = (SIDE * (x - 0.5 * (side - 1)), SIDE * (y - 0.5 * (side - 1)), SIDE * (z + 0.5))
        world.add_box(f"cube{k}", size=(SIDE,) * 3, mass=1.0, position=place)
    if walls:
        far = 0.5 * side * SIDE + 0.01
        for k, (x, y) in enumerate(((far, 0), (-far, 0), (0, far), (0, -far))):
            size = (0.02, 2 * far, SIDE) if x else (2 * far, 0.02, SIDE)
            world.add_box(f"wall{k}", size=size, static=True, position=(x, y, SIDE / 2))
    return world


def brick_wall() -> pb.World:
    """Return four courses of four bricks, each half a brick further than the one below."""
    world = pb.World()
    world.add_ground()
    for k in range(16):
        x = 2 * SIDE * (k % 4) + SIDE * (k // 4 % 2)
        world.add_box(f"brick{k}", size=(2 * SIDE, SIDE, SIDE), mass=1.0, position=(x, 0.0, SIDE * (k // 4 + 0.5)))
    return world


def way(world: pb.World, steps: int, dt: float = 2e-3) -> float:
    """Return how far [m] the bodies of a world move from where they stand, at most."""
    sim = world.compile(dt=dt, dtype=F64)
    start = sim.initial_state()
    with torch.no_grad():
        states = sim.rollout(start, steps, checkpoint=steps)
    assert not int(states.status.code) & CONTACT_OVERFLOW
    return float((states.q[-1] - start.q).view(-1, 7)[:, :3].norm(dim=1).max())


PILES = {"cubes": lambda: cubes(3, 3), "wall": brick_wall, "bin": lambda: cubes(3, 1, walls=True)}


@pytest.mark.parametrize("pile", PILES)
def test_piles_rest(pile):
    """At default settings, for 20 ms."""
    assert way(PILES[pile](), 10) < 1e-5


@pytest.mark.slow
@pytest.mark.parametrize("pile", PILES)
def test_piles_rest_for_half_a_second(pile):
    assert way(PILES[pile](), 250) < 1e-4


def test_room_grows_with_what_is_found_at_the_start():
    sim = cubes(2, 2).compile(dt=1e-3, dtype=F64)
    assert sim.arrays.max_contacts < 92 < sim.arrays.most_contacts
    sim.initial_state()
    assert sim.arrays.max_contacts >= 92


def falling(**options) -> tuple[pb.Sim, pb.State]:
    """Return five cubes and a state in which they are about to fall on each other, from where they do not touch."""
    world = pb.World(contact=pb.PGS(**options.pop("contact", {})))
    world.add_ground()
    for k in range(5):
        world.add_box(f"cube{k}", size=(SIDE,) * 3, mass=1.0, position=(0.0, 0.0, 5.0 * k + 3.0))
    sim = world.compile(dt=1e-3, dtype=F64, **options)
    state = sim.initial_state()
    places = torch.tensor([[x, y, SIDE / 2] for x, y in ((0, 0), (1, 0), (0, 1), (1, 1), (2, 0))], dtype=F64)
    state.q.view(5, 7)[:, :3] = SIDE * places * torch.tensor([1, 1, 1 / SIDE], dtype=F64)
    return sim, state


def test_room_grows_in_a_rollout_and_gradients_are_those_of_enough():
    found = []
    for room in (None, 200):
        sim, state = falling(max_contacts=room)
        state.qd.requires_grad_()
        states = sim.rollout(state, 5)
        found.append((states.q.detach(), *torch.autograd.grad(states.qd[-1].square().sum(), state.qd)))
    for grown, ample in zip(*found, strict=True):
        assert torch.equal(grown, ample)


@pytest.mark.parametrize("way_to_step", ["step", "contacts"])
def test_room_grows_whatever_meets_it_first(way_to_step):
    sim, state = falling()
    room = sim.arrays.max_contacts
    getattr(sim, way_to_step)(state)
    assert sim.arrays.max_contacts > room
    assert len(sim.contacts(state)[0]) > room


def test_impulses_of_a_state_have_the_room_they_have():
    sim, state = falling(contact={"warm_start": True})
    with pytest.raises(pb.PullbackError, match="with warm_start room is fixed by the state"):
        sim.rollout(state, 2)


def test_room_that_was_given_is_refused_where_it_does_not_do():
    world = cubes(2, 2)
    sim = world.compile(dt=1e-3, dtype=F64, max_contacts=64)
    with pytest.raises(pb.PullbackError, match="92 contacts where there is room for 64; compile with max_contacts=92"):
        sim.initial_state()
