"""Look at robots and simulations: live in a browser, as a replay or a video, and plots of how losses fell."""

from pullback.viewer.live import Viewer, view
from pullback.viewer.plots import draw_losses
from pullback.viewer.replay import save_replay
from pullback.viewer.video import save_video

__all__ = ["Viewer", "draw_losses", "save_replay", "save_video", "view"]
