"""The same part assembled by scikit-fem and solved by scipy: another library's elements, faces and matrices."""

import numpy as np
import pytest
import torch

import pullback.thermal as th
from pullback.thermal.mesh import CORNERS

skfem = pytest.importorskip("skfem")
sparse = pytest.importorskip("scipy.sparse")
linalg = pytest.importorskip("scipy.sparse.linalg")

K, CP, RHO = 18.0, 520.0, 7900.0
CONVECTION, AMBIENT, START, BOTTOM = 300.0, 310.0, 350.0, 330.0
# wide enough that no face is beyond the beam's reach, where ours leaves it out
RADIUS, ABSORPTIVITY = 4e-3, 0.4
DT, STEPS = 0.05, 20


def part():
    """Return a box on a plate whose corners moved, so that no two elements are alike and no face is flat."""
    mesh = th.box_on_plate(size=(0.006, 0.004, 0.003), cell=0.001, plate=(0.012, 0.01, 0.003))
    moved = mesh.nodes + 5e-5 * np.random.default_rng(11).standard_normal(mesh.nodes.shape)
    return th.Mesh(moved, mesh.elements, mesh.element_sets, mesh.node_sets)


PATH = th.Toolpath([0.0, 1.0], [-0.003, 0.003], [0.0, 0.001], [0.003, 0.003], [0, 1])


def gauss(points, dimensions):
    """Return the points of a tensor rule on [0, 1] (dimensions, q) and their weights."""
    x, w = np.polynomial.legendre.leggauss(points)
    grid = np.stack(np.meshgrid(*[(x + 1) / 2] * dimensions, indexing="ij")).reshape(dimensions, -1)
    return grid, np.prod(np.meshgrid(*[w / 2] * dimensions, indexing="ij"), axis=0).ravel()


class Assembly:
    """scikit-fem's matrices of a mesh: stiffness, lumped volumes, lumped areas, and the beam's shares."""

    def __init__(self, mesh):
        # its corners stand in another order: find each of ours, on [-1, 1]³, among its own, on [0, 1]³
        ours = (CORNERS + 1) / 2
        order = [int(np.abs(ours - corner).sum(1).argmin()) for corner in skfem.MeshHex().doflocs.T]
        self.mesh = skfem.MeshHex(mesh.nodes.T.copy(), mesh.elements[:, order].T.copy())
        self.element = skfem.ElementHex1()
        volume = skfem.CellBasis(self.mesh, self.element, quadrature=gauss(2, 3))

        @skfem.BilinearForm
        def stiffness(u, v, w):
            return sum(u.grad[k] * v.grad[k] for k in range(3))

        self.stiffness = stiffness.assemble(volume)
        self.volumes = skfem.LinearForm(lambda v, w: v).assemble(volume)
        self.surface = skfem.FacetBasis(self.mesh, self.element, quadrature=gauss(2, 2))
        self.areas = skfem.LinearForm(lambda v, w: v).assemble(self.surface)
        self.lit = skfem.FacetBasis(self.mesh, self.element, quadrature=gauss(3, 2))

    def beam(self, position):
        """Return the share of each node in a beam at a position (3,)."""

        @skfem.LinearForm
        def shares(v, w):
            away = sum((w.x[k] - position[k]) ** 2 for k in range(3))
            up = np.where(w.n[2] > 1e-6, w.n[2], 0.0)
            return up * np.exp(-2 * away / RADIUS**2) * v

        found = shares.assemble(self.lit)
        return found / found.sum()


def solved(mesh, positions, watts, theta):
    """Return the temperatures (STEPS + 1, nodes) of the theta method, with one factored matrix."""
    fem = Assembly(mesh)
    capacity = sparse.diags(RHO * CP * fem.volumes / DT)
    flow = K * fem.stiffness + sparse.diags(CONVECTION * fem.areas)
    free = np.setdiff1d(np.arange(len(mesh.nodes)), mesh.node_set("bottom"))
    left = (capacity + theta * flow).tocsc()
    solve = linalg.factorized(left[free][:, free])
    T = np.full(len(mesh.nodes), START)
    T[mesh.node_set("bottom")] = BOTTOM
    held = np.where(np.isin(np.arange(len(T)), free), 0.0, T)
    states = [T]
    for position, power in zip(positions, watts):
        right = capacity @ T - (1 - theta) * (flow @ T) + CONVECTION * AMBIENT * fem.areas
        right += ABSORPTIVITY * power * fem.beam(position)
        T = held.copy()
        T[free] = solve((right - left @ held)[free])
        states.append(T)
    return np.stack(states)


def heated(mesh, method):
    """Return the same as a process."""
    return th.Process(
        mesh, PATH, material=th.constant_material(K, CP, RHO), dt=DT, duration=STEPS * DT,
        source=th.Gaussian(RADIUS, ABSORPTIVITY), convection=CONVECTION, ambient=AMBIENT, initial=START,
        fixed={"bottom": BOTTOM}, method=method, threads=1,
    )  # fmt: skip


@pytest.mark.parametrize("theta", [0.0, 0.5, 1.0])
def test_temperatures_agree_with_an_assembly_by_scikit_fem(theta):
    mesh = part()
    process = heated(mesh, th.Implicit(theta) if theta else "explicit")
    watts = np.random.default_rng(4).uniform(200.0, 900.0, STEPS)
    theirs = solved(mesh, process.laser.positions, watts, theta)
    ours = process.run(torch.as_tensor(watts), snapshots=range(STEPS + 1)).snapshots.numpy()
    assert theirs.max() > 600.0
    assert np.abs(ours - theirs).max() < 1e-9


def test_gradient_by_power_agrees_with_differences_of_their_solutions():
    # constant properties: temperatures are linear in the power, and differences exact
    mesh = part()
    process = heated(mesh, th.Implicit())
    power = torch.full((STEPS,), 200.0, dtype=torch.float64, requires_grad=True)
    weights = torch.as_tensor(np.random.default_rng(5).standard_normal(len(mesh.nodes)))
    (g,) = torch.autograd.grad(process.run(power).final @ weights, power)
    plain = np.full(STEPS, 200.0)
    base = solved(mesh, process.laser.positions, plain, 1.0)[-1]
    for step in (0, 9, 19):
        more = solved(mesh, process.laser.positions, plain + 1e3 * (np.arange(STEPS) == step), 1.0)[-1]
        assert float(g[step]) == pytest.approx(weights.numpy() @ (more - base) / 1e3, rel=1e-9)
