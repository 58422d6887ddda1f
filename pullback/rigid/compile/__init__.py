"""From a World to the arrays that kernels read."""
