"""Training of captioners and policies, on a GPU or the CPU."""
