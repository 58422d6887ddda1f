"""Cloth and bodies of a world: what one gives the other gets, and gradients through both."""

import pytest
import torch

import pullback as pb

soft = pb.soft
FABRIC = soft.Fabric(youngs=40.0, bending=1e-3, density=0.3, damping=0.01)


def scene(values=None, gravity=None):
    """Return a ball thrown at a sheet, whose corners a heavy box holds."""
    sheet = soft.sheet((-0.2, -0.2, 0), (0.4, 0, 0), (0, 0.4, 0), cells=(4, 4), material=FABRIC, pins=[0, 4])
    cloth = soft.ClothSim([sheet], dt=0.005, gravity=gravity, dtype=torch.float64, contact_stiffness=60.0)
    world = pb.World(gravity=(0.0, 0.0, 0.0))
    world.add_sphere("ball", position=(0.03, 0.0, 0.16), radius=0.12, mass=0.5, friction=0.4)
    if values is not None:
        world.set_shape("ball", size=values["radius"].reshape(1), friction=values["friction"])
    world.add_box("hand", size=(0.1, 0.1, 0.1), mass=1.0, position=(-0.4, 0.0, 0.0))
    return soft.Coupled(cloth, world.compile(dt=0.005, dtype=torch.float64), hold={"hand": [0, 1]})


def throw(both, speed=-2.0):
    start = both.state()
    qd = start.rigid.qd.clone()
    qd[0, :6] = torch.tensor([3.0, 1.0, 0.0, 0.3, 0.2, speed])
    return start.replace(rigid=pb.State(start.rigid.q, qd))


def test_momentum_is_exchanged():
    """Linear momentum of cloth and bodies together, over a hit, to rounding; the ball is slowed, the hand moved."""
    both = scene()
    start = throw(both)
    run = both.rollout(start, 40)
    before, after = both.momentum(start)[0], both.momentum(run.final)[0]
    assert float((after - before).abs().max()) < 1e-11
    assert float(run.final.rigid.qd[0, 5]) > -1.7
    assert float(run.final.rigid.qd[0, 9:].abs().max()) > 1e-3
    assert float(run.wrenches[:, 0, 0, 5].max()) > 0.5
    assert float(run.wrenches[:, 0, 0, 3:5].abs().max()) > 0.01


def test_gradients_are_differences():
    """By both states, the fabric, and size and friction of the ball, through the hit."""
    one = {name: torch.tensor(x, dtype=torch.float64) for name, x in (("radius", 0.12), ("friction", 0.4))}
    start = throw(scene())
    values = one | {"youngs": torch.tensor(40.0).double(), "q": start.rigid.q, "qd": start.rigid.qd}
    values |= {"x": start.soft.x, "v": start.soft.v}
    generator = torch.Generator().manual_seed(1)
    directions = {k: torch.rand(x.shape, generator=generator, dtype=x.dtype) - 0.5 for k, x in values.items()}
    directions["q"][:, 3:7] = 0.0
    directions["q"][:, 10:] = 0.0
    directions = {
        k: d * (0.1 if k in ("x", "q", "radius") else 10.0 if k == "youngs" else 1.0) for k, d in directions.items()
    }

    def loss(given):
        both = scene({name: given[name] for name in one})
        state = soft.CoupledState(soft.ClothState(given["x"], given["v"]), pb.State(given["q"], given["qd"]))
        fabric = soft.Fabric(youngs=given["youngs"], bending=1e-3, density=0.3, damping=0.01)
        run = both.rollout(state, 30, materials={"sheet": fabric})
        weights = torch.linspace(-1.0, 1.0, 13, dtype=torch.float64)[:12]
        return run.final.soft.x.square().sum() + (run.final.rigid.qd * weights).sum() + run.wrenches[20].square().sum()

    leaves = {name: x.detach().clone().requires_grad_() for name, x in values.items()}
    gradients = dict(zip(leaves, torch.autograd.grad(loss(leaves), list(leaves.values()))))
    for group in (["qd", "q"], ["x", "v"], ["radius", "friction", "youngs"]):

        def along(t, group=group):
            return float(loss({k: x + t * directions[k] if k in group else x for k, x in values.items()}))

        h = 1e-5
        difference = (8.0 * (along(h) - along(-h)) - (along(2 * h) - along(-2 * h))) / (12.0 * h)
        found = float(sum((gradients[k] * directions[k]).sum() for k in group))
        assert found == pytest.approx(difference, rel=1e-5), group


BAD = {
    "particles have none": lambda: _particles().rollout(_particles().state(), 1, pins=torch.zeros(1, 1, 3)),
    "cloth has pins": lambda: scene().rollout(scene().state(), 1, actuation=torch.zeros(1, 1)),
    "hold: pin 7": lambda: _holding({"hand": [7]}),
    "thin": lambda: _thin(),
}


def _particles():
    body = soft.ball((0.2, 0.2, 0.2), 0.1, spacing=0.05, material=soft.Elastic(youngs=1e3))
    particles = soft.SoftSim(soft.Domain((0, 0, 0), (0.4, 0.4, 0.4), 0.1), [body], dt=1e-3)
    world = pb.World()
    world.add_sphere("ball", radius=0.1, mass=1.0)
    return soft.Coupled(particles, world.compile(dt=1e-3))


def _holding(hold):
    both = scene()
    return soft.Coupled(both.soft, both.rigid, hold=hold)


def _thin():
    world = pb.World()
    world.add_box("leaf", size=(0.1, 0.1, 0.001), mass=1.0)
    return soft.Coupled(scene().soft, world.compile(dt=0.005, dtype=torch.float64))


def test_a_body_that_fits_between_vertices_is_named():
    world = pb.World()
    world.add_capsule("stick", radius=0.03, length=0.5, mass=0.2)
    sim = world.compile(dt=0.005, dtype=torch.float64)
    with pytest.warns(pb.SimulationWarning, match=r"'stick' is 0\.06 m wide, less than the 0\.1\d* m"):
        soft.Coupled(scene().soft, sim)


@pytest.mark.parametrize("message", BAD)
def test_bad_input_is_refused(message):
    with pytest.raises(pb.PullbackError, match=message):
        BAD[message]()
