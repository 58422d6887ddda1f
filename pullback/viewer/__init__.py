"""Look at robots and simulations: live in a browser, as a replay or a video, and plots of how losses fell."""

from pullback.viewer.plots import draw_losses
from pullback.viewer.replay import save_replay

__all__ = ["draw_losses", "save_replay"]
