"""A U-Net in PyTorch, in two or three dimensions, with the names of mateuszbuda/brain-segmentation-pytorch."""
from collections import OrderedDict

import torch
from torch import nn


class UNet(nn.Module):
    def __init__(self, dims, channels, classes, width):
        super().__init__()
        conv, norm, up = (nn.Conv2d, nn.BatchNorm2d, nn.ConvTranspose2d) if dims == 2 else (nn.Conv3d, nn.BatchNorm3d, nn.ConvTranspose3d)
        self.pool = nn.MaxPool2d(2) if dims == 2 else nn.MaxPool3d(2)

        def block(i, o, name):
            return nn.Sequential(OrderedDict([
                (name + "conv1", conv(i, o, 3, padding=1, bias=False)), (name + "norm1", norm(o)), (name + "relu1", nn.ReLU()),
                (name + "conv2", conv(o, o, 3, padding=1, bias=False)), (name + "norm2", norm(o)), (name + "relu2", nn.ReLU())]))

        for level in range(1, 5):
            self.add_module(f"encoder{level}", block(channels if level == 1 else width << (level - 2), width << (level - 1), f"enc{level}"))
        self.bottleneck = block(width * 8, width * 16, "bottleneck")
        for level in range(4, 0, -1):
            o = width << (level - 1)
            self.add_module(f"upconv{level}", up(2 * o, o, 2, 2))
            self.add_module(f"decoder{level}", block(2 * o, o, f"dec{level}"))
        self.conv = conv(width, classes, 1)

    def forward(self, x):
        kept = []
        for level in range(1, 5):
            kept.append(getattr(self, f"encoder{level}")(x))
            x = self.pool(kept[-1])
        x = self.bottleneck(x)
        for level in range(4, 0, -1):
            x = torch.cat([getattr(self, f"upconv{level}")(x), kept[level - 1]], 1)
            x = getattr(self, f"decoder{level}")(x)
        return self.conv(x)
