"""Runs the `prill` command as `python -m prill`."""

from __future__ import annotations

import sys

from prill.cli import main

sys.exit(main())
