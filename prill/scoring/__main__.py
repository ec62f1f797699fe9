"""`python -m prill.scoring SOCKET`: see `prill.scoring.process`."""

import sys

from prill.scoring.process import main

main(sys.argv[1:])
