"""Control by gradients: what to do so that a simulated world does what is wanted."""
