"""A vision transformer with a class token, its gradients and its ONNX file: the PyTorch side of vit.cpp."""

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

width, heads = 24, 3


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, heads, -1).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-1, -2) / (d // heads) ** 0.5
        x = x + self.out((scores.softmax(-1) @ v).transpose(1, 2).reshape(b, t, d))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.patches = nn.Conv2d(3, width, 8, stride=8)
        self.token = nn.Parameter(torch.zeros(1, 1, width))
        self.positions = nn.Parameter(torch.randn(1, 17, width) * 0.02)
        self.blocks = nn.Sequential(Block(), Block())
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, 10)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1) + self.positions
        return self.head(self.norm(self.blocks(x))[:, 0])


if __name__ == "__main__":
    model = Model().double()
    model.load_state_dict(torch.load("start.pt"))
    x = torch.from_numpy(np.load("x.npy")).permute(0, 3, 1, 2)
    loss = F.cross_entropy(model(x), torch.from_numpy(np.load("y.npy")))
    loss.backward()
    print(loss.item())
    for name, p in model.named_parameters():
        print(name, p.grad.norm().item())
    model.float().eval()
    names = {"input_names": ["input"], "output_names": ["output"], "dynamic_axes": {"input": {0: "N"}}}
    torch.onnx.export(model, x[:2].float(), "theirs.onnx", **names)
