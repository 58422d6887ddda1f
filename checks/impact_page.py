"""The words around the tables of docs/impacts.md."""

TEXT = """# Is the gradient through an impact the physics' gradient?

Made by `make impacts`; all of it in float64, on a CPU.

A simulated motion has a derivative, and `backward()` returns it: central differences of the simulation agree to 1e-6
and better ([conformance.md](conformance.md)). Whether that is the derivative of the physics is another question.
Through an impact it was not, at any time step. A step that computes an impact where its bodies are at its start is
right to O(dt); but the moment of touching moves with the state by as much however small the step is, and with it
normal, lever and inertia at the touch. The derivative of the simulation then stays wrong as dt goes to zero: signs,
and factors of 4 and more.

`compile(impacts="split")` splits a step where something touches faster than the restitution threshold: free motion to
the touch, the impact there, and the rest of the step ([derivations/impacts.md](derivations/impacts.md)). Values are
better, and gradients become those of the physics:

```python
import pullback as pb

world = pb.World(gravity=(0.0, 0.0, -9.81))
world.add_ground(friction=0.2, restitution=0.5)
world.add_sphere("ball", radius=0.1, mass=1.0, position=(0.0, 0.0, 0.4))
sim = world.compile(dt=1e-3, impacts="split")
```

Take it wherever a gradient has to pass an impact: throwing, hitting, hopping, landing, catching. Contact forces that
`sim.contacts`, `contact_tensors` and `contact_wrenches` report are the sum over all parts of the step, and with it the
change of momentum. Steps in which
nothing touches cost 1 to 2 percent more than without it; one with a touch costs two more solutions of the contact
problem forward, and two more with two more adjoints backward, three times a step without one (`python -m
bench.impacts`; [decision 0021](decisions/0021-impacts-stay-an-option.md)). It is for rigid contact (`pb.PGS`,
`pb.Exact`); `pb.Compliant` has no impacts to split at.

## Derivatives of motions with one impact

The largest error of a derivative, in percent of the largest true one, at dt = 4, 2, 1 and 0.25 ms. The worst of 64
starts counts, which put the touch to as many places within a step. True derivatives are those of closed forms, for
the arm of an integration to rounding.

{cases}

## Other measures

The Laikago falls on its toes at 1.5 m/s, under servos; derivatives are those of all its velocities 40 ms later by its
height. There are two measures. *Scatter of derivatives* is what they differ by from their mean over the 64 starts; it
has in it that the motion itself differs from start to start, which would be there without any error. *Scatter of
errors* has that taken out: errors against differences at dt = 25 µs, less their mean.

{others}

## What remains

- What is left is the error of the integrator, of first order in dt, which is there without impacts too: 0.5 % of the
  arm's derivatives at 1 ms, 4.7 % of the Laikago's, whose legs come to rest within 10 ms of the touch. It hardly
  depends on where in a step the touches fall. Without splits such derivatives scatter as much at 25 µs as at 1 ms.
- Friction that changes from sliding to sticking within an impact, and several things that touch at the very same
  moment, are decided once, by the contact problem of the impact.
- Touches slower than the restitution threshold (0.01 m/s by default) are contacts like any other: what a gradient
  misses there is in proportion to that speed.
- What turns by more than 6.4 rad within a step, close to something else, may pass it: `status.code` has the flag
  `TURNED_FAR`, and there is a warning.
- A plastic impact is solved twice, the second time told what it gave way by, so that derivatives after it have next to
  nothing of its softness: 2e-11 per second for 100 kg at 10 µs. Contacts that hold in the steps after it are as soft
  as ever.
- A step is split eight times at most. What touches after that ends within the step, without restitution.
- Where two things touch at the same moment, such as an edge that comes down flat, the derivative is one-sided, as at
  any kink ([gradient_care.md](gradient_care.md)).
"""
