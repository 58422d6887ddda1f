"""Programs that run in environments of their own, beside ours; they need numpy and one library each."""
