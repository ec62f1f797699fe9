"""Jobs on a GPU, or a CPU: a captioner, a policy."""
