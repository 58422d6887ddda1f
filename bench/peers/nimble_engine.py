"""Nimble on the engine benchmark's scene: `nimble.timestep` in PyTorch, servos as torques before each step."""

# packages of another environment, or without types
# pyright: reportMissingImports=false, reportAttributeAccessIssue=false
from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import nimblephysics as nimble
import numpy as np
import torch

from bench.peers.engine import Engine, Scene, run

FRICTION = 0.8
STIFFNESS, DAMPING, LIMIT = 150.0, 3.0, 100.0
SETTLING = 1000


def world_of(scene: Scene) -> tuple[Any, Any]:
    """Return a world with the robot on the ground, and the robot."""
    world = nimble.simulation.World()
    world.setGravity(np.array([0.0, 0.0, -9.81]))
    world.setTimeStep(1e-3)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "robot.urdf"
        path.write_text(scene.urdf)
        robot = world.loadSkeleton(str(path))
    ground = nimble.dynamics.Skeleton()
    joint, body = ground.createWeldJointAndBodyNodePair()
    place = nimble.math.Isometry3()
    place.set_translation(np.array([0.0, 0.0, -0.5]))
    joint.setTransformFromParentBodyNode(place)
    shape = body.createShapeNode(nimble.dynamics.BoxShape(np.array([20.0, 20.0, 1.0])))
    shape.createCollisionAspect()
    world.addSkeleton(ground)
    for skeleton in (robot, ground):
        for k in range(skeleton.getNumBodyNodes()):
            skeleton.getBodyNode(k).setFrictionCoeff(FRICTION)
            skeleton.getBodyNode(k).setRestitutionCoeff(0.0)
    return world, robot


def prepare(scene: Scene) -> Engine:
    """Return the loss and its gradient, from where the robot has settled."""
    torch.set_num_threads(1)
    world, robot = world_of(scene)
    n, dofs = scene.controls.shape[1], world.getNumDofs()
    assert dofs == 6 + n == robot.getNumDofs(), (dofs, robot.getNumDofs())
    start = np.zeros(2 * dofs)
    start[3:6], start[6:dofs] = scene.qpos[:3], scene.qpos[7:]

    def rollout(state: torch.Tensor, controls: torch.Tensor) -> torch.Tensor:
        for u in controls:
            force = STIFFNESS * (u - state[6:dofs]) - DAMPING * state[dofs + 6 :]
            action = torch.cat([torch.zeros(6, dtype=torch.float64), force.clamp(-LIMIT, LIMIT)])
            state = nimble.timestep(world, state, action)
        return state

    def loss_of(controls: torch.Tensor) -> torch.Tensor:
        # rotations are vectors here: the unit quaternion's square is added, so that losses compare
        return rollout(begin, controls).square().sum() + 1.0

    with torch.no_grad():
        hold = torch.tensor(scene.controls).mean(0).repeat(SETTLING, 1)
        begin = rollout(torch.tensor(start), hold)

    def loss(controls: np.ndarray) -> float:
        with torch.no_grad():
            return float(loss_of(torch.tensor(controls)))

    def gradient(controls: np.ndarray) -> np.ndarray:
        leaf = torch.tensor(controls).requires_grad_()
        return torch.autograd.grad(loss_of(leaf), leaf)[0].numpy()

    return Engine(loss, gradient)


if __name__ == "__main__":
    run(prepare, ("nimblephysics", "torch"))
