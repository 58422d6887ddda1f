"""What several tasks share: options, comparisons of methods, curves, output files, and scenes."""
