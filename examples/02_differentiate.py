"""Differentiate the dynamics: by the state, by the torques, by a mass, by gravity, for a whole batch at once."""

import torch

import pullback as pb


def main() -> float:
    """Print gradients, and return how far one is from its difference quotient."""
    generator = torch.Generator().manual_seed(0)
    robot = pb.load("iiwa7", dtype=torch.float64)
    robot.make_link_param_learnable("iiwa_link_7", "mass", pb.PositiveScalar())

    q = robot.random_q(32, generator=generator).requires_grad_()
    qd = torch.randn(32, robot.nv, dtype=torch.float64, generator=generator).requires_grad_()
    tau = torch.zeros(32, robot.nv, dtype=torch.float64, requires_grad=True)
    gravity = torch.tensor([0.0, 0.0, -9.81], dtype=torch.float64, requires_grad=True)

    # how the kinetic power of a falling arm depends on everything
    qdd = robot.compute_forward_dynamics(q, qd, tau, gravity=gravity)
    loss = (qd * qdd).sum(-1).mean()
    loss.backward()
    (mass,) = robot.parameters()
    for name, x in {"q": q, "qd": qd, "tau": tau, "gravity": gravity, "logarithm of the mass": mass}.items():
        assert x.grad is not None
        print(f"d loss / d {name:22s} shape {tuple(x.grad.shape)!s:9s} norm {x.grad.norm().item():.4f}")

    # the gradient is the adjoint of the same algorithm, not a difference quotient; compare it with one
    step = 1e-6
    with torch.no_grad():
        slopes = []
        for g in (gravity + torch.tensor([0.0, 0.0, step]), gravity - torch.tensor([0.0, 0.0, step])):
            slopes.append((qd * robot.compute_forward_dynamics(q, qd, tau, gravity=g)).sum(-1).mean())
        difference = (slopes[0] - slopes[1]) / (2 * step)
    assert gravity.grad is not None
    error = (gravity.grad[2] - difference).abs().item()
    print(f"d loss / d gravity_z: adjoint {gravity.grad[2]:.9f}, difference quotient {difference:.9f}")

    # the same function under torch.func: one Jacobian for each state of the batch
    def acceleration(q: torch.Tensor, qd: torch.Tensor) -> torch.Tensor:
        return robot.compute_forward_dynamics(q, qd, torch.zeros(robot.nv, dtype=torch.float64))

    jacobians = torch.func.vmap(torch.func.jacrev(acceleration))(q.detach(), qd.detach())
    print("d qdd / d q for 32 states:", tuple(jacobians.shape))
    return error


if __name__ == "__main__":
    main()
