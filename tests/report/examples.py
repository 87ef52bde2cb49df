"""Findings to report, and a parser of the page, for the tests of the report."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from html.parser import HTMLParser

import torch

from inlier import Robust, RobustCrossEntropy, fit_inliers, kernels
from inlier.report import Deviation, Findings, Suspect

HOSTILE = "</script><script>window.broken = 1</script><!--<img src=x onerror='window.broken = 1'>&\u2028\"'"
KERNEL = kernels.get("geman-mcclure")


@cache
def _findings(n: int, listed: int) -> Findings:
    generator = torch.Generator().manual_seed(0)
    bad = torch.rand(n, generator=generator) < 0.15
    losses = (torch.randn(n, generator=generator) * torch.where(bad, 10.0, 1.0)) ** 2
    mixture = fit_inliers(losses)
    probability = mixture.posterior(losses)
    suspects = [
        Suspect(
            row,
            float(probability[row]),
            float(losses[row]),
            given=f"{row / 10:.1f}",
            suggested=("ten", "Nine", "eight")[row % 3],
            values={"age": str(row % 90), "city": "Paris" if row % 2 else "Ürümqi"},
            deviations=[Deviation("age", str(row % 90), "41", 9 - row / n), Deviation("city", "x", "y", 1.5)],
        )
        for row in losses.argsort(descending=True)[:listed].tolist()
    ]
    return Findings(
        title="houses.csv",
        losses=losses,
        inlier_probability=probability,
        estimate=mixture,
        kernel=KERNEL,
        scale=20.0,
        history=[(k, 30 - k, 1 - 0.015 * k) for k in range(10)],
        suspects=suspects,
        facts={"Model": "linear"},
    )


def findings(n: int = 2000, listed: int = 120, **changes) -> Findings:
    """A table of which 15 % of the rows have errors ten times as large."""
    return replace(_findings(n, listed), **changes)


@cache
def trained(groups: bool = False) -> tuple[Robust, torch.Tensor]:
    """A Robust that saw 600 of 610 samples, of which every fifth has a large loss."""
    torch.manual_seed(0)
    robust = Robust(inlier_fraction=0.8, warmup=5, update_every=1, samples=610)
    index = torch.arange(600)
    bad = index % 5 == 0
    for _ in range(10):
        losses = (torch.randn(600) * torch.where(bad, 15.0, 1.0)) ** 2
        robust(losses, index, index % 3 if groups else None)
    return robust, bad


@cache
def trained_classifier() -> tuple[RobustCrossEntropy, torch.Tensor, torch.Tensor]:
    """A RobustCrossEntropy that trained a linear model; with the given labels and the true ones."""
    torch.manual_seed(0)
    truth = torch.randint(3, (600,))
    x = torch.eye(3)[truth] * 4 + torch.randn(600, 3)
    noisy = torch.rand(600) < 0.2
    labels = torch.where(noisy, (truth + 1) % 3, truth)
    model, criterion = torch.nn.Linear(3, 3), RobustCrossEntropy(0.8, warmup=20, update_every=5, samples=600)
    optimizer = torch.optim.SGD(model.parameters(), 0.5)
    for _ in range(40):
        for index in torch.randperm(600).split(100):
            optimizer.zero_grad()
            criterion(model(x[index]), labels[index], index).backward()
            optimizer.step()
    return criterion, labels, truth


class Reader(HTMLParser):
    """The elements, texts and embedded data of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text, self.data = "", ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "link", "input", "br", "img"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        tag, attributes = self.tags[-1] if self.tags else ("", {})
        if tag == "script" and attributes.get("id") == "data" and self.open[-1] == "script":
            self.data += data
        elif self.open and self.open[-1] not in ("script", "style"):
            self.text += data

    def has_class(self, name: str) -> bool:
        return any(name in (attributes.get("class") or "").split() for _, attributes in self.tags)
