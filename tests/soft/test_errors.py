"""What is refused, and in which words."""

import re

import numpy as np
import pytest
import torch

import pullback as pb
import pullback.soft as soft
from pullback.soft.particle_side import ParticleSide
from pullback.soft.touch import ShapeKinds
from tests.soft.scenes import scene

JELLY = soft.Elastic(youngs=1e4, poisson=0.3)
DOMAIN = soft.Domain((0, 0, 0), (1, 1, 1), 0.1)


def cube(**options):
    return soft.block(
        (0.3, 0.3, 0.3), (0.6, 0.6, 0.6), **{"spacing": 0.05, "name": "cube", "material": JELLY, **options}
    )


def sim(domain=DOMAIN, bodies=None, **options):
    return soft.SoftSim(domain, [cube()] if bodies is None else bodies, **{"dt": 1e-3, **options})


def raises(*words):
    return pytest.raises(pb.PullbackError, match=".*".join(map(re.escape, words)))


def test_a_step_that_is_too_long_names_the_particle_and_a_step_that_would_do():
    youngs = torch.full((216,), 1e4)
    youngs[17] = 1e6
    stiff = soft.Elastic(youngs=youngs, poisson=0.3)
    with raises("dt = 0.01 s is too long for body 'cube'", "particle 17", "0.00", "use dt = "):
        sim(bodies=[cube(material=stiff)], dt=0.01)
    made = sim()
    with raises("too long for body 'cube'"):
        made.rollout(made.state(), 1, materials={"cube": soft.Elastic(youngs=1e8)})


