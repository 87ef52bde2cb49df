"""Try an installed `inlier`: steps, the report, the commands. For `make package`."""

import subprocess
import sys
import tempfile
from pathlib import Path

import torch

import inlier
import inlier.report

home = Path(inlier.__file__).parent
assert home.parent.name == "site-packages", f"not the installed package: {home}"
assert (home / "py.typed").is_file()

torch.manual_seed(0)
losses = torch.rand(64, requires_grad=True)
robust = inlier.Robust(warmup=0, samples=64)
for _ in range(3):
    robust(losses, index=torch.arange(64)).backward()
assert losses.grad is not None
assert losses.grad.isfinite().all()

with tempfile.TemporaryDirectory() as folder:
    page = Path(folder) / "report.html"
    inlier.report.write(page, robust)
    assert "<style>" in page.read_text()

for arguments in (["--version"], ["kernels"], ["fit", "--help"], ["reproduce", "--help"]):
    command = [str(Path(sys.executable).parent / "inlier"), *arguments]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
print(f"inlier {inlier.__version__} works as installed.")
