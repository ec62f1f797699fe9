"""`python -m prill` is the `prill` command."""

import sys

from prill.cli import main

sys.exit(main())
