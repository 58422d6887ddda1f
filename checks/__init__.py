"""What is about right results, not speed: conformance, fuzz, pairs, solvers."""
