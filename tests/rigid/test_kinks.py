"""The side of a kink that lets a loss fall: against the step itself on both sides, solved by scipy and by sweeps."""

from itertools import product

import numpy as np
import pytest
import torch
from scipy.optimize import nnls

from tests.reference import contact_solver
from tests.reference.kinks import Case, Side, Step, choose, control_gradient, is_convex, side, takes_tight

SMALL = 1e-5


def with_friction(step: Step, v_star: np.ndarray) -> np.ndarray:
    """Return the velocity after one contact with friction, by sweeps."""
    K = np.linalg.solve(step.M, step.J.T)
    tensors = (torch.from_numpy(x) for x in (step.J @ K, step.J @ v_star, step.mu, np.zeros(0), np.zeros(0)))
    lam = contact_solver.solve(contact_solver.Problem(*tensors), torch.zeros(len(step.J), dtype=torch.float64), 200)
    return v_star + K @ lam.numpy()


def without_friction(step: Step, v_star: np.ndarray) -> np.ndarray:
    """Return the velocity after contacts without friction: the nearest to v* that no contact forbids."""
    L = np.linalg.cholesky(step.M)
    Y = np.linalg.solve(L, step.J[::3].T)
    lam, _ = nnls(Y, -L.T @ v_star)
    return v_star + np.linalg.solve(step.M, step.J[::3].T @ lam)


def before(step: Step) -> np.ndarray:
    return step.v - np.linalg.solve(step.M, step.J.T @ step.lam)


def slope(step: Step, B: np.ndarray, g: np.ndarray, du: np.ndarray, velocity) -> float:
    """Return the slope of the loss along controls du, one-sided."""
    moved = velocity(step, before(step) + SMALL * np.linalg.solve(step.M, B @ du))
    return float(g @ (moved - step.v)) / SMALL


# rows (normal, tangent) of two velocities, impulses along them, masses, the loss, and the side that it falls on; the
# first velocity is driven
SCENES = {
    # a carriage at rest against a ball, which is to go forward: they have to hold together
    "push": (([-1.0, 1.0], [0.0, 0.0]), (0.0, 0.0), (1.0, 0.5), (0.0, -1.0), "slides"),
    # a weight that its lift just carries is to rise: it has to be let go
    "lift": (([1.0, 0.0], [0.0, 1.0]), (0.0, 0.0), (1.0, 1.0), (-1.0, 0.0), "open"),
    # the same weight is to sink, which it cannot
    "press": (([1.0, 0.0], [0.0, 1.0]), (0.0, 0.0), (1.0, 1.0), (1.0, 0.0), "slides"),
    # a block pulled (along velocity 0) as hard as it just sticks is to move: it has to slide
    "pull": (([0.0, 1.0], [1.0, 0.0]), (1.0, -0.5), (1.0, 1.0), (-1.0, 0.0), "slides"),
    # ... is to stay: sliding less than not at all is not to be had
    "stay": (([0.0, 1.0], [1.0, 0.0]), (1.0, -0.5), (1.0, 1.0), (1.0, 0.0), "sticks"),
}


@pytest.mark.parametrize("name", SCENES)
def test_scenes_with_a_known_answer(name):
    (along_n, along_t), (normal, tangent), masses, loss, expected = SCENES[name]
    # two more velocities, so that both tangents have something to move
    J = np.array([[*along_n, 0.0, 0.0], [*along_t, float(not any(along_t)), 0.0], [0.0, 0.0, 0.0, 1.0]])
    step = Step(np.diag([*masses, 1.0, 1.0]), J, np.array([0.5]), np.array([normal, tangent, 0.0]), np.zeros(4))
    g, B = np.array([*loss, 0.0, 0.0]), np.eye(4)[:, :1]
    names: tuple[Case, Case] = ("slides", "open") if normal == 0.0 else ("sticks", "slides")
    tight, loose = (side(step, [case], g) for case in names)
    assert names[0 if takes_tight(step, 0, tight, loose, B) else 1] == expected
    chosen = tight if expected == names[0] else loose
    du = -control_gradient(step, B, chosen)
    falls = slope(step, B, g, du, with_friction)
    assert falls == pytest.approx(-du @ du, abs=1e-7)
    if name in ("press", "stay"):
        # nothing lowers the loss, and the gradient says so; the other side would have it try
        assert np.allclose(du, 0.0)
        other = loose if chosen is tight else tight
        assert np.linalg.norm(control_gradient(step, B, other)) > 0.1
    else:
        assert falls < -0.1


