"""What one rank of several computes, written to a file: `python -m tests.scale.rank_cases FOLDER`.

The environment variables are those of torchrun. Every case is a function of nothing that returns tensors by name; the
same functions run in the test's own process, as one rank.
"""

import os
import sys
from pathlib import Path
from unittest.mock import patch

import torch

import pullback.thermal as th
from pullback.control import Recording, Unknown, identify, minimize
from pullback.control.search.shooting import train as train_module
from pullback.core.ranks import leave_ranks, ranks, start_ranks
from pullback.learn import AHAC, SAPO, SHAC, make
from pullback.learn.episodes import EpisodeConfig, EpisodeSearch
from pullback.learn.ppo import PPO, PPOConfig
from pullback.rigid.world.world import World
from pullback.robot.load import load
from pullback.soft import Elastic, SoftState
from pullback.soft.shared import SharedMarch
from tests.soft.scenes import actuation_of, scene
from tests.soft.scenes import start as start_of
from tests.thermal.cases import OTHER, TOY, leaves, wall

F64 = torch.float64
SMALL = {"actor_hidden": (8,), "critic_hidden": (8,), "critic_passes": 2, "horizon": 4, "iterations": 10}


def weights(*modules):
    """Return all numbers of modules as one vector."""
    return torch.cat([x.detach().double().flatten() for m in modules for x in m.state_dict().values()])


def shac():
    """Two iterations of SHAC."""
    return _short_horizon((SHAC, {}))


def other_short_horizon():
    """Two iterations of the other short-horizon algorithms."""
    return _short_horizon((AHAC, {"horizon": 8, "critic_tolerance": 1e-9}), (SAPO, {}))


def _short_horizon(*kinds):
    """Return loss, gradient, networks and normaliser."""
    found = {}
    for kind, extra in kinds:
        env = make("cart-pole", 8, seed=3, dtype=F64)
        run = kind(env, kind.Config.of(env, **{**SMALL, **extra}))
        for _ in range(2):
            run.iterate()
        name = kind.__name__
        found[f"{name} networks"] = weights(run.policy, run.critics.networks)
        found[f"{name} gradient"] = torch.cat([p.grad.flatten() for p in run.policy.parameters() if p.grad is not None])
        last = run.history[-1]
        found[f"{name} report"] = torch.tensor(
            [last.step_reward, last.value_loss, last.gradient_norm, last.broken, last.steps, *last.gradient_by_step]
        )
        found[f"{name} env"] = env.save_state()["q"]
    return found


def other_learning():
    """PPO and whole episodes."""
    env = make("cart-pole", 8, seed=3, dtype=F64)
    ppo = PPO(env, PPOConfig(iterations=2, horizon=8, passes=2, batches=2, hidden=(8,)))
    ppo.iterate()
    short = make("cart-pole", 8, seed=4, dtype=F64)
    short.episode = 6
    search = EpisodeSearch(short, EpisodeConfig(iterations=2, hidden=(8,)))
    search.iterate()
    return {
        "PPO networks": weights(ppo.policy, ppo.critic),
        "PPO reward": torch.tensor([ppo.history[-1].reward]),
        "episodes networks": weights(search.policy),
        "episodes loss, gradient": torch.tensor([search.history[-1].loss, search.history[-1].gradient]),
    }


def pendulum():
    """Return a cart-pole without a ground."""
    world = World()
    world.add(load("cart_pole", dtype=F64), name="cart")
    return world.compile(dt=0.02, dtype=F64)


def searches():
    """Controls by `minimize`, a module by `train`, a mass by `identify`."""
    sim = pendulum()
    start = sim.initial_state(1)

    def loss(u):
        state = type(start)(start.q.repeat(len(u), 1), start.qd.repeat(len(u), 1), start.impulses)
        path = sim.rollout(state, u.transpose(0, 1))
        return (path.q[-1] - 1.0).square().sum(1)

    generator = torch.Generator().manual_seed(0)
    starts = 0.1 * torch.randn(6, 5, sim.nu, dtype=F64, generator=generator)
    found = {}
    for method in ("adam", "lbfgs", "random"):
        best = minimize(loss, starts, method=method, iterations=3, progress=False, population=5)
        found[f"minimize {method}"] = torch.cat([best.losses.flatten(), best.best.flatten()])
    module = torch.nn.Linear(5, 5 * sim.nu, dtype=F64)
    torch.nn.init.constant_(module.weight, 0.01)
    torch.nn.init.zeros_(module.bias)
    inputs = torch.randn(8, 5, dtype=F64, generator=generator)[ranks().own(8)]
    trained = train_module(lambda: loss(module(inputs).view(-1, 5, sim.nu)), module, iterations=3, progress=False)
    found["train"] = torch.cat([trained.losses.flatten(), trained.best])
    q0 = torch.tensor([0.0, 0.4], dtype=F64)
    state = type(start)(q0[None].repeat(4, 1), torch.randn(4, 2, dtype=F64, generator=generator), start.impulses)
    controls = torch.randn(20, 4, sim.nu, dtype=F64, generator=generator)
    path = sim.rollout(state, controls)
    recording = Recording(path.q, path.qd, controls, sim.dt)
    for method in ("lm", "adam"):
        unknown = Unknown("cart/pole", "mass", start=0.15)
        fitted = identify(pendulum(), recording, [unknown], method=method, iterations=3, window=10)
        found[f"identify {method}"] = torch.cat([torch.tensor(fitted.losses, dtype=F64), fitted.numbers])
    return found


