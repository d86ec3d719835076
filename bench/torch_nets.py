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


class Norm(nn.Module):
    def __init__(self, width, bias):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width)) if bias else None

    def forward(self, x):
        return F.layer_norm(x, self.weight.shape, self.weight, self.bias, 1e-5)


class Block(nn.Module):
    def __init__(self, width, heads, bias, activation):
        super().__init__()
        self.heads, self.approximate = heads, "tanh" if activation == "gelu_tanh" else "none"
        self.ln_1, self.ln_2 = Norm(width, bias), Norm(width, bias)
        self.c_attn, self.proj = nn.Linear(width, 3 * width, bias=bias), nn.Linear(width, width, bias=bias)
        self.c_fc, self.c_proj = nn.Linear(width, 4 * width, bias=bias), nn.Linear(4 * width, width, bias=bias)

    def forward(self, x):
        n, t, c = x.shape
        q, k, v = (z.view(n, t, self.heads, c // self.heads).transpose(1, 2) for z in self.c_attn(self.ln_1(x)).split(c, 2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(n, t, c))
        return x + self.c_proj(F.gelu(self.c_fc(self.ln_2(x)), approximate=self.approximate))


class Gpt(nn.Module):
    """GPT-2 with its loss, in nanoGPT's form: one projection for q, k and v, scaled_dot_product_attention, the head tied to the embedding."""

    def __init__(self, vocabulary, context, layers=12, heads=12, width=768, bias=True, activation="gelu_tanh"):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        nn.init.normal_(self.wte.weight, std=0.02)
        self.h = nn.ModuleList(Block(width, heads, bias, activation) for _ in range(layers))
        self.ln_f = Norm(width, bias)

    def forward(self, ids, labels):
        x = self.wte(ids) + self.wpe(torch.arange(ids.shape[1], device=ids.device))
        for block in self.h:
            x = block(x)
        return F.cross_entropy(F.linear(self.ln_f(x), self.wte.weight).flatten(0, 1), labels.flatten())
