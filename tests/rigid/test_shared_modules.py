"""Which kernels are compiled together: those of a rollout on a CPU, none on a GPU (docs/decisions/0020)."""

import warp as wp

import pullback as pb
from pullback.cli.kernel_sets import kernels_of
from pullback.core.modules import initialize
from pullback.rigid import report_kernels, rollout_kernels
from pullback.rigid.compile.drives import AFFINE
from pullback.rigid.step.variants import contact_step, for_gpu


def rollout_step():
    initialize()
    return contact_step("round", pb.PGS(), (AFFINE,), wp.float64, compensates=False, splits=False)


def modules(step):
    return [kernel.module for factory in (rollout_kernels, report_kernels) for kernel in factory.kernels(step)]


def test_a_rollout_its_vjp_and_the_report_share_a_module_on_a_cpu():
    assert [module.name for module in set(modules(rollout_step()))] == ["pullback.rollout_round_finish.float64"]


def test_on_a_gpu_a_rollout_does_not_wait_for_its_vjp():
    step = for_gpu(rollout_step())
    forward, vjp, report, report_vjp = modules(step)
    assert forward is report
    assert len({forward, vjp, report_vjp}) == 3
    assert not {forward, vjp, report_vjp} & set(modules(rollout_step()))
    assert modules(for_gpu(rollout_step())) == [forward, vjp, report, report_vjp]


def test_kernels_compiled_ahead_are_those_that_run():
    step = rollout_step()
    for gpu, kind in ((False, step), (True, for_gpu(step))):
        assert {kernel.module for kernel in kernels_of(["round"], wp.float64, gpu=gpu)} == set(modules(kind))
