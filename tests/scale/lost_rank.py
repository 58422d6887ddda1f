"""A search on two ranks, one of which is about to be killed: `python -m tests.scale.lost_rank FOLDER`."""

import sys
import time
from pathlib import Path

import torch

from pullback.core.errors import PullbackError
from pullback.core.ranks import RankError, ranks, start_ranks
from pullback.core.search_loop import Checkpoint, SearchLoop


class Slow:
    """A search that sums over ranks in each of its iterations."""

    done, ended = 0, ""

    def iterate(self):
        """Take a while."""
        time.sleep(0.05)
        ranks().sum(torch.ones(3))
        self.done += 1

    def summary(self):
        """Return nothing."""
        return ""

    def state(self):
        """Return the number of iterations."""
        return {"done": self.done}

    def load_state(self, state):
        """Go on from there."""
        self.done = state["done"]


class Marked(Checkpoint):
    """A checkpoint that leaves a mark when it is written."""

    def save(self):
        """Save, and say so."""
        super().save()
        (self.path.parent / "searching").touch()


def main(folder: Path) -> None:
    """Search until the other rank is gone."""
    together = start_ranks()
    try:
        together.refuse_differences({"the robot": f"arm {together.rank}"})
    except PullbackError as error:
        print(f"refused: {error}", flush=True)
    search = Slow()
    try:
        SearchLoop(10_000, progress=False).run(search, Marked(search, folder / "search.pt", {}))
    except RankError as error:
        print(f"lost: {error}", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
