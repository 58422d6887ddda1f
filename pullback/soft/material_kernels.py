"""Stress of a particle, how it flows, and their vjp: a branch for each material of the scene.

Sections 4 and 5 of docs/derivations/mpm.md. `stress`, and of materials that flow `is_plastic` and `flow`, choose.
"""

from types import SimpleNamespace

import warp as wp

from pullback.core.modules import made_once
from pullback.soft.tensor_kernels import tensors
from pullback.soft.variant_kernels import FIRST, SECOND, VISCOSITY, Variant

# kinds of material
NEO_HOOKEAN = wp.constant(0)
FIXED_COROTATED = wp.constant(1)
FLUID = wp.constant(2)
VON_MISES = wp.constant(3)
DRUCKER_PRAGER = wp.constant(4)


@made_once
def stresses(variant: Variant) -> SimpleNamespace:
    """Return the functions of stress and flow for the kinds of a variant."""
    types, module = variant.types, variant.module("stress")
    real, vec, mat = variant.real, types.vec, types.mat
    dim = variant.dim
    tensor = tensors(variant.plain)
    has_neo_hookean = NEO_HOOKEAN in variant.kinds
    has_fixed_corotated = FIXED_COROTATED in variant.kinds
    has_fluid = FLUID in variant.kinds
    has_plastic = VON_MISES in variant.kinds or DRUCKER_PRAGER in variant.kinds
    add_diagonal, cofactors, rotation = tensor.add_diagonal, tensor.cofactors, tensor.rotation
    turned, eigen, log_difference = tensor.turned, tensor.eigen, tensor.log_difference
    part = 1.0 / dim

    @wp.func(module=module)
    def is_plastic(kind: int):
        return kind == VON_MISES or kind == DRUCKER_PRAGER

    @wp.func(module=module)
    def sum_of(x: vec):
        total = real(0.0)
        for a in range(dim):
            total += x[a]
        return total

    @wp.func(module=module)
    def fixed_corotated_stress(F: mat, mu: real, lam: real):
        J = wp.determinant(F)
        Ft = wp.transpose(F)
        # eq. (26)
        return add_diagonal(real(2.0) * mu * (F - rotation(F, J)) * Ft, lam * J * (J - real(1.0)))

    @wp.func(module=module)
    def fixed_corotated_vjp(F: mat, S: mat, mu: real, lam: real, adj_numbers: types.numbers):
        J = wp.determinant(F)
        R = rotation(F, J)
        W = R * wp.transpose(F)
        trace = wp.trace(S)
        two = real(2.0)
        adj_numbers[FIRST] = adj_numbers[FIRST] + two * wp.ddot(S, F * wp.transpose(F) - W)
        adj_numbers[SECOND] = adj_numbers[SECOND] + trace * J * (J - real(1.0))
        # eq. (27)
        adj_W = -two * mu * S
        adj_F = two * two * mu * (S * F) + (adj_W + turned(adj_W * W, W)) * R
        return adj_F + lam * trace * (two * J - real(1.0)) * cofactors(F), adj_numbers

    @wp.func(module=module)
    def fluid_stress(J: real, K: real, k: real):
        # eq. (28)
        return K / k * (J - wp.pow(J, real(1.0) - k))

    @wp.func(module=module)
    def strains(F: mat):
        """Return logarithmic strains, squared stretches and directions."""
        b, N = eigen(F * wp.transpose(F))
        epsilon = vec()
        for a in range(dim):
            epsilon[a] = real(0.5) * wp.log(b[a])
        return epsilon, b, N

    @wp.func(module=module)
    def hencky_stress(F: mat, mu: real, lam: real):
        epsilon, _b, N = strains(F)
        total = real(0.0)
        for a in range(dim):
            total += epsilon[a]
        scaled = mat()
        for a in range(dim):
            for c in range(dim):
                scaled[c, a] = N[c, a] * (real(2.0) * mu * epsilon[a] + lam * total)
        # eq. (30)
        return scaled * wp.transpose(N)

    @wp.func(module=module)
    def hencky_vjp(F: mat, S: mat, mu: real, lam: real, adj_numbers: types.numbers):
        epsilon, b, N = strains(F)
        M = wp.transpose(N) * S * N
        trace = wp.trace(S)
        for a in range(dim):
            adj_numbers[FIRST] = adj_numbers[FIRST] + real(2.0) * epsilon[a] * M[a, a]
            adj_numbers[SECOND] = adj_numbers[SECOND] + epsilon[a] * trace
        # eq. (32), (34)
        for a in range(dim):
            for c in range(dim):
                if a == c:
                    M[a, a] = (mu * M[a, a] + real(0.5) * lam * trace) / b[a]
                else:
                    M[a, c] = real(2.0) * mu * log_difference(b[a], b[c]) * M[a, c]
        return real(2.0) * (N * M * wp.transpose(N)) * F, adj_numbers

    @wp.func(module=module)
    def stress(kind: int, F: mat, C: mat, numbers: types.numbers):
        """Return Kirchhoff's stress without the muscles'."""
        one = numbers[FIRST]
        two = numbers[SECOND]
        tau = mat()
        if has_neo_hookean:
            if kind == NEO_HOOKEAN:
                # eq. (24)
                tau = add_diagonal(one * (F * wp.transpose(F)), two * wp.log(wp.determinant(F)) - one)
        if has_fixed_corotated:
            if kind == FIXED_COROTATED:
                tau = fixed_corotated_stress(F, one, two)
        if has_fluid:
            if kind == FLUID:
                tau = add_diagonal(mat(), fluid_stress(F[0, 0], one, two))
        if has_plastic:
            if is_plastic(kind):
                tau = hencky_stress(F, one, two)
        return tau + numbers[VISCOSITY] * (C + wp.transpose(C))

    @wp.func(module=module)
    def stress_vjp(kind: int, F: mat, C: mat, numbers: types.numbers, S: mat, adj_numbers: types.numbers):
        """Return the cotangents of F, of C, and of the numbers, to which it adds; S: the stress's, symmetric."""
        one = numbers[FIRST]
        two = numbers[SECOND]
        adj_F = mat()
        if has_neo_hookean:
            if kind == NEO_HOOKEAN:
                J = wp.determinant(F)
                trace = wp.trace(S)
                # eq. (25)
                adj_F = real(2.0) * one * (S * F) + (two * trace / J) * cofactors(F)
                adj_numbers[FIRST] = adj_numbers[FIRST] + wp.ddot(S, F * wp.transpose(F)) - trace
                adj_numbers[SECOND] = adj_numbers[SECOND] + trace * wp.log(J)
        if has_fixed_corotated:
            if kind == FIXED_COROTATED:
                adj_F, adj_numbers = fixed_corotated_vjp(F, S, one, two, adj_numbers)
        if has_fluid:
            if kind == FLUID:
                J = F[0, 0]
                trace = wp.trace(S)
                power = wp.pow(J, -two)
                # eq. (29)
                adj_F[0, 0] = trace * one / two * (real(1.0) + (two - real(1.0)) * power)
                adj_numbers[FIRST] = adj_numbers[FIRST] + trace * J * (real(1.0) - power) / two
                by_two = one * J / two * (power * wp.log(J) - (real(1.0) - power) / two)
                adj_numbers[SECOND] = adj_numbers[SECOND] + trace * by_two
        if has_plastic:
            if is_plastic(kind):
                adj_F, adj_numbers = hencky_vjp(F, S, one, two, adj_numbers)
        # eq. (23)
        adj_numbers[VISCOSITY] = adj_numbers[VISCOSITY] + real(2.0) * wp.ddot(S, C)
        return adj_F, real(2.0) * numbers[VISCOSITY] * S, adj_numbers

    @wp.func(module=module)
    def flow(kind: int, epsilon: vec, history: real, kappa: real):
        """Return (c, s, new history, whether torn apart), the table of section 5."""
        trace = sum_of(epsilon)
        e = epsilon
        for a in range(dim):
            e[a] = epsilon[a] - real(part) * trace
        norm = wp.length(e)
        c = real(0.0)
        s = real(0.0)
        after = history
        torn = False
        if kind == VON_MISES:
            if norm > kappa:
                s = real(1.0) - kappa / norm
                after = history + norm - kappa
        else:
            z = trace + history
            if z >= real(0.0):
                torn = True
                s = real(1.0)
                c = -real(part) * trace
                after = z
            else:
                c = real(part) * history
                after = real(0.0)
                if norm > -kappa * z:
                    s = real(1.0) + kappa * z / norm
        return c, s, after, torn

    @wp.func(module=module)
    def flow_vjp(kind: int, e: vec, trace: real, history: real, kappa: real, s: real, q: vec, adj_after: real):
        """Return the cotangents of e, the trace, history and kappa where it is not torn apart, eq. (36)."""
        norm = wp.length(e)
        adj_s = -wp.dot(q, e)
        adj_e = -s * q
        adj_trace = real(0.0)
        adj_history = adj_after
        adj_kappa = real(0.0)
        if kind == VON_MISES:
            if s > real(0.0):
                adj_e = adj_e + (kappa * adj_s / (norm * norm) + adj_after) / norm * e
                adj_kappa = -adj_s / norm - adj_after
        else:
            z = trace + history
            if s > real(0.0):
                adj_e = adj_e - kappa * z * adj_s / (norm * norm * norm) * e
                adj_trace = kappa * adj_s / norm
                adj_kappa = z * adj_s / norm
            adj_history = real(part) * sum_of(q) + adj_trace
        return adj_e, adj_trace, adj_history, adj_kappa

    return SimpleNamespace(
        stress=stress,
        stress_vjp=stress_vjp,
        strains=strains,
        has_plastic=has_plastic,
        is_plastic=is_plastic,
        sum_of=sum_of,
        flow=flow,
        flow_vjp=flow_vjp,
    )
