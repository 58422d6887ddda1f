"""Jacobians of single steps."""
