"""Code as users write it: files that tests put into model directories, and what stands in for the engine."""
