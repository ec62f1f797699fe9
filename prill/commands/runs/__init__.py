"""What commands share that run for long: the plan that `--dry-run` prints."""
