"""The contact of an ellipsoid with a point, line, plane, circle or ellipsoid in plain float64 torch.

The normal is found by Newton's method without gradients; one more step with gradients then has the right derivative,
because the derivative of a Newton step by its start is zero at the solution.
"""

import torch

STEPS = 60


def support(R, h, m):
    """Return the point of an ellipsoid furthest along m, relative to its centre."""
    local = R.T @ m
    return R @ (h * h * local / torch.linalg.vector_norm(h * local))


def separation_vector(a, b, n):
    """Return the vector from b's support point to a's; b is (kind, centre, direction, radius or (R, h))."""
    R, p, h = a
    kind, c, d, what = b
    v = p + support(R, h, -n) - c
    if kind == "ellipsoid":
        v = v - support(*what, n)
    elif kind == "circle":
        across = n - (d @ n) * d
        v = v - what * across / torch.linalg.vector_norm(across)
    return v


def free_directions(b, n):
    """Return an orthonormal basis (3, k) of the directions in which n may turn."""
    kind, _, d, _ = b
    if kind == "line":
        t = torch.linalg.cross(d, n)
        return (t / torch.linalg.vector_norm(t))[:, None]
    axis = torch.eye(3, dtype=n.dtype)[int(n.detach().abs().argmin())]
    t = torch.linalg.cross(n, axis)
    t = t / torch.linalg.vector_norm(t)
    return torch.stack([t, torch.linalg.cross(n, t)], 1)


def newton(a, b, n):
    """Return n after a step on Tᵀv(n) = 0, kept across the direction of a line."""
    if b[0] == "line":
        n = n - (b[2] @ n) * b[2]
        n = n / torch.linalg.vector_norm(n)
    T = free_directions(b, n)
    with torch.no_grad():
        # the slope of Tᵀv along T; how it changes is of second order at the solution
        slope = torch.autograd.functional.jacobian(lambda x: separation_vector(a, b, x), n.detach())
        K = (n @ separation_vector(a, b, n)) * torch.eye(T.shape[1]).to(n) - T.T @ slope @ T
    step = T @ torch.linalg.solve(K, T.T @ separation_vector(a, b, n))
    n = n + step
    return n / torch.linalg.vector_norm(n)


def contact(a, b, start):
    """Return gap, point and normal of an ellipsoid (R, p, h) and a partner b, radii around them left out."""
    n = start.detach()
    if b[0] == "plane":
        n = b[2]
    else:
        with torch.no_grad():
            for _ in range(STEPS):
                n = newton(a, b, n)
        n = newton(a, b, n)
    gap = n @ separation_vector(a, b, n)
    R, p, h = a
    return gap, p + support(R, h, -n) - 0.5 * gap * n, n
