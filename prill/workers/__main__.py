"""`python -m prill.workers SOCKET`: see `prill.workers.process`."""

import sys

from prill.workers.process import main

main(sys.argv[1:])