@pytest.mark.parametrize(
    "material",
    [JELLY, soft.Fluid(bulk=1e4), soft.Elastic(youngs=1e4, viscosity=80.0)],
    ids=["elastic", "fluid", "viscous"],
)
def test_the_longest_stable_step_is_stable_and_one_much_longer_is_not(material, monkeypatch):
    longest = sim(bodies=[cube(material=material)], dt=1e-5).stable_dt
    gained = []
    for share in (0.99, 2.5):
        made = soft.SoftSim(DOMAIN, [cube(material=material)], dt=1e-5, dtype=torch.float64)
        made.dt = share * longest
        monkeypatch.setattr("pullback.soft.sim.check_step", lambda *_: None)
        state = made.state()
        noise = torch.randn(state.v.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        state = state.replace(v=1e-4 * noise)
        try:
            gained.append(float(made.kinetic_energy(made.rollout(state, 400).final) / made.kinetic_energy(state)))
        except pb.PullbackError:
            gained.append(float("inf"))
        monkeypatch.undo()
    assert gained[0] < 1.0 < gained[1]


def test_a_particle_that_leaves_is_named():
    body = cube(velocity=(0.0, 3.0, 0.0))
    made = sim(soft.Domain((0, 0, 0), (1, 1, 1), 0.1, sides="open"), [body])
    with raises("of body 'cube' left the domain in step", "close that side", "others failed as well"):
        made.rollout(made.state(), 400)


def test_a_particle_that_is_too_fast_is_named():
    made = sim(bodies=[cube(velocity=(0.0, 200.0, 0.0))])
    with raises("particle 0 of body 'cube' would go more than a cell of 0.1 m in step 0", "dt = 0.001 s", "try"):
        made.rollout(made.state(), 3)


def test_a_particle_that_is_turned_inside_out_is_named_with_its_world():
    bodies = [cube(), soft.ball((0.8, 0.8, 0.8), 0.05, spacing=0.02, material=JELLY)]
    made = sim(bodies=bodies, dt=2e-3, dtype=torch.float64)
    state = made.state(2)
    first = made.of("ball").start
    # the ball collapses into its middle
    state.v[1, first:] = 900.0 * (torch.tensor([0.8, 0.8, 0.8]) - state.x[1, first:])
    state.C[1, first:] = -900.0 * torch.eye(3).double()
    with raises("of body 'ball' in world 1 was turned inside out in step", "fixed_corotated"):
        made.rollout(state, 60)


def test_a_world_that_fails_does_not_take_the_others_with_it():
    made = sim(dtype=torch.float64)
    state = made.state(3)
    state.v[1] = torch.tensor([0.0, 500.0, 0.0])
    x = state.x.clone().requires_grad_()
    run = made.rollout(state.replace(x=x), 5, frames=1, check=False)
    assert run.failed.tolist() == [False, True, False]
    assert run.final.x[1].isnan().all()
    assert run.x[:, 1].isnan().all()
    assert torch.equal(run.x[-1, 2], made.rollout(made.state(), 5).final.x)
    (g,) = torch.autograd.grad(run.final.x[[0, 2]].square().sum(), x)
    assert g[[0, 2]].isfinite().all()
    assert (g[0] != 0).any()


def test_a_particle_that_starts_inverted_is_named():
    bodies = [cube(), soft.ball((0.8, 0.8, 0.8), 0.05, spacing=0.02, material=JELLY)]
    made = sim(bodies=bodies)
    state = made.state(2)
    state.F[1, made.of("ball").start + 7] = torch.diag(torch.tensor([1.0, 1.0, -0.5]))
    with raises("particle 7 of body 'ball' in world 1 starts with det F = -0.5; expected above 0"):
        made.rollout(state, 1)
    # fixed corotated bodies bear it, but not what is no number
    bears = sim(bodies=[cube(material=soft.Elastic(youngs=1e4, model="fixed_corotated"))])
    state = bears.state()
    state.F[7] = torch.diag(torch.tensor([1.0, 1.0, -1.0]))
    assert bears.rollout(state, 5).final.x.isfinite().all()
    state.F[7] = float("nan")
    with raises("particle 7 of body 'cube' starts with det F = nan"):
        bears.rollout(state, 1)


def test_what_is_not_a_number_is_found():
    made = sim()
    state = made.state()
    state.v[5, 1] = float("nan")
    with raises("of body 'cube' would go more than a cell"):
        made.rollout(state, 2)


def test_particles_outside_of_the_domain():
    with raises("particle 0 of body 'cube' starts at (-0.475, 0.325, 0.325), outside of the domain"):
        sim(bodies=[soft.Body("cube", cube().points - [0.8, 0, 0], 1e-4, JELLY)])
    made = sim()
    with raises("outside of the domain"):
        made.rollout(made.state().replace(x=made.state().x + 1.0), 1)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: soft.Elastic(youngs=-1.0), "Elastic.youngs is -1; expected a number above 0"),
        (lambda: soft.Elastic(youngs=1.0, poisson=0.5), "Elastic.poisson is 0.5; expected a number between -1 and 0.5"),
        (lambda: soft.Elastic(youngs=1.0, model="rubber"), "choose from: neo_hookean, fixed_corotated"),
        (lambda: soft.Fluid(bulk=float("nan")), "Fluid.bulk has entries that are not finite"),
        (lambda: soft.Sand(youngs=1.0, friction_angle=2.0), "Sand.friction_angle is 2"),
        (lambda: soft.Domain((0, 0), (1, 1, 1), 0.1), "two or three coordinates each"),
        (lambda: soft.Domain((0, 0), (1, 0.1), 0.1), "along y has less than two cells"),
        (lambda: soft.Domain((0, 0), (1, 1), -0.1), "cell of a domain is -0.1"),
        (lambda: soft.Domain((0, 0), (1, 1), 0.1, sides={"z-": "slip"}), "no side named 'z-'"),
        (lambda: soft.Domain((0, 0), (1, 1), 0.1, sides="glue").rows(), "no kind of side named 'glue'"),
        (lambda: soft.Wall((0, 0, 1), 0.0, "glue"), "no kind of wall named 'glue'"),
        (lambda: soft.Wall((0, 0, 1), 0.0, friction=-1.0), "friction of a wall is -1.0"),
        (lambda: soft.Body("b", np.zeros((3, 4)), 1.0, JELLY), "points have shape (3, 4)"),
        (lambda: soft.Body("b", np.zeros((3, 3)), [1, -1, 1], JELLY), "the volume of particle 1 is -1"),
        (lambda: soft.Body("b", np.zeros((3, 3)), 1.0, JELLY, actuator=0), "a muscle needs an actuator and a fibre"),
        (lambda: soft.block((0, 0, 0), (1, 1, -1), spacing=0.1, material=JELLY), "a lower and a higher corner"),
        (lambda: soft.block((0, 0, 0), (1, 1, 1), spacing=0.0, material=JELLY), "spacing of particles is 0.0"),
        (lambda: soft.solid(pb.sdf.plane(), spacing=0.1, material=JELLY), "a shape that ends on all sides"),
        (lambda: soft.solid(pb.sdf.box((0.2, 0.2, 0.005)), spacing=0.05, material=JELLY), "0.01 m thin along z, and"),
        (lambda: sim(bodies=[]), "without bodies"),
        (lambda: sim(bodies=[cube(), cube()]), "two bodies are called 'cube'"),
        (lambda: sim(bodies=[soft.ball((0.5, 0.5), 0.1, spacing=0.02, material=JELLY)]), "has 2 dimensions"),
        (lambda: sim(dt=-1.0), "dt is -1.0"),
        (lambda: sim(dtype=torch.float16), "expected torch.float32 or torch.float64"),
        (lambda: sim(gravity=(0, 1)), "gravity has shape (2,); expected (3,)"),
        (lambda: sim(drag=1e6), "drag is 1000000.0"),
        (lambda: sim().of("cub"), "did you mean 'cube'?"),
    ],
)  # fmt: skip
def test_what_a_scene_cannot_be(make, words):
    with raises(words):
        make()


