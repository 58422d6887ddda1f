"""Cost terms with their derivatives."""
