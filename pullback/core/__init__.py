"""What everything stands on: the bridge between torch and Warp, launches, errors."""
