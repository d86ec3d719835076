"""A CNN of odd shapes, trained three steps: the PyTorch side of odd_cnn.cpp."""

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 12, (5, 3), stride=(2, 1))
        self.bn1 = nn.BatchNorm2d(12)
        self.conv2 = nn.Conv2d(18, 24, 3, padding=1, groups=6, bias=False)
        self.bn2 = nn.BatchNorm2d(24)
        self.head = nn.Linear(24 * 3 * 4, 10)

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(F.pad(x, (1, 0, 2, 1)))))
        x = x.repeat(1, 2, 1, 1)[:, :18]
        x = F.max_pool2d(x, (3, 2), stride=(2, 1), padding=(1, 0))
        x = F.relu(self.bn2(self.conv2(x)))
        return self.head(F.adaptive_avg_pool2d(x, (3, 4)).flatten(1))


if __name__ == "__main__":
    model = Model().double()
    model.load_state_dict(torch.load("start.pt"))
    x = torch.from_numpy(np.load("x.npy")).permute(0, 3, 1, 2)
    y = torch.from_numpy(np.load("y.npy"))
    sgd = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=0.01, nesterov=True)
    for step in range(3):
        loss = F.cross_entropy(model(x), y, label_smoothing=0.1)
        sgd.zero_grad()
        loss.backward()
        sgd.step()
        print(loss.item())
    torch.save(model.state_dict(), "end.pt")
