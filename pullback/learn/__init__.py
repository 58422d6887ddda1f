"""Learning to act: environments, and policies trained by gradients through the simulation."""

from pullback.learn.ahac import AHAC, AHACConfig
from pullback.learn.config import Config
from pullback.learn.enhance import Extra, Jacobian, extra_samples, step_with_jacobian
from pullback.learn.ensemble import Ensemble, EnsembleConfig
from pullback.learn.env import Env, Step, set_link
from pullback.learn.envs import env_names, make
from pullback.learn.episodes import EpisodeConfig, EpisodeReport, EpisodeSearch, train_episodes
from pullback.learn.evaluate import evaluate, play, replay
from pullback.learn.export import export_onnx
from pullback.learn.first_order import FirstOrderErrors, first_order_errors
from pullback.learn.hybrid import Correction, Hybrid, Residual, load_hybrid, save_hybrid
from pullback.learn.hybrid_fit import FitConfig, Motions, NetworkModel, fit, predict, prediction_error
from pullback.learn.learner import Watch
from pullback.learn.mbpo import MBPO, MBPOConfig
from pullback.learn.networks import Policy, load_policy, save_policy
from pullback.learn.ppo import PPO, PPOConfig, train_ppo
from pullback.learn.residuals import ActuatorNetwork, JointTorque, LinkForce, LinkWrench, ShapeFriction, Together
from pullback.learn.sac import SAC, SACConfig, SACReport, train_seeds
from pullback.learn.sapo import SAPO, SAPOConfig
from pullback.learn.shac import SHAC
from pullback.learn.short_horizon import Report, ShortHorizon
from pullback.learn.train import find_algorithm, train

__all__ = [
    "AHAC",
    "MBPO",
    "PPO",
    "SAC",
    "SAPO",
    "SHAC",
    "AHACConfig",
    "ActuatorNetwork",
    "Config",
    "Correction",
    "Ensemble",
    "EnsembleConfig",
    "Env",
    "EpisodeConfig",
    "EpisodeReport",
    "EpisodeSearch",
    "Extra",
    "FirstOrderErrors",
    "FitConfig",
    "Hybrid",
    "Jacobian",
    "JointTorque",
    "LinkForce",
    "LinkWrench",
    "MBPOConfig",
    "Motions",
    "NetworkModel",
    "PPOConfig",
    "Policy",
    "Report",
    "Residual",
    "SACConfig",
    "SACReport",
    "SAPOConfig",
    "ShapeFriction",
    "ShortHorizon",
    "Step",
    "Together",
    "Watch",
    "env_names",
    "evaluate",
    "export_onnx",
    "extra_samples",
    "find_algorithm",
    "first_order_errors",
    "fit",
    "load_hybrid",
    "load_policy",
    "make",
    "play",
    "predict",
    "prediction_error",
    "replay",
    "save_hybrid",
    "save_policy",
    "set_link",
    "step_with_jacobian",
    "train",
    "train_episodes",
    "train_ppo",
    "train_seeds",
]
