"""3-D U-Nets in PyTorch, in training, in f64. Usage: torch_unet3d.py FOLDER

cases.txt has a line per network: its name, channels, classes and width. Reads <name>.x, <name>.dy and <name>.<parameter> in our layout (channels
last). Leaves <name>.y, <name>.dx and <name>.<parameter>.grad.
"""
import sys

try:
    import numpy as np
    import torch
    from torch_unet import UNet
except ImportError:
    sys.exit(77)

folder = sys.argv[1]
theirs = lambda t: t.movedim(-1, 1) if t.dim() > 1 else t
ours = lambda t: t.movedim(1, -1) if t.dim() > 1 else t
for line in open(f"{folder}/cases.txt").read().splitlines():
    name, *numbers = line.split()
    load = lambda key: torch.from_numpy(np.load(f"{folder}/{name}.{key}.npy"))
    save = lambda key, t: np.save(f"{folder}/{name}.{key}.npy", ours(t.detach()).contiguous().numpy())
    net = UNet(3, *map(int, numbers)).double()
    with torch.no_grad():
        for key, p in net.named_parameters():
            p.copy_(theirs(load(key)))
    x = theirs(load("x")).requires_grad_()
    y = net(x)
    y.backward(theirs(load("dy")))
    save("y", y)
    save("dx", x.grad)
    for key, p in net.named_parameters():
        save(key + ".grad", p.grad)
