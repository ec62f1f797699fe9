"""`prill train` with its words, under FSDP on CPUs: accelerate takes it on accelerators only, and
is told that this is one. Words of another training may follow `+`: the imports are shared.
"""

from __future__ import annotations

import sys
from itertools import groupby
from typing import Any

from prill.cli import main
from prill.models.local.torchvision import mend_torchvision

if __name__ == "__main__":
    mend_torchvision()
    import accelerate.state as state
    from accelerate.utils import DistributedType

    started = state.PartialState.__init__

    def start(self: Any, *args: Any, **rest: Any) -> None:
        started(self, *args, **rest)
        if self.distributed_type == DistributedType.MULTI_CPU:
            self.distributed_type = DistributedType.MULTI_GPU

    state.PartialState.__init__ = start
    for separates, words in groupby(sys.argv[1:], "+".__eq__):
        if not separates and (code := main(["train", *words])):
            sys.exit(code)
