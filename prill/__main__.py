"""`python -m prill` is the `prill` command."""

from __future__ import annotations

import sys

from prill.cli import main

sys.exit(main())
