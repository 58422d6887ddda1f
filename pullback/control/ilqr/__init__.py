"""Iterative LQR and model-predictive control."""
