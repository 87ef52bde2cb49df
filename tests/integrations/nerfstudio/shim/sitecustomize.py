"""Let torchvision's CUDA build be imported beside a CPU-only torch. For this test environment only.

The compiled operators of that build need CUDA's libraries; without them, `import torchvision` stops at an
operator that nobody declared. Nothing here calls those operators, so declaring them is enough. Python imports
this module at its start if its folder is on PYTHONPATH; torch is imported only when torchvision is about to
be.
"""

import sys
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

LIBRARIES = []  # Declared operators live as long as these.


class DeclareOperators:
    """A finder that finds nothing: it prepares the import of torchvision and steps aside."""

    @classmethod
    def find_spec(cls, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if name != "torchvision":
            return None
        sys.meta_path.remove(cls)
        spec = PathFinder.find_spec(name)
        if spec is not None and spec.origin is not None:
            declare_operators(Path(spec.origin).parent)
        return None


def declare_operators(folder: Path) -> None:
    import torch

    if torch.version.cuda is not None or hasattr(torch.ops.torchvision, "nms"):
        return
    try:
        for library in folder.glob("_C*.so"):
            torch.ops.load_library(str(library))
    except OSError:
        library = torch.library.Library("torchvision", "FRAGMENT")
        library.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        library.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        LIBRARIES.append(library)


sys.meta_path.insert(0, DeclareOperators)
