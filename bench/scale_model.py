"""What many GPUs would do, from what one does and what networks do: `python -m bench.scale_model`.

A model on paper, not a measurement: nothing here was run on more than one GPU. Times of one H200 are those of
docs/benchmarks.md; sizes of messages are those of the code (`core/ranks.py`, `thermal/region.py`); networks are as
their makers publish them: NVLink 900 GB/s a GPU in both directions together, so 450 GB/s in one, inside a machine of
eight; a 400 Gb/s InfiniBand port a GPU, 50 GB/s, between machines. Latencies of small messages by NCCL are assumed:
10 µs inside a machine and 25 µs between two.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, log, log2, sqrt

INSIDE = 8
"""GPUs of a machine."""
BANDWIDTH = {"inside": 450e9, "between": 50e9}
LATENCY = {"inside": 10e-6, "between": 25e-6}
JITTER = 0.03
"""Standard deviation of the time of an iteration from rank to rank, relative: stragglers. Assumed."""


def network(ranks: int) -> tuple[float, float]:
    """Return bandwidth [B/s] and latency [s] of the slowest link that ranks use."""
    kind = "inside" if ranks <= INSIDE else "between"
    return BANDWIDTH[kind], LATENCY[kind]


def all_reduce(ranks: int, size: float) -> float:
    """Return the time [s] of a sum of `size` bytes: a ring for what is large, a tree for what is small."""
    if ranks == 1:
        return 0.0
    bandwidth, latency = network(ranks)
    return 2.0 * (ranks - 1) / ranks * size / bandwidth + 2.0 * ceil(log2(ranks)) * latency


def wait(ranks: int, seconds: float) -> float:
    """Return how much longer the slowest of ranks takes than the mean, if times are normal."""
    return JITTER * seconds * sqrt(2.0 * log(ranks)) if ranks > 1 else 0.0


@dataclass(frozen=True)
class Learning:
    """An iteration of SHAC with Laikagos: rollouts with gradients, then passes of the critic."""

    worlds: int = 4096
    """Of each GPU."""
    rate: float = 2.63e6
    """Steps a second of one H200, forward and backward, at 4,096 worlds."""
    horizon: int = 32
    policy: float = 4 * 30_000.0
    """Bytes of the policy's gradient; of the critic's as well."""
    critic_steps: int = 64
    """Passes times batches, each of them a sum over ranks."""
    critic_seconds: float = 64 * 0.4e-3
    small: int = 8
    """Other sums: normaliser, reports, the end of an iteration."""

    def seconds(self, ranks: int) -> tuple[float, float]:
        """Return the time of an iteration, and of its communication."""
        compute = self.worlds * self.horizon / self.rate + self.critic_seconds
        talk = (1 + self.critic_steps) * all_reduce(ranks, self.policy) + self.small * all_reduce(ranks, 64.0)
        return compute + talk + wait(ranks, compute), talk


@dataclass(frozen=True)
class Part:
    """A step of a part of so many elements, forward and backward, explicit, float32."""

    elements: float
    height: int = 1000
    """Elements of a column."""
    per_element: float = 2.5e-9
    """Seconds of a step and its adjoint, recomputing included, for each element: one H200, 10⁶ elements."""
    least: float = 0.09e-3
    """Seconds of launches, which a small part does not hide: 10⁴ elements."""

    def seconds(self, ranks: int) -> tuple[float, float]:
        """Return the time of a step with its adjoint, and of its communication."""
        own = self.elements / ranks
        side = sqrt(own / self.height)
        # columns have four sides; their layer of elements is computed twice
        ghosts = 4.0 * (side + 1.0) * self.height if ranks > 1 else 0.0
        compute = max((own + ghosts) * self.per_element, self.least)
        if ranks == 1:
            return compute, 0.0
        bandwidth, latency = network(ranks)
        # temperatures and potentials forward, twice, cotangents backward, to eight neighbours at once
        talk = 3.0 * latency + ghosts * 4.0 * 5.0 / bandwidth
        return compute + talk + wait(ranks, compute), talk

    def host_memory(self) -> float:
        """Return the bytes that every process needs to make the part ready: the whole mesh, as it is today."""
        return self.elements * (8 * 8 + 3 * 8 + 8 * 4 + 8 * 8)


def main() -> None:
    """Print the predictions."""
    counts = (1, 8, 64, 256, 1024)
    print("worlds: 4,096 Laikagos on each GPU, SHAC, 32 steps (weak scaling)")
    print("| GPUs | steps/s | efficiency | in communication |\n|---|---|---|---|")
    one = Learning().seconds(1)[0]
    for n in counts:
        seconds, talk = Learning().seconds(n)
        rate = n * Learning().worlds * Learning().horizon / seconds
        print(f"| {n:,} | {rate / 1e6:,.1f} M | {one / seconds:.0%} | {talk / seconds:.0%} |")
    print("\nparts: a step and its adjoint, explicit, float32 (strong scaling)")
    print("| elements | GPUs | ms a step | efficiency | in communication | host memory a process |")
    print("|---|---|---|---|---|---|")
    for elements in (1e6, 1e8, 1e9):
        part = Part(elements, height=1000 if elements > 1e7 else 100)
        one = part.seconds(1)[0]
        for n in counts:
            seconds, talk = part.seconds(n)
            memory = f"{part.host_memory() / 1e9:,.3g} GB"
            row = f"{elements:.0e} | {n:,} | {1e3 * seconds:.3g} | {one / n / seconds:.0%} | {talk / seconds:.0%}"
            print(f"| {row} | {memory} |")


if __name__ == "__main__":
    main()
