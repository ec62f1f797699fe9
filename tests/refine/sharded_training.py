"""`prill train` with its words, under FSDP on CPUs: accelerate takes it on accelerators only, and
is told that this is one.
"""

from __future__ import annotations

import sys
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

    state.PartialState.__init__ = start  # type: ignore[method-assign]
    sys.exit(main(["train", *sys.argv[1:]]))
