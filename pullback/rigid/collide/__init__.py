"""Which shapes touch, and where, with adjoints."""
