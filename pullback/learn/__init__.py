"""Learning to act: environments, and policies trained by gradients through the simulation."""

from pullback.learn.ahac import AHAC, AHACConfig
from pullback.learn.config import Config
from pullback.learn.env import Env, Step, set_link
from pullback.learn.envs import env_names, make
from pullback.learn.evaluate import evaluate, play, replay
from pullback.learn.export import export_onnx
from pullback.learn.networks import Policy, load_policy, save_policy
from pullback.learn.sapo import SAPO, SAPOConfig
from pullback.learn.shac import SHAC
from pullback.learn.short_horizon import Report, ShortHorizon
from pullback.learn.train import find_algorithm, train

__all__ = [
    "AHAC",
    "SAPO",
    "SHAC",
    "AHACConfig",
    "Config",
    "Env",
    "Policy",
    "Report",
    "SAPOConfig",
    "ShortHorizon",
    "Step",
    "env_names",
    "evaluate",
    "export_onnx",
    "find_algorithm",
    "load_policy",
    "make",
    "play",
    "replay",
    "save_policy",
    "set_link",
    "train",
]