def _gradients(process, probes, **options):
    """Return observations and the gradient of their mean by power and all parameters."""
    power, parameters = leaves(process)
    history = process.run(power, probes=probes, snapshots=[process.steps // 3, process.steps], **parameters, **options)
    states = torch.arange(1.0, len(history.probes) + 1, dtype=F64)[:, None]
    loss = (history.probes * states).sum() / states.sum() + history.snapshots.square().mean() + history.final.mean()
    loss.backward()
    found = {"loss": loss.detach()[None], "probes": history.probes.detach(), "snapshots": history.snapshots.detach()}
    found |= {f"gradient by {name}": x.grad.reshape(-1) for name, x in {"power": power, **parameters}.items()}
    ledger = history.ledger
    found["ledger"] = torch.tensor([ledger.laser, ledger.convection, ledger.radiation, ledger.fixed, ledger.births])
    assert abs(ledger.error) < 1e-10
    return found


def explicit_part():
    """The wall that melts, its beam and births across borders: fixed probes, explicit steps."""
    process = wall()
    return _gradients(process, process.probes([[0.0, 0.0, 0.0005], [0.0012, 0.0, 0.0015]]), checkpoint=7)


def implicit_part():
    """The same by implicit steps, with probes that follow the beam."""
    process = wall(method=th.Implicit(theta=0.7), dt=0.1)
    return _gradients(process, process.under_beam([0.0, 0.5e-3]))


def two_materials():
    """Two materials whose border is not that of the ranks."""
    material = {"plate": OTHER, "build": TOY}
    process = wall(material=material)
    power = torch.full((process.steps,), 250.0, dtype=F64, requires_grad=True)
    final = process.run(power).final
    final.square().mean().backward()
    return {"final": final.detach(), "gradient": power.grad}


def particles():
    """Five materials with muscles that fly apart and across borders, by sums over ranks: all gradients."""
    steps = 40
    sim = scene(dim=2, size=10, shared=True)
    together, whole = ranks(), start_of(sim, speed=0.3)
    # a motion that carries particles from one rank to another
    state = whole.replace(v=whole.v + torch.tensor([2.0, 0.5], dtype=F64) * (whole.x - whole.x.mean(0)).sign())
    parts = {name: getattr(state, name).clone().requires_grad_() for name in ("x", "v", "C", "F", "history")}
    numbers = {"youngs": torch.tensor(300.0, dtype=F64), "poisson": torch.tensor(0.3, dtype=F64)}
    material = Elastic(**{name: x.requires_grad_() for name, x in numbers.items()})
    controls = {"gravity": sim.gravity.clone(), "actuation": actuation_of(sim, steps)}
    leaves = {**parts, **numbers, **{name: x.requires_grad_() for name, x in controls.items()}}
    migrated = []
    forward = SharedMarch.forward

    def watched(march, *arguments):
        outputs = forward(march, *arguments)
        migrated.append(march.migrated)
        return outputs

    with patch.object(SharedMarch, "forward", watched):
        run = sim.rollout(
            SoftState(**parts), steps, materials={"neo_hookean": material}, frames=[0, 16, 25, 40], checkpoint=4,
            **controls,
        )  # fmt: skip
    assert not together.many or together.sum(torch.tensor(migrated))[0] > 0, "no particle changed its rank"
    final = {name: getattr(run.final, name) for name in parts}
    weights = torch.Generator().manual_seed(5)
    outputs = [*final.values(), run.x, run.v]
    loss = sum((x * torch.randn(x.shape, generator=weights, dtype=F64)).mean() for x in outputs)
    loss.backward()
    found = {name: x.detach() for name, x in final.items()} | {"frames": run.x.detach(), "loss": loss.detach()[None]}
    found |= {f"gradient by {name}": x.grad.reshape(-1) for name, x in leaves.items()}
    assert sim.shared == together.many
    return found


def messages():
    """Small messages to some ranks and large ones to others, in one exchange: each pair takes its own way."""
    together = ranks()
    others = [rank for rank in range(together.count) if rank != together.rank]

    def message(source, target):
        size = 3 if (source + target) % 2 else 200_000
        return torch.arange(size, dtype=F64) + 10 * source + target

    receive = [(rank, torch.empty_like(message(rank, together.rank))) for rank in others]
    together.swap([(rank, message(together.rank, rank)) for rank in others], receive)
    for rank, found in receive:
        assert torch.equal(found, message(rank, together.rank))
    return {}


CASES = {
    "shac": shac, "other_short_horizon": other_short_horizon, "other_learning": other_learning, "searches": searches,
    "explicit_part": explicit_part, "implicit_part": implicit_part, "two_materials": two_materials,
    "particles": particles, "messages": messages,
}  # fmt: skip


def main(folder: Path, names: list[str]) -> None:
    """Run cases on this rank."""
    torch.set_num_threads(1)
    together = start_ranks()
    found = {name: CASES[name]() for name in names or CASES}
    torch.save(found, folder / f"{os.environ.get('RANK', '0')}_of_{together.count}.pt")
    leave_ranks()
    # threads of torch's group that are left when the interpreter ends may abort the process
    threads = [Path(path, "comm").read_text() for path in Path("/proc/self/task").iterdir()]
    assert not any("gloo" in name for name in threads), threads


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