def test_what_a_rollout_cannot_take():
    made = sim(bodies=[cube(actuator=0, fibre=(1, 0, 0))])
    state = made.state()
    for words, options in {
        "steps is -1": {"steps": -1},
        "actuation has shape (3, 2); expected (4, 1) or (4, 1, 1)": {"actuation": torch.zeros(3, 2)},
        "frame 5 of a rollout of 4 steps": {"frames": [5]},
        "frames is 0": {"frames": 0},
        "gravity has shape (2,)": {"gravity": torch.zeros(2)},
        "no body named 'cub'": {"materials": {"cub": JELLY}},
        "the kind of material cannot": {"materials": {"cube": soft.Fluid(bulk=1e3)}},
        "for 1 worlds of 216 particles": {"materials": {"cube": soft.Elastic(youngs=torch.ones(5))}},
        "checkpoint is 0": {"checkpoint": 0},
    }.items():
        with raises(words):
            made.rollout(state, **{"steps": 4, **options})
    with raises("F of the state has shape (216, 3)"):
        made.rollout(state.replace(F=state.v), 1)
    with raises("pass x.to(sim.device, sim.dtype)"):
        made.rollout(state.replace(x=state.x.double()), 1)


def test_bodies_of_shapes_and_meshes():
    ball = soft.ball((0.5, 0.5, 0.5), 0.2, spacing=0.02, material=JELLY)
    assert float(np.sum(ball.volume)) == pytest.approx(4.0 / 3.0 * np.pi * 0.2**3)
    shape = pb.sdf.box((0.2, 0.2, 0.2)) - pb.sdf.cylinder(0.1, 1.0)
    solid = soft.solid(shape, spacing=0.02, material=JELLY)
    assert float(np.sum(solid.volume)) == pytest.approx(0.4**3 - np.pi * 0.01 * 0.4, rel=0.02)
    flat = soft.solid(shape, spacing=0.01, dim=2, material=JELLY)
    assert float(np.sum(flat.volume)) == pytest.approx(0.4**2 - np.pi * 0.01, rel=0.02)
    trimesh = pytest.importorskip("trimesh")
    mesh = soft.solid(trimesh.creation.icosphere(3, 0.2), spacing=0.02, material=JELLY)
    assert float(np.sum(mesh.volume)) == pytest.approx(4.0 / 3.0 * np.pi * 0.2**3, rel=0.05)
    assert scene(("neo_hookean",)).particles == 27


def test_a_mesh_with_holes_is_refused():
    trimesh = pytest.importorskip("trimesh")
    sphere = trimesh.creation.icosphere(2, 0.2)
    with raises("is not watertight", "edges do not belong to exactly"):
        soft.solid(trimesh.Trimesh(sphere.vertices, sphere.faces[:-3]), spacing=0.02, material=JELLY)


def test_a_gradient_that_is_not_finite_is_refused():
    made = sim(dtype=torch.float64)
    x = made.state().x.requires_grad_()
    final = made.rollout(made.state().replace(x=x), 3).final
    with pytest.raises(pb.GradientError, match="not finite"):
        (1e307 * final.C.sum()).backward()


def test_what_ranks_that_share_particles_cannot_do():
    shared = sim()
    shared.shared = True
    with raises("a state of 2 worlds, and particles that ranks share; give one world"):
        shared.rollout(shared.state(2), 3)
    with raises("checkpoint is Binomial(slots=3); where ranks share particles give an integer"):
        shared.rollout(shared.state(), 3, checkpoint=pb.Binomial(3))
    none = torch.zeros(0, dtype=torch.int32)
    with raises("particles that ranks share cannot be coupled with robots"):
        ParticleSide(shared, ShapeKinds(none, none), shared.state())
