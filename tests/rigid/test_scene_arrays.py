"""The arrays a world compiles to: one forest of bodies, dofs, and the pairs of shapes that may touch."""

import numpy as np
import pytest
import torch

import pullback as pb
from pullback.description.compile import compile_tree
from pullback.description.tree import Joint, Link, Shape, Tree
from pullback.rigid.compile.compile import compile_world, make_scene
from pullback.rigid.world.world import World
from pullback.robot.operators import make_topology
from tests.rigid.worlds import TOES, chain, load, toes_on_ground
from tests.robot.synthetic import synthetic_robot

TOPOLOGY = ("parent", "kind", "constant", "q_start", "v_start", "is_leaf", "reaches_first")


def pair_names(world: World) -> set[frozenset[str]]:
    arrays = compile_world(world)
    return {frozenset((arrays.shape_names[a], arrays.shape_names[b])) for a, b in zip(arrays.pair_a, arrays.pair_b)}


# -- arrays -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("base", ["fixed", "floating"])
def test_a_single_robot_has_the_topology_of_its_kernels(base):
    robot = synthetic_robot(base=base)
    world = World()
    world.add(robot)
    arrays, expected = compile_world(world), make_topology(robot.model, (), "cpu")
    scene = make_scene(arrays, "cpu")
    assert (arrays.nbody, arrays.nq, arrays.nv) == (expected.nbody, robot.nq, robot.nv)
    for name in TOPOLOGY:
        np.testing.assert_array_equal(getattr(scene.topology, name).numpy(), getattr(expected, name).numpy())


def test_robots_are_numbered_one_after_another():
    dog, arm = load("laikago", "floating"), load("panda")
    world = World()
    world.add_ground()
    world.add(dog, collision_links=TOES)
    world.add(arm, collision_links=[])
    arrays = compile_world(world)
    n, split = len(dog.model.bodies), dog.nv
    assert (arrays.nbody, arrays.nq, arrays.nv, arrays.nu) == (n + 7, dog.nq + 7, split + 7, 19)
    assert arrays.parent[n] == -1
    assert arrays.parent[n + 1 :].tolist() == list(range(n, n + 6))
    assert arrays.v_start[n:].tolist() == list(range(split, split + 7))
    assert arrays.drives.dof.tolist() == [*range(6, 18), *range(split, split + 7)]
    assert arrays.limit_dof.tolist() == list(range(split, split + 7))
    assert arrays.dof_coordinate.tolist() == [*[-1] * 6, *range(7, 26)]


@pytest.mark.parametrize("base", ["fixed", "floating"])
def test_parents_of_dofs_are_where_the_mass_matrix_is_filled(base):
    robot = synthetic_robot(base=base)
    world = World()
    world.add(robot)
    arrays = compile_world(world)
    filled = np.eye(arrays.nv, dtype=bool)
    for dof in range(arrays.nv):
        above = arrays.dof_parent[dof]
        while above >= 0:
            filled[dof, above] = filled[above, dof] = True
            above = arrays.dof_parent[above]
    q = robot.random_q(generator=torch.Generator().manual_seed(0))
    mass = robot.compute_lagrangian_inertia_matrix(q).abs().numpy()
    assert not (mass[~filled] > 0.0).any()
    assert arrays.friction_dof.tolist() == [k for k in range(arrays.nv) if base == "fixed" or k >= 6]


def test_dofs_of_a_pair_are_those_that_move_its_links():
    arm, dog = load("panda"), load("laikago", "floating")
    world = World()
    world.add(dog, name="dog", collision_links=TOES)
    world.add(arm, name="arm")
    world.add_ground()
    arrays = compile_world(world)
    moves = {"ground": np.zeros(arrays.nv, dtype=bool)}
    for name, robot, first in (("dog", dog, 0), ("arm", arm, 18)):
        q = robot.random_q(generator=torch.Generator().manual_seed(0))
        for shape in (s for s in arrays.shape_names if s.startswith(name)):
            jacobian = torch.cat(robot.compute_endeffector_jacobian(q, shape.split("/")[1]))
            moves[shape] = np.zeros(arrays.nv, dtype=bool)
            moves[shape][first : first + robot.nv] = (jacobian != 0.0).any(0).numpy()
    assert arrays.npair > 4
    for k, (a, b) in enumerate(zip(arrays.pair_a, arrays.pair_b)):
        of_a, of_b = moves[arrays.shape_names[a]], moves[arrays.shape_names[b]]
        span = slice(arrays.pair_dof_start[k], arrays.pair_dof_start[k + 1])
        dofs = arrays.pair_dof[span]
        assert arrays.shape_kind[a] <= arrays.shape_kind[b]
        assert (np.diff(dofs) < 0).all()
        assert set(dofs) == set(np.flatnonzero(of_a | of_b))
        assert arrays.pair_sign[span].tolist() == [int(of_a[d]) - int(of_b[d]) for d in dofs]


def test_bound_of_contacts():
    assert compile_world(toes_on_ground()).max_contacts == 4
    assert compile_world(toes_on_ground(), max_contacts=7).max_contacts == 7
    world = World()
    world.add_ground()
    for k in range(20):
        world.add_box(f"box{k}", size=(1, 1, 1), mass=1)
    assert compile_world(world).max_contacts == 160


# -- who may touch whom -------------------------------------------------------------------------------------------


def test_neighbours_do_not_touch():
    world = World()
    world.add(chain())
    assert pair_names(world) == set()
    world = World()
    world.add(chain(), self_collision=True)
    expected = [("base", "b"), ("base", "c"), ("a", "c")]
    assert pair_names(world) == {frozenset((f"chain/{a}/0", f"chain/{b}/0")) for a, b in expected}


def test_a_link_without_mass_does_not_part_neighbours():
    world = World()
    world.add(chain(mass=(1.0, 0.0, 1.0)), self_collision=True)
    assert frozenset(("chain/a/0", "chain/c/0")) not in pair_names(world)
    assert frozenset(("chain/base/0", "chain/c/0")) in pair_names(world)


def test_a_floating_joint_does_not_make_neighbours():
    links = [Link(name, 1.0, inertia=np.eye(3), shapes=[Shape("sphere", (0.1,))]) for name in ("nest", "drone")]
    tree = Tree("nest", links, [Joint("flight", "floating", "nest", "drone")], source="nest")
    world = World()
    world.add(pb.RobotModel(compile_tree(tree)), self_collision=True)
    assert pair_names(world) == {frozenset(("nest/nest/0", "nest/drone/0"))}


def test_what_is_fixed_to_the_world_does_not_touch():
    world = World()
    world.add(chain())
    world.add_ground()
    world.add_box("wall", size=(1, 1, 1), static=True)
    links = [f"chain/{name}/0" for name in "abc"]
    assert pair_names(world) == {frozenset((link, other)) for link in links for other in ("ground", "wall")}


def test_groups_and_masks():
    world = World()
    world.add_sphere("one", radius=0.1, mass=1, group=1, mask=2)
    world.add_sphere("two", radius=0.1, mass=1, group=2)
    world.add_sphere("three", radius=0.1, mass=1, group=4)
    assert pair_names(world) == {frozenset(("one", "two")), frozenset(("two", "three"))}
