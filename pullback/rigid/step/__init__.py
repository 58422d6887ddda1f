"""One step of a world and its adjoint."""
