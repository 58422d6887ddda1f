"""Contact solvers: each answers a solve and its vjp."""
