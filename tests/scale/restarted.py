"""A training on two ranks, one of which may die once: `torchrun ... -m tests.scale.restarted FOLDER [ITERATION]`.

In its first life rank 1 kills itself before that iteration, as `kill -9` does.
"""

import os
import signal
import sys
from pathlib import Path

import torch

from pullback.core.ranks import RankError, leave_ranks, ranks, start_ranks, was_restarted
from pullback.core.search_loop import Checkpoint, SearchLoop
from pullback.learn import SHAC, make
from tests.scale.rank_cases import F64, SMALL, weights


class Mortal(SHAC):
    """SHAC that ends without a word before an iteration."""

    last = -1

    def iterate(self):
        """Run one iteration, or die."""
        if self.done == self.last and ranks().rank == 1 and not was_restarted():
            os.kill(os.getpid(), signal.SIGKILL)
        super().iterate()


def main(folder: Path, last: int = -1) -> int:
    """Train, and write what was found."""
    torch.set_num_threads(1)
    together = start_ranks()
    env = make("cart-pole", 8, seed=3, dtype=F64)
    run = Mortal(env, SHAC.Config.of(env, **{**SMALL, "iterations": 5}))
    run.last = last
    checkpoint = Checkpoint(run, folder / "run.pt", run.settings)
    checkpoint.begin(resume=False)
    print(f"rank {together.rank} begins after {run.done} iterations", flush=True)
    try:
        SearchLoop(5, progress=False).run(run, checkpoint)
    except RankError as error:
        if error.speaks:
            print(f"lost: {error}", flush=True)
        return 2
    torch.save(weights(run.policy, run.critics.networks), folder / f"found {together.rank}.pt")
    leave_ranks()
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), *map(int, sys.argv[2:])))
