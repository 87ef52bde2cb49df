"""An environment in which nerfstudio runs on a CPU and without a network: for tests only."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
SHIM = HERE / "shim"
DATA = HERE.parents[3] / "shared" / "data"

# This process is past its start and takes the shim by hand; those that it starts find it by themselves.
sys.path.insert(0, str(SHIM))
sys.modules.pop("sitecustomize", None)
import sitecustomize  # noqa: E402, F401

os.environ["PYTHONPATH"] = os.pathsep.join([str(SHIM), *os.environ.get("PYTHONPATH", "").split(os.pathsep)])
os.environ["OMP_NUM_THREADS"] = "1"


@pytest.fixture(scope="session", autouse=True)
def torch_home(tmp_path_factory):
    """The weights of LPIPS where torch would have put them after a download, if they are at hand."""
    weights = DATA / "lpips" / "alexnet_features.safetensors"
    if "TORCH_HOME" in os.environ or not weights.is_file():
        return
    import torch
    from safetensors.torch import load_file
    from torchvision.models import alexnet

    home = tmp_path_factory.mktemp("torch")
    folder = home / "hub" / "checkpoints"
    folder.mkdir(parents=True)
    torch.save(alexnet(weights=None).state_dict() | load_file(weights), folder / "alexnet-owt-7be5be79.pth")
    os.environ["TORCH_HOME"] = str(home)
