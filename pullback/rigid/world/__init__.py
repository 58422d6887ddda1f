"""What stands in a world, as a user describes it."""
