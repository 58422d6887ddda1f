"""Learning to act: environments, and policies trained by gradients through the simulation."""

from pullback.learn.env import Env, Step, set_link
from pullback.learn.envs import env_names, make
from pullback.learn.episodes import EpisodeConfig, EpisodeReport, EpisodeSearch, train_episodes
from pullback.learn.evaluate import evaluate, play
from pullback.learn.export import export_onnx
from pullback.learn.hybrid import Correction, Hybrid, Residual, load_hybrid, save_hybrid
from pullback.learn.hybrid_fit import FitConfig, Motions, NetworkModel, fit, predict, prediction_error
from pullback.learn.networks import Policy, load_policy, save_policy
from pullback.learn.ppo import PPO, PPOConfig, train_ppo
from pullback.learn.residuals import ActuatorNetwork, JointTorque, LinkWrench, ShapeFriction, Together
from pullback.learn.shac import SHAC, Config, Report, train

__all__ = [
    "PPO",
    "SHAC",
    "ActuatorNetwork",
    "Config",
    "Correction",
    "Env",
    "EpisodeConfig",
    "EpisodeReport",
    "EpisodeSearch",
    "FitConfig",
    "Hybrid",
    "JointTorque",
    "LinkWrench",
    "Motions",
    "NetworkModel",
    "PPOConfig",
    "Policy",
    "Report",
    "Residual",
    "ShapeFriction",
    "Step",
    "Together",
    "env_names",
    "evaluate",
    "export_onnx",
    "fit",
    "load_hybrid",
    "load_policy",
    "make",
    "play",
    "predict",
    "prediction_error",
    "save_hybrid",
    "save_policy",
    "set_link",
    "train",
    "train_episodes",
    "train_ppo",
]
