"""Checkpoint schedules: plans that are executed on a toy map, their counts, and what is refused."""

from functools import lru_cache

import numpy as np
import pytest

from pullback.core.errors import PullbackError
from pullback.rollout.checkpoint import (
    ADVANCE,
    RESTORE,
    SAVE,
    VJP,
    Binomial,
    Every,
    Plan,
    Schedule,
    binomial_advances,
    schedule_from,
)

LENGTHS = [0, 1, 2, 3, 4, 5, 7, 10, 16, 33, 100]
SCHEDULES = [Every(k) for k in (1, 2, 3, 5, 10, 100, 1000)] + [Binomial(s) for s in (2, 3, 4, 5, 10, 100, 2000)]


def next_state(state: int, step: int) -> int:
    """Return a state that only the right step on the right state gives."""
    return (1103515245 * state + 12345 + step) % 2**31


def trajectory(n: int) -> list[int]:
    states = [1]
    for step in range(n):
        states.append(next_state(states[-1], step))
    return states


def execute(plan: Plan, n: int) -> tuple[list[int], dict[int, int]]:
    """Execute a plan, check each action, and return the steps pulled back in order and the number of each op."""
    states = trajectory(n)
    memory = {slot: states[k] for slot, k in enumerate(plan.kept)}
    current, pulled, counts = None, [], dict.fromkeys((RESTORE, ADVANCE, SAVE, VJP), 0)
    for op, step, slot in plan.actions.tolist():
        counts[op] += 1
        if op == RESTORE:
            current = memory[slot]
        assert current == states[step]
        if op == ADVANCE:
            current = next_state(current, step)
        elif op == SAVE:
            assert len(plan.kept) <= slot < len(plan.kept) + plan.slots
            memory[slot] = current
        elif op == VJP:
            pulled.append(step)
            current = None
    return pulled, counts


@lru_cache
def fewest_advances(n: int, slots: int) -> int:
    """Return the optimum by trying every place for the next state to hold."""
    if n <= 1:
        return 0
    if slots == 1:
        return n * (n - 1) // 2
    return min(m + fewest_advances(n - m, slots - 1) + fewest_advances(m, slots) for m in range(1, n))


def most_alive(plan: Plan) -> int:
    """Return how many states a Binomial plan holds at once, the initial one included, the last one not."""
    actions = plan.actions.tolist()
    # a scratch slot is alive from a SAVE to the last RESTORE before the next SAVE
    alive = np.zeros(len(actions) + 1, int)
    for slot in {slot for op, _, slot in actions if op == SAVE}:
        since = last = 0
        for k, (op, _, used) in enumerate([*actions, (SAVE, 0, slot)]):
            if used == slot and op == SAVE:
                alive[since:last] += 1
                since = last = k
            elif used == slot and op == RESTORE:
                last = k
    return 1 + int(alive.max())


@pytest.mark.parametrize("n", LENGTHS)
@pytest.mark.parametrize("schedule", SCHEDULES, ids=str)
def test_every_step_is_pulled_back_once_from_its_own_state(schedule, n):
    plan = schedule.plan(n)
    pulled, _ = execute(plan, n)
    assert pulled == list(reversed(range(n)))
    assert plan.kept.dtype == plan.actions.dtype == np.int32
    assert plan.actions.shape[1] == 3


@pytest.mark.parametrize("n", LENGTHS)
@pytest.mark.parametrize("schedule", SCHEDULES, ids=str)
def test_the_ends_are_kept(schedule, n):
    kept = schedule.kept(n).tolist()
    assert kept == sorted(set(kept))
    assert kept[0] == 0
    assert kept[-1] == n


