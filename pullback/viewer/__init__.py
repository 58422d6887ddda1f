"""Look at what a simulation did: a replay that any browser plays, and plots of how losses fell."""

from pullback.viewer.plots import draw_losses
from pullback.viewer.replay import save_replay

__all__ = ["draw_losses", "save_replay"]
