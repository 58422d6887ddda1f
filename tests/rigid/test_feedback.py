"""Rollouts under feedback: one launch does what a loop over steps does, with bounds, defects and contact."""

import pytest
import torch

import pullback as pb
from pullback.rigid.state import State, Trajectory

TOES = ("toeFR", "toeFL", "toeRR", "toeRL")
STEPS, WORLDS = 6, 3


def dog(dtype: torch.dtype = torch.float64, device: str = "cpu", **options) -> pb.Sim:
    """Return a Laikago that stands on the ground, and a ball that flies."""
    world = pb.World(contact=pb.PGS(warm_start=options.pop("warm_start", False)))
    robot = pb.load("laikago", base="floating", dtype=dtype, device=device)
    joints = [name for name in robot.joint_names if name != "floating_base"]
    servo = pb.PositionServo(kp=150.0, kd=3.0, limit=100.0)
    bent = dict(zip(joints, (0.2, 0.0, -0.5) * 4))
    world.add(robot, position=(0, 0, 0.4825), q=bent, actuators=servo, collision_links=TOES)
    world.add_sphere("ball", radius=0.05, mass=0.5, position=(1.5, 0.0, 0.3))
    world.add_ground(friction=0.8)
    return world.compile(dt=2e-3, dtype=dtype, device=device, **options)


def random(*shape: int, scale: float, like: pb.Sim, seed: int) -> torch.Tensor:
    """Return seeded normal numbers, the same for all types and devices."""
    x = torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return (scale * x).to(like.dtype).to(like.device)


def task(sim: pb.Sim) -> tuple[State, torch.Tensor, torch.Tensor, Trajectory, dict[str, torch.Tensor]]:
    """Return arguments of a rollout that starts away from the nominal one, with bounds that hold, and defects."""
    n = 2 * sim.nv
    targets = torch.tensor((0.2, 0.0, -0.5) * 4, dtype=sim.dtype, device=sim.device)
    controls = targets + random(STEPS, WORLDS, sim.nu, scale=0.05, like=sim, seed=1)
    nominal = sim.rollout(sim.initial_state(WORLDS), controls)
    moved = sim.retract(nominal[0], random(WORLDS, n, scale=0.05, like=sim, seed=2))
    gains = random(STEPS, WORLDS, sim.nu, n, scale=0.1, like=sim, seed=3)
    bounds = {"lower": targets - 0.08, "upper": controls + 0.06}
    return (
        moved,
        controls,
        gains,
        nominal,
        {**bounds, "defects": random(STEPS, WORLDS, n, scale=0.01, like=sim, seed=4)},
    )


def step_by_step(sim, state, controls, gains, nominal, *, lower=None, upper=None, defects=None):
    """Return q, qd and controls of the same rollout, one step after another."""
    q, qd, applied = [state.q], [state.qd], []
    for t in range(len(controls)):
        u = controls[t] + (gains[t] @ sim.difference(nominal[t], state)[..., None])[..., 0]
        u = u if lower is None else u.maximum(lower)
        u = u if upper is None else u.minimum(upper[t])
        state = sim.step(state, u)
        if defects is not None:
            state = State(*[getattr(sim.retract(state, defects[t]), x) for x in ("q", "qd")], state.impulses)
        q.append(state.q)
        qd.append(state.qd)
        applied.append(u)
    return torch.stack(q), torch.stack(qd), torch.stack(applied)


@pytest.mark.parametrize("options", [{}, {"warm_start": True, "substeps": 2}], ids=["plain", "warm"])
def test_one_launch_is_a_loop_over_steps(options):
    sim = dog(**options)
    state, controls, gains, nominal, more = task(sim)
    for given in ({}, more):
        found, applied = sim.feedback_rollout(state, controls, gains, nominal, **given)
        q, qd, u = step_by_step(sim, state, controls, gains, nominal, **given)
        assert (found.q - q).abs().max() < 1e-9
        assert (found.qd - qd).abs().max() < 1e-7
        assert (applied - u).abs().max() < 1e-9
    assert (applied == more["upper"]).any()
    assert (applied == more["lower"]).any()
    assert found.steps.tolist() == list(range(STEPS + 1))


def test_without_gains_it_is_a_rollout():
    sim = dog()
    _, controls, gains, nominal, _ = task(sim)
    found, applied = sim.feedback_rollout(nominal[0], controls, 0.0 * gains, nominal)
    assert torch.equal(found.q, nominal.q)
    assert torch.equal(applied, controls)


def test_a_world_that_goes_wrong_does_not_stop_the_others():
    sim = dog()
    state, controls, gains, nominal, _ = task(sim)
    expected, _ = sim.feedback_rollout(state, controls, gains, nominal)
    gains[2, 1] = torch.inf
    found, applied = sim.feedback_rollout(state, controls, gains, nominal)
    assert found.status.code.tolist()[1] & 1
    assert found.q[3:, 1].isnan().all()
    assert applied[2:, 1].isnan().all()
    assert torch.equal(found.q[:, ::2], expected.q[:, ::2])


@pytest.mark.parametrize("name", ["gains", "defects", "lower", "nominal"])
def test_what_does_not_fit_is_named(name):
    sim = dog()
    state, controls, gains, nominal, more = task(sim)
    wrong = {"gains": gains, "nominal": nominal, **more}
    wrong[name] = nominal.detach() if name == "nominal" else wrong[name][..., :-1]
    if name == "nominal":
        wrong[name] = Trajectory(nominal.q[1:], nominal.qd[1:], nominal.status, nominal.steps[1:])
    with pytest.raises(pb.PullbackError, match=name):
        sim.feedback_rollout(state, controls, **wrong)


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float64, 1e-8), (torch.float32, 1e-3)], ids=["double", "single"]
)
def test_a_gpu_gives_what_a_cpu_gives(dtype, tolerance):
    on_cpu, on_gpu = dog(torch.float64), dog(dtype, "cuda")
    expected, _ = on_cpu.feedback_rollout(*(arguments := task(on_cpu))[:4], **arguments[4])
    found, _ = on_gpu.feedback_rollout(*(arguments := task(on_gpu))[:4], **arguments[4])
    assert (found.q.cpu().double() - expected.q).abs().max() < tolerance
