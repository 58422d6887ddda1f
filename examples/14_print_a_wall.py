"""Print a small wall of Inconel 718, and find the laser power that keeps one point hot for as long as it should be.

The gradient goes back through every step of the print: through conduction, melting, cooling and the growth of the wall.
"""

import torch

import pullback as pb

WANTED = 3.0
"""How long [s] the point is to be between LOW and HIGH [K]."""
LOW, HIGH = 823.0, 993.0


def wall() -> pb.thermal.Process:
    """Return a wall of six layers on a plate, ready to be printed."""
    th = pb.thermal
    mesh = th.box_on_plate(size=(0.008, 0.002, 0.0045), cell=(1e-3, 1e-3, 0.75e-3), plate=(0.012, 0.006, 0.003))
    path = th.layers(mesh, speed=7e-3, hatch=2e-3, dwell=0.6)
    return th.Process(
        mesh,
        path,
        material=th.material("in718"),
        births=th.births(mesh, path),
        dt=0.02,
        duration=path.duration + 4.0,
        source=th.Gaussian(radius=1.12e-3, absorptivity=0.4),
        convection=50.0,
        emissivity=0.2,
        fixed={"bottom": 300.0},
    )


def main(iterations: int = 6) -> tuple[float, float]:
    """Return how long the point is hot at first and in the end [s]."""
    process = wall()
    probe = process.probes([(0.0, 0.0, 0.4e-3)])
    power = pb.thermal.KnotPower(process.steps, bounds=(100.0, 500.0), knots=6, start=250.0)

    def time_hot() -> torch.Tensor:
        history = process.run(power(), probes=probe)
        return pb.thermal.heat_treatment_time(history.probes, history.times, low=LOW, high=HIGH).sum()

    first = time_hot().item()
    result = pb.thermal.design(lambda: (time_hot() - WANTED).square(), power, optimizer="lbfgs", iterations=iterations)
    last = time_hot().item()
    print(f"hot for {first:.3f} s at 250 W, for {last:.3f} s after {result.seconds:.0f} s of design")
    print("power at the knots [W]:", [round(x) for x in power.bounded(power.knots).tolist()])
    return first, last


if __name__ == "__main__":
    main()
