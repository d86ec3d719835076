"""Smallest, largest, mean and deviation of PyTorch's initialisers. Usage: torch_init.py FOLDER"""
import math
import sys

try:
    import numpy as np
    import torch
    from torch.nn import init
except ImportError:
    sys.exit(77)

torch.manual_seed(0)
filters = lambda: torch.empty(96, 24, 5, 3)  # O, I, spatial: ours is O, spatial, I
linear = torch.nn.Linear(300, 2000)
conv = torch.nn.Conv2d(64, 3000, 3, groups=4)
tensors = {
    "linear.weight": linear.weight,
    "linear.bias": linear.bias,
    "conv.weight": conv.weight,
    "conv.bias": conv.bias,
    "kaiming_uniform": init.kaiming_uniform_(filters(), a=0.2, mode="fan_out"),
    "kaiming_normal": init.kaiming_normal_(filters(), mode="fan_out"),
    "kaiming_normal_in": init.kaiming_normal_(filters(), mode="fan_in", nonlinearity="relu"),
    "xavier_uniform": init.xavier_uniform_(filters()),
    "xavier_normal": init.xavier_normal_(filters(), gain=1.5),
    "trunc_normal": init.trunc_normal_(filters(), std=0.7, a=-0.5, b=1),
    "uniform": init.uniform_(filters(), -0.5, 1.5),
    "normal": init.normal_(filters(), 0.3, 2),
}
for name, t in tensors.items():
    t = t.detach().double()
    np.save(f"{sys.argv[1]}/{name}.npy", np.array([t.min(), t.max(), t.mean(), t.std()], dtype=np.float64))
