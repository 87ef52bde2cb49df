"""Class labels of which 30 % are noisy: one loss in place of another, and the mislabelled samples are found."""

import torch
from torch.utils.data import DataLoader, TensorDataset

import inlier

torch.manual_seed(0)
centres, truth = 3 * torch.randn(5, 20), torch.randint(5, (4000,))
x = centres[truth] + torch.randn(4000, 20)
noisy = torch.rand(4000) < 0.3
y = torch.where(noisy, (truth + torch.randint(1, 5, (4000,))) % 5, truth)

loader = DataLoader(inlier.with_index(TensorDataset(x, y)), batch_size=128, shuffle=True)
model = torch.nn.Sequential(torch.nn.Linear(20, 64), torch.nn.ReLU(), torch.nn.Linear(64, 5))
criterion = inlier.RobustCrossEntropy()  # in place of torch.nn.CrossEntropyLoss()
optimizer = torch.optim.Adam(model.parameters(), 1e-3)
for _ in range(20):
    for inputs, target, index in loader:
        loss = criterion(model(inputs), target, index)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

estimate, suspects = criterion.fraction_estimate, criterion.inlier_probability().argsort()[: int(noisy.sum())]
print(f"estimated fraction of clean labels {estimate.value:.3f}, true {1 - noisy.float().mean():.3f}")
print(f"of the {len(suspects)} most suspect labels, {noisy[suspects].float().mean():.1%} are noisy")
corrected = criterion.suggested_label()[suspects] == truth[suspects]
print(f"for {corrected.float().mean():.1%} of them the suggested label is the true one")
