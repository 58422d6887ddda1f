"""Time: which states of a rollout are kept, and in what order the others are recomputed on the way back."""
