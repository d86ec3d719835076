"""The networks that the benches time, in PyTorch: written out, so that torchvision, which must match torch's version, is not needed."""
import torch
import torch.nn.functional as F
from torch import nn


def conv(i, o, k, stride=1):
    return nn.Conv2d(i, o, k, stride, k // 2, bias=False)


class Bottleneck(nn.Module):
    def __init__(self, i, width, stride):
        super().__init__()
        self.conv1, self.bn1 = conv(i, width, 1), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = conv(width, width, 3, stride), nn.BatchNorm2d(width)
        self.conv3, self.bn3 = conv(width, 4 * width, 1), nn.BatchNorm2d(4 * width)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = nn.Sequential(conv(i, 4 * width, 1, stride), nn.BatchNorm2d(4 * width)) if i != 4 * width else None

    def forward(self, x):
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.relu(self.bn2(self.conv2(y)))
        y = self.bn3(self.conv3(y))
        y += x if self.downsample is None else self.downsample(x)
        return self.relu(y)


def resnet50():
    layers, channels = [conv(3, 64, 7, 2), nn.BatchNorm2d(64), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)], 64
    for stage, blocks in enumerate([3, 4, 6, 3]):
        for b in range(blocks):
            width = 64 << stage
            layers.append(Bottleneck(channels, width, 2 if b == 0 and stage else 1))
            channels = 4 * width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2048, 1000))


class MnistCnn(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 32, 3), nn.Conv2d(32, 64, 3)
        self.fc1, self.fc2 = nn.Linear(9216, 128), nn.Linear(128, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv2(F.relu(self.conv1(x)))), 2)
        x = torch.flatten(F.dropout(x, 0.25, self.training), 1)
        return self.fc2(F.dropout(F.relu(self.fc1(x)), 0.5, self.training))
