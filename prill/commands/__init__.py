"""The verbs of the `prill` command; each module has `configure(parser)` and `run(args) -> exit code`."""
