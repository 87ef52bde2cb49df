"""A report on handwritten digits of which 15 % carry a wrong label: report.html, in a named or new folder.

With a second argument, a screenshot of the report as well (needs Playwright and Chromium):

    python examples/report.py . docs/img/report.png
"""

import shutil
import sys
import tempfile
from pathlib import Path

import torch
from sklearn.datasets import load_digits

import inlier
import inlier.report

torch.manual_seed(0)
digits = load_digits()
x, truth = torch.tensor(digits.data, dtype=torch.float32) / 16, torch.tensor(digits.target)
y, wrong = truth.clone(), torch.rand(len(x)) < 0.15
y[wrong] = (truth[wrong] + torch.randint(1, 10, (int(wrong.sum()),))) % 10

model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
criterion = inlier.RobustCrossEntropy()
optimizer = torch.optim.Adam(model.parameters(), 1e-3)
for _ in range(60):
    for index in torch.randperm(len(x)).split(64):
        optimizer.zero_grad()
        criterion(model(x[index]), y[index], index).backward()
        optimizer.step()

path = inlier.report.write(
    Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp(), "report.html"),
    criterion,
    title="Handwritten digits",
    images=x.reshape(-1, 8, 8),
    labels=y,
)
found = criterion.inlier_probability() < 0.5
print(
    f"{path}: {int(found.sum())} suspects, among them {int((found & wrong).sum())} of the "
    f"{int(wrong.sum())} wrong labels"
)

if len(sys.argv) > 2:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as p:
        browser = p.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1180, "height": 1900})
        page.goto(path.resolve().as_uri())
        page.locator("tr.suspect").first.click()
        page.evaluate("scrollTo(0, 0)")
        page.screenshot(path=sys.argv[2])
