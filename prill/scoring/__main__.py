"""Runs a worker process as `python -m prill.scoring`; see `prill.scoring.processes`."""

from prill.scoring.processes import main

main()
