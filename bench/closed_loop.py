"""What `sim.step` costs in a torch loop, with and without a policy network in between: part of `make bench-sim`.

What it adds is the loop's time beyond a loop that does the same work bare: the policy on states that ask for gradients,
and the launch of the step's kernel with nothing around it. The two are done in turns there as well, for what one leaves
in the caches slows the other, whoever calls it. Loops are timed in pairs and the median difference counts: a busy host
changes what a call takes by half within seconds, and a difference of medians with it.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

import pullback as pb
from bench.laikagos import Call, Standing, forward_and_backward, stand
from bench.robot import Rows, verdict
from bench.timing import time_beyond, time_in_turns

LOOP = 200
BAR = 60
"""Microseconds that a step may add to a loop with a policy."""

Tensor = torch.Tensor


def measure_loop(rounds: int) -> tuple[Rows, dict[str, float]]:
    """Measure what `sim.step` in a torch loop costs beyond its kernel, with and without a policy network."""
    standing = stand()
    sim, start = standing.sim, standing.state
    u = standing.targets.clone().requires_grad_()
    policy = torch.nn.Sequential(torch.nn.Linear(37, 64), torch.nn.Tanh(), torch.nn.Linear(64, 12)).to(sim.dtype)
    # in the loop the policy records for the state's sake too, and every state is new to it
    recorded = [pb.State(start.q.clone().requires_grad_(), start.qd.clone().requires_grad_()) for _ in range(LOOP)]
    bare = bare_step(standing)

    def act(state: pb.State) -> Tensor:
        return standing.targets + 0.01 * policy(torch.cat((state.q, state.qd), 1))

    def loop(control: Callable[[pb.State], Tensor]) -> Tensor:
        state = start
        for _ in range(LOOP):
            state = sim.step(state, control(state))
        return state.q.square().sum() + state.qd.square().sum()

    def policy_and(work: Call) -> Tensor:
        actions = []
        for state in recorded:
            actions.append(act(state))
            work()
        return torch.stack(actions).square().sum()

    def kernels() -> None:
        for _ in range(LOOP):
            bare()

    def nothing() -> None:
        pass

    functions: dict[str, Callable[[], Tensor]] = {
        "loop": lambda: loop(lambda _: u),
        "policy loop": lambda: loop(act),
        "policy": lambda: policy_and(nothing),
    }
    bares: dict[str, Call] = {"kernel": kernels, "policy and kernel": lambda: policy_and(bare)}
    calls = {**functions, **bares}
    taken = {name: 1e6 * x / LOOP for name, x in time_in_turns(calls, rounds=2 * rounds).items()}
    rows: Rows = []
    for what, name, less in (("", "loop", "kernel"), (" with a policy", "policy loop", "policy and kernel")):
        over = 1e6 * time_beyond(calls[name], calls[less], rounds=8 * rounds) / LOOP
        parts = f"step {taken[name]:.1f}, {less} {taken[less]:.1f} us"
        rows.append((f"sim.step{what}, forward, beyond its kernel", f"{over:.1f} us", parts, _against_bar(over)))
        taken[f"overhead, {name}"] = over
    alone = f"policy {taken['policy']:.1f}, kernel {taken['kernel']:.1f} us"
    apart = taken["policy loop"] - taken["policy"] - taken["kernel"]
    rows.append(("the same beyond both measured apart, caches warm", f"{apart:.1f} us", alone, ""))
    rows += _backward_rows(standing, functions, {"loop": [u]}, list(policy.parameters()), rounds)
    return rows, {f"closed loop, {name} [us]": value for name, value in taken.items()}


def _against_bar(over: float) -> str:
    return f"bar {BAR} us {verdict(over <= BAR)}"


def _backward_rows(
    standing: Standing,
    functions: dict[str, Callable[[], Tensor]],
    leaves: dict[str, list[Tensor]],
    weights: list[Tensor],
    rounds: int,
) -> Rows:
    """Compare the backward passes of the loops with the policy's and the kernel's."""
    backward: dict[str, Call] = {}
    for name, loss_of in functions.items():
        loss, inputs = loss_of(), leaves.get(name, weights)
        backward[name] = lambda x=loss, y=inputs: torch.autograd.grad(x, y, retain_graph=True)
    for steps in (500, 1000):
        backward[f"kernel {steps}"] = forward_and_backward(standing, steps)[1]
    taken = {name: 1e6 * x for name, x in time_in_turns(backward, rounds=rounds).items()}
    # a step of a rollout without what a call costs
    kernel = (taken["kernel 1000"] - taken["kernel 500"]) / 500
    loop, closed, policy = (taken[name] / LOOP for name in ("loop", "policy loop", "policy"))
    whole, parts = f"step {loop:.1f}, kernel {kernel:.1f} us", f"step {closed:.1f}, policy {policy:.1f} us"
    return [
        ("sim.step, backward, beyond its kernel", f"{loop - kernel:.1f} us", whole, ""),
        ("sim.step with a policy, backward, beyond both", f"{closed - policy - kernel:.1f} us", parts, ""),
    ]


def bare_step(standing: Standing) -> Call:
    """Return the launch of one step's kernel from the standing state, into tensors that are there already."""
    sim, (q, qd) = standing.sim, (standing.state.q, standing.state.qd)
    sim.step(standing.state, standing.targets)
    program = sim._programs.step()
    launch, addresses, places = program.launchers(q)[0].copy()
    inputs = (q, qd, None, standing.targets, sim.parameters.packed())
    made = [q.new_empty(rows) for rows in (*program.rows, *program.scratch)]
    for place, x in zip(places, (*inputs, *made)):
        addresses[place] = 0 if x is None or x.numel() == 0 else x.data_ptr()

    def step(kept: object = (inputs, made)) -> None:
        launch()

    return step
