"""The counterpart of bench/layers_step.cpp in PyTorch: times forward and backward of a layer, or a training step of a model.
  layers_torch.py NAME [STEPS] [--channels-last]"""
import json
import pathlib
import resource
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tests/oracles"))
channels_last = "--channels-last" in sys.argv
name, steps = sys.argv[1], next((int(w) for w in sys.argv[2:] if w.isdigit()), 10)


def megabytes():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def ordered(t):
    if not channels_last or t.dim() not in (4, 5):
        return t
    return t.to(memory_format=torch.channels_last if t.dim() == 4 else torch.channels_last_3d)


def layer(module, x, out):
    module = module.to(memory_format=torch.channels_last) if channels_last and not isinstance(module, nn.Embedding) else module
    x, seed = ordered(x), ordered(torch.randn(out))
    if x.is_floating_point():
        x.requires_grad_()

    def turn():
        module(x).backward(seed)
        for p in module.parameters():
            p.grad = None
        x.grad = None

    return turn


def training(model, x, labels=None):
    if channels_last:
        model = model.to(memory_format=torch.channels_last if x.dim() == 4 else torch.channels_last_3d)
    x = ordered(x)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)

    def turn():
        optimizer.zero_grad(set_to_none=True)
        y = model(x)
        loss = y.square().mean() if labels is None else F.cross_entropy(y, labels)
        loss.backward()
        optimizer.step()
        loss.item()

    return turn


def mobilenet():
    import torchvision
    return torchvision.models.mobilenet_v2()


class RMSNorm(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(channels))

    def forward(self, x):
        return F.rms_norm(x, x.shape[-1:], self.weight, 1e-5)


def unet(*args):
    from torch_unet import UNet
    return UNet(*args)


torch.manual_seed(1)
base = megabytes()
turn = {
    "group_norm": lambda: layer(nn.GroupNorm(32, 128), torch.randn(32, 128, 28, 28), (32, 128, 28, 28)),
    "group_norm_large": lambda: layer(nn.GroupNorm(8, 32), torch.randn(4, 32, 128, 128), (4, 32, 128, 128)),
    "rms_norm": lambda: layer(RMSNorm(768), torch.randn(4096, 768), (4096, 768)),
    "conv_transpose": lambda: layer(nn.ConvTranspose2d(128, 64, 2, 2), torch.randn(8, 128, 28, 28), (8, 64, 56, 56)),
    "conv_transpose_4": lambda: layer(nn.ConvTranspose2d(64, 32, 4, 2, 1), torch.randn(8, 64, 32, 32), (8, 32, 64, 64)),
    "bilinear": lambda: layer(nn.Upsample(scale_factor=2, mode="bilinear"), torch.randn(8, 64, 28, 28), (8, 64, 56, 56)),
    "nearest": lambda: layer(nn.Upsample(scale_factor=2), torch.randn(8, 64, 28, 28), (8, 64, 56, 56)),
    "trilinear": lambda: layer(nn.Upsample(scale_factor=2, mode="trilinear"), torch.randn(2, 32, 16, 16, 16), (2, 32, 32, 32, 32)),
    "embedding": lambda: layer(nn.Embedding(20000, 256), torch.randint(0, 20000, (32, 256)), (32, 256, 256)),
    "adaptive_avg_pool": lambda: layer(nn.AdaptiveAvgPool2d(7), torch.randn(16, 128, 30, 30), (16, 128, 7, 7)),
    "mobilenet_v2": lambda: training(mobilenet(), torch.randn(8, 3, 224, 224), torch.arange(8)),
    "unet": lambda: training(unet(2, 3, 1, 32), torch.randn(2, 3, 128, 128)),
    "unet_3d": lambda: training(unet(3, 1, 2, 16), torch.randn(1, 1, 32, 32, 32)),
}[name]()
times = []
for i in range(-2, steps):
    start = time.perf_counter()
    turn()
    if i >= 0:
        times.append((time.perf_counter() - start) * 1e3)
times.sort()
print(json.dumps({"median_ms": times[len(times) // 2], "min_ms": times[0], "peak_mb": megabytes(), "base_mb": base, "version": torch.__version__}))
