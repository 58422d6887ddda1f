"""Learn mass, centre of mass and inertia of the iiwa's last link from the torques of a motion.

The guess starts wrong in all ten numbers. Each is kept physical by its parametrization, whatever the optimiser does: a
mass above zero, an inertia that a body can have.
"""

import torch

import pullback as pb

LINK = "iiwa_link_7"


def main(epochs: int = 35) -> dict[str, float]:
    """Learn the link, and return the relative errors of what was learned."""
    generator = torch.Generator().manual_seed(0)
    truth = pb.load("iiwa7", dtype=torch.float64)
    motion = pb.sine_motion(truth, samples=600, dt=0.02, generator=generator)
    train, test = motion.split(0.5, generator=generator)

    robot = pb.load("iiwa7", dtype=torch.float64)
    robot.make_link_param_learnable(LINK, "mass", pb.PositiveScalar(1.0))
    robot.make_link_param_learnable(LINK, "com", pb.UnconstrainedTensor([0.05, 0.05, 0.10]))
    robot.make_link_param_learnable(LINK, "inertia_mat", pb.PhysicalInertia(0.01 * torch.eye(3)))

    options = {"history_size": 20, "tolerance_grad": 0.0, "tolerance_change": 0.0, "line_search_fn": "strong_wolfe"}
    optimizer = torch.optim.LBFGS(robot.parameters(), max_iter=5, max_eval=40, **options)
    loss_of = pb.NMSELoss(train.tau.var(0))

    def loss_on(data: pb.MotionData) -> torch.Tensor:
        return loss_of(robot.compute_inverse_dynamics(data.q, data.qd, data.qdd), data.tau)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = loss_on(train)
        loss.backward()
        return loss

    for epoch in range(epochs):
        loss = optimizer.step(closure).item()
        if epoch % 10 == 0:
            print(f"epoch {epoch:2d}: loss {loss:.2e}")

    robot.print_learnable_params()
    with torch.no_grad():
        errors = {"loss": loss_on(test).item()}
        for parameter in ("mass", "com", "inertia_mat"):
            true = truth.get_link_param(LINK, parameter)
            errors[parameter] = ((robot.get_link_param(LINK, parameter) - true).norm() / true.norm()).item()
    print("relative errors, and the loss on states not seen before:", {k: f"{v:.1e}" for k, v in errors.items()})
    return errors


if __name__ == "__main__":
    main()
