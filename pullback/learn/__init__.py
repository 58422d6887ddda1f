"""Learning to act: environments, and policies trained by gradients through the simulation."""

from pullback.learn.env import Env, Step, set_link
from pullback.learn.envs import env_names, make
from pullback.learn.evaluate import evaluate, play
from pullback.learn.export import export_onnx
from pullback.learn.networks import Policy, load_policy, save_policy
from pullback.learn.shac import SHAC, Config, Report, train

__all__ = [
    "SHAC",
    "Config",
    "Env",
    "Policy",
    "Report",
    "Step",
    "env_names",
    "evaluate",
    "export_onnx",
    "load_policy",
    "make",
    "play",
    "save_policy",
    "set_link",
    "train",
]
