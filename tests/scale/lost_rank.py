"""Two ranks that do not fit together, one of them slow and about to be killed: `-m tests.scale.lost_rank FOLDER`.

What is refused, said and lost is printed.
"""

import sys
import time
import warnings
from pathlib import Path
from unittest.mock import patch

import torch

from pullback.core import ranks as core_ranks
from pullback.core.errors import PullbackError
from pullback.core.ranks import RankError, ranks, start_ranks
from pullback.core.search_loop import Checkpoint, SearchLoop
from pullback.learn.envs.cart_pole import CartPole


class Slow:
    """A search that sums over ranks in each of its iterations; the second rank takes three times as long."""

    done, ended = 0, ""

    def iterate(self):
        """Take a while."""
        time.sleep(0.03 + 0.06 * ranks().rank)
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
    """A checkpoint that says how much is in it."""

    def save(self):
        """Save, and leave a mark."""
        super().save()
        (self.path.parent / f"saved {self.search.done}").touch()


class OtherPole(CartPole):
    """A cart-pole in another gravity on the second rank."""

    name = "cart-pole"

    def build(self):
        """Return the world."""
        world = super().build()
        world.gravity = (0.0, 0.0, -9.81 + 0.01 * ranks().rank)
        return world


def main(folder: Path) -> None:
    """Search until the other rank is gone."""
    warnings.showwarning = lambda message, *_: print(f"warned: {message}", flush=True)
    version = core_ranks.version

    def other_version(name: str) -> str:
        return version(name) + (f".{core_ranks.ranks().rank}" if name == "numpy" else "")

    try:
        with patch.object(core_ranks, "version", other_version):
            start_ranks()
    except PullbackError as error:
        print(f"refused: {error}", flush=True)
    try:
        OtherPole(2)
    except PullbackError as error:
        print(f"refused: {error}", flush=True)
    search = Slow()
    try:
        SearchLoop(10_000, progress=False).run(search, Marked(search, folder / "search.pt", {}))
    except RankError as error:
        print(f"lost: {error}", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