def test_block_on_a_table_that_is_driven():
    # as fast as the block just follows: to be slower the table has to slow down, which only sticking tells
    # velocities: the block along, up and across, the table along
    J = np.array([[0.0, 1.0, 0.0, 0.0], [1.0, 0.0, 0.0, -1.0], [0.0, 0.0, 1.0, 0.0]])
    M, B = np.diag([1.0, 1.0, 1.0, 2.0]), np.eye(4)[:, 3:]
    step = Step(M, J, np.array([0.5]), np.array([1.0, 0.5, 0.0]), np.array([0.5, 0.0, 0.0, 0.5]))
    slower, faster = np.array([1.0, 0.0, 0.0, 0.0]), np.array([-1.0, 0.0, 0.0, 0.0])
    for g, expected in ((slower, True), (faster, False)):
        tight, loose = side(step, ["sticks"], g), side(step, ["slides"], g)
        assert takes_tight(step, 0, tight, loose, B) == expected
        assert np.allclose(control_gradient(step, B, loose), 0.0)
        du = -control_gradient(step, B, tight)
        assert slope(step, B, g, du, with_friction) == pytest.approx(-du @ du if expected else 0.0, abs=1e-7)


def random_tie(generator: np.random.Generator) -> tuple[Step, np.ndarray, np.ndarray]:
    """Return a step with one contact that holds, one on its kink, one open; controls; and a loss."""
    nv, nu = 5, 2
    root = generator.standard_normal((nv, nv))
    J = np.zeros((9, nv))
    J[::3] = generator.standard_normal((3, nv))
    v = generator.standard_normal(nv)
    v -= np.linalg.pinv(J[[0, 3]]) @ (J[[0, 3]] @ v)
    J[6] *= np.sign(J[6] @ v)
    lam = np.zeros(9)
    lam[0] = generator.uniform(0.5, 2.0)
    step = Step(root @ root.T + np.eye(nv), J, np.zeros(3), lam, v)
    return step, generator.standard_normal((nv, nu)), generator.standard_normal(nv)


def test_random_ties_take_the_steeper_way_down():
    generator = np.random.default_rng(0)
    seen = {True: 0, False: 0}
    for _ in range(400):
        step, B, g = random_tie(generator)
        tight, loose = side(step, ["slides", "slides", "open"], g), side(step, ["slides", "open", "open"], g)
        convex, holds = is_convex(step, 1, tight), takes_tight(step, 1, tight, loose, B)
        chosen, other = (-control_gradient(step, B, x) for x in ((tight, loose) if holds else (loose, tight)))
        a, b = (slope(step, B, g, du, without_friction) / np.linalg.norm(du) for du in (chosen, other))
        if convex and chosen @ other < 0.0:
            continue  # neither side's way leads down
        seen[convex] += 1
        assert a <= b + 1e-6
        assert a < 1e-6
    assert min(seen.values()) > 50


def test_several_ties_at_once_are_taken_to_sides_that_agree():
    # sides agree if the way down that they show stays on them: then the loss falls as fast as the gradient says
    generator = np.random.default_rng(0)
    n, nv, nu = 3, 6, 2
    possible = agree = loose_agree = 0
    for _ in range(400):
        root, J = generator.standard_normal((nv, nv)), np.zeros((3 * n + 3, nv))
        J[::3] = generator.standard_normal((n + 1, nv))
        v = generator.standard_normal(nv)
        v -= np.linalg.pinv(J[::3]) @ (J[::3] @ v)
        lam = np.array([generator.uniform(0.5, 2.0), *np.zeros(3 * n + 2)])
        step = Step(root @ root.T + np.eye(nv), J, np.zeros(n + 1), lam, v)
        B, g = generator.standard_normal((nv, nu)), generator.standard_normal(nv)

        def agrees(one: Side) -> bool:
            du = -control_gradient(step, B, one)  # noqa: B023
            return abs(slope(step, B, g, du, without_friction) + du @ du) < 1e-6 * (1.0 + du @ du)  # noqa: B023

        sides = [side(step, ["slides", *cases], g) for cases in product(("open", "slides"), repeat=n)]
        if any(map(agrees, sides)):
            possible += 1
            agree += agrees(choose(step, ["slides", "open", "open", "open"], [1, 2, 3], g, B)[1])
            loose_agree += agrees(sides[0])
    assert possible == 317
    assert agree >= 295
    assert loose_agree < 100
