"""A PyTorch training made robust to wrong labels in two lines, and the wrong labels named at the end."""

import torch
from torch.nn import functional as F

import inlier


def main(steps: int = 1500) -> None:
    torch.manual_seed(0)
    centres = 3 * torch.randn(5, 20)
    truth = torch.randint(5, (4000,))
    x = centres[truth] + torch.randn(4000, 20)
    wrong = torch.rand(4000) < 0.3
    y = torch.where(wrong, (truth + torch.randint(1, 5, (4000,))) % 5, truth)  # 30 % of the labels are wrong

    model = torch.nn.Sequential(torch.nn.Linear(20, 64), torch.nn.ReLU(), torch.nn.Linear(64, 5))
    robust = inlier.Robust()
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    for _ in range(steps):
        index = torch.randint(len(x), (128,))
        losses = F.cross_entropy(model(x[index]), y[index], reduction="none")
        loss = robust(losses, index)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    suspects = robust.inlier_probability().argsort()[: int(wrong.sum())]
    print(
        f"estimated inlier fraction {float(robust.inlier_fraction):.3f}, true {1 - wrong.float().mean():.3f}"
    )
    print(f"of the {len(suspects)} most suspect labels, {wrong[suspects].float().mean():.1%} are wrong")


if __name__ == "__main__":
    main()
