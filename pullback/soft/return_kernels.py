"""Deformation after a step, returned to the yield surface, and its vjp: section 5 of docs/derivations/mpm.md."""

from types import SimpleNamespace

import warp as wp

from pullback.core.modules import made_once
from pullback.soft.material_kernels import FLUID, stresses
from pullback.soft.tensor_kernels import tensors
from pullback.soft.variant_kernels import THIRD, Variant


@made_once
def returns(variant: Variant) -> SimpleNamespace:
    """Return the functions of deformation for the kinds of a variant."""
    types, module = variant.types, variant.module("return")
    real, vec, mat = variant.real, types.vec, types.mat
    dim = variant.dim
    tensor, material = tensors(variant.plain), stresses(variant)
    log_difference, sinh_ratio, symmetric = tensor.log_difference, tensor.sinh_ratio, tensor.symmetric
    strains, sum_of, is_plastic = material.strains, material.sum_of, material.is_plastic
    flow, flow_vjp, has_plastic = material.flow, material.flow_vjp, material.has_plastic
    has_fluid = FLUID in variant.kinds
    part = 1.0 / dim

    @wp.func(module=module)
    def plastic(kind: int, F: mat, history: real, kappa: real):
        """Return F and history on the yield surface, eq. (31)."""
        epsilon, _b, N = strains(F)
        c, s, after, _torn = flow(kind, epsilon, history, kappa)
        mean = real(part) * sum_of(epsilon)
        scaled = mat()
        for a in range(dim):
            g = wp.exp(c - s * (epsilon[a] - mean))
            for k in range(dim):
                scaled[k, a] = N[k, a] * g
        return scaled * wp.transpose(N) * F, after

    @wp.func(module=module)
    def plastic_vjp(kind: int, F: mat, history: real, kappa: real, adj_F: mat, adj_after: real):
        """Return the cotangents of F, history and kappa, eq. (32) to (36)."""
        epsilon, b, N = strains(F)
        c, s, _after, torn = flow(kind, epsilon, history, kappa)
        trace = sum_of(epsilon)
        e = epsilon
        log_g = epsilon
        g = epsilon
        for a in range(dim):
            e[a] = epsilon[a] - real(part) * trace
            log_g[a] = c - s * e[a]
            g[a] = wp.exp(log_g[a])
        M = wp.transpose(N) * symmetric(adj_F * wp.transpose(F)) * N
        q = vec()
        for a in range(dim):
            q[a] = g[a] * M[a, a]
        adj_history = real(0.0)
        adj_kappa = real(0.0)
        adj_epsilon = vec()
        if torn:
            # eq. (35)
            adj_history = adj_after
            for a in range(dim):
                adj_epsilon[a] = adj_after - q[a]
        else:
            adj_e, adj_trace, adj_history, adj_kappa = flow_vjp(kind, e, trace, history, kappa, s, q, adj_after)
            mean = real(part) * sum_of(adj_e)
            for a in range(dim):
                adj_epsilon[a] = adj_e[a] - mean + adj_trace
        scaled = mat()
        for a in range(dim):
            for k in range(dim):
                scaled[k, a] = N[k, a] * g[a]
        # eq. (32), (34)
        for a in range(dim):
            for k in range(dim):
                if a == k:
                    M[a, a] = real(0.5) * adj_epsilon[a] / b[a]
                else:
                    middle = wp.exp(real(0.5) * (log_g[a] + log_g[k]))
                    ratio = sinh_ratio(real(0.5) * (log_g[a] - log_g[k]))
                    M[a, k] = -s * log_difference(b[a], b[k]) * middle * ratio * M[a, k]
        found = scaled * wp.transpose(N) * adj_F + real(2.0) * (N * M * wp.transpose(N)) * F
        return found, adj_history, adj_kappa

    @wp.func(module=module)
    def deformed(kind: int, F: mat, C: mat, history: real, kappa: real, dt: real):
        """Return F and history after a step with the affine velocity C, eq. (11), (28)."""
        new = F + dt * C * F
        after = history
        if has_fluid:
            if kind == FLUID:
                new = mat()
                for a in range(dim):
                    new[a, a] = real(1.0)
                new[0, 0] = F[0, 0] * (real(1.0) + dt * wp.trace(C))
        if has_plastic:
            if is_plastic(kind):
                new, after = plastic(kind, new, history, kappa)
        return new, after

    @wp.func(module=module)
    def trial_vjp(kind: int, F: mat, C: mat, history: real, numbers: types.numbers, dt: real, adj_F: mat, adj_h: real):
        """Return the cotangents of F^ of eq. (11), of history, and of kappa."""
        found = adj_F
        adj_history = adj_h
        adj_kappa = real(0.0)
        if has_plastic:
            if is_plastic(kind):
                trial = F + dt * C * F
                found, adj_history, adj_kappa = plastic_vjp(kind, trial, history, numbers[THIRD], adj_F, adj_h)
        return found, adj_history, adj_kappa

    @wp.func(module=module)
    def affine_vjp(kind: int, F: mat, adj_trial: mat, dt: real):
        """Return the cotangent of C through eq. (11), the second part of eq. (14)."""
        adj_C = dt * (adj_trial * wp.transpose(F))
        if has_fluid:
            if kind == FLUID:
                adj_C = mat()
                for a in range(dim):
                    adj_C[a, a] = dt * F[0, 0] * adj_trial[0, 0]
        return adj_C

    @wp.func(module=module)
    def deformation_vjp(kind: int, C: mat, adj_trial: mat, dt: real):
        """Return the cotangent of F before the step, eq. (13)."""
        adj_F = adj_trial + dt * (wp.transpose(C) * adj_trial)
        if has_fluid:
            if kind == FLUID:
                adj_F = mat()
                adj_F[0, 0] = adj_trial[0, 0] * (real(1.0) + dt * wp.trace(C))
        return adj_F

    return SimpleNamespace(
        is_plastic=is_plastic,
        deformed=deformed,
        trial_vjp=trial_vjp,
        affine_vjp=affine_vjp,
        deformation_vjp=deformation_vjp,
    )