@pytest.mark.parametrize("k", [1, 2, 3, 5, 10, 100, 1000])
@pytest.mark.parametrize("n", LENGTHS)
def test_every_recomputes_each_state_that_was_not_kept_once(k, n):
    plan = Every(k).plan(n)
    _, counts = execute(plan, n)
    assert plan.kept.tolist() == sorted({*range(0, n, k), n})
    # state n is kept, too, and no other than those is needed
    assert counts[ADVANCE] == n - -(-n // k)
    assert plan.slots == max(min(k, n) - 2, 0)


def test_every_state_kept_is_one_restore_and_one_vjp_a_step():
    assert Every(1).plan(3).actions.tolist() == [
        [RESTORE, 2, 2], [VJP, 2, -1], [RESTORE, 1, 1], [VJP, 1, -1], [RESTORE, 0, 0], [VJP, 0, -1],
    ]  # fmt: skip


@pytest.mark.parametrize("slots", [2, 3, 4, 5, 6, 10])
@pytest.mark.parametrize("n", [*range(1, 40), 60])
def test_binomial_recomputes_as_little_as_possible(slots, n):
    _, counts = execute(Binomial(slots).plan(n), n)
    assert counts[ADVANCE] == fewest_advances(n, slots) == binomial_advances(n, slots)


@pytest.mark.parametrize("slots", [2, 3, 4, 5, 10, 30])
@pytest.mark.parametrize("n", [1, 2, 5, 10, 33, 100, 300])
def test_binomial_holds_no_more_states_than_it_may(slots, n):
    plan = Binomial(slots).plan(n)
    assert plan.kept.tolist() == [0, n]
    assert plan.slots <= slots - 1
    assert most_alive(plan) <= slots


def test_binomial_with_room_for_all_states_advances_once():
    _, counts = execute(Binomial(4000).plan(3000), 3000)
    assert counts == {RESTORE: 3000, ADVANCE: 2999, SAVE: 2998, VJP: 3000}


# the counts that stand in docs/derivations/checkpoints.md, for 5,000 steps
@pytest.mark.parametrize(
    ("schedule", "memory", "advances"),
    [
        (Every(1), 5001, 0),
        (Every(10), 509, 4500),
        (Every(71), 141, 4929),
        (Every(500), 509, 4990),
        (Binomial(5), 6, 47624),
        (Binomial(10), 11, 25632),
        (Binomial(20), 21, 17976),
        (Binomial(100), 101, 9898),
    ],
    ids=str,
)
def test_the_documented_counts(schedule, memory, advances):
    plan = schedule.plan(5000)
    assert len(plan.kept) + plan.slots == memory
    assert int((plan.actions[:, 0] == ADVANCE).sum()) == advances


def test_a_plan_is_made_once_and_cannot_be_changed():
    plan = Every(3).plan(10)
    assert Every(3).plan(10) is plan
    with pytest.raises(ValueError, match="read-only"):
        plan.actions[0, 0] = 1


def test_an_integer_is_a_schedule():
    assert schedule_from(4) == Every(4)
    assert schedule_from(np.int64(4)) == Every(4)
    assert schedule_from(Binomial(3)) == Binomial(3)
    assert isinstance(Every(2), Schedule)


@pytest.mark.parametrize("checkpoint", [2.5, "sqrt", None, True, Every])
def test_what_is_no_schedule_is_refused(checkpoint):
    with pytest.raises(PullbackError, match=r"expected an integer k .*Every\(k\), Binomial\(slots\)"):
        schedule_from(checkpoint)


@pytest.mark.parametrize("checkpoint", [0, -3])
def test_an_interval_below_one_is_refused(checkpoint):
    with pytest.raises(PullbackError, match=f"checkpoint is {checkpoint}; expected at least 1"):
        schedule_from(checkpoint)


def test_sizes_that_make_no_schedule_are_refused():
    with pytest.raises(PullbackError, match="interval is 0; expected an integer, at least 1"):
        Every(0)
    with pytest.raises(PullbackError, match=r"interval is 1.5; expected an integer"):
        Every(1.5)  # type: ignore[arg-type]
    with pytest.raises(PullbackError, match="slots is 1; expected an integer, at least 2"):
        Binomial(1)
    with pytest.raises(PullbackError, match="number of steps is -1"):
        Every(2).plan(-1)
