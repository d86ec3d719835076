"""Mixed-scale dense networks of PyTorch's convolutions and concatenations, in f64. Usage: torch_msd.py FOLDER

cases.txt has a line per network: its name and the dilation of each layer. Reads <name>.x, <name>.dy and the weights
<name>.dense.<layer>.weight, ... in our layout (channels last). Leaves <name>.y, <name>.dx and <name>.<weight>.grad.
"""
import sys

try:
    import numpy as np
    import torch
    import torch.nn.functional as F
except ImportError:
    sys.exit(77)

folder = sys.argv[1]
theirs = lambda t: t.movedim(-1, 1)
ours = lambda t: t.movedim(1, -1)
for line in open(f"{folder}/cases.txt").read().splitlines():
    name, *dilations = line.split()
    load = lambda key: torch.from_numpy(np.load(f"{folder}/{name}.{key}.npy")).requires_grad_()
    save = lambda key, t: np.save(f"{folder}/{name}.{key}.npy", t.detach().contiguous().numpy())
    x = load("x")
    keys = [f"{layer}.{kind}" for layer in [*(f"dense.{i}" for i in range(len(dilations))), "final"] for kind in ("weight", "bias")]
    weights = {key: load(key) for key in keys}
    conv = F.conv2d if x.dim() == 4 else F.conv3d
    layer = lambda h, key, d, pad: conv(h, theirs(weights[key + ".weight"]), weights[key + ".bias"], padding=pad, dilation=d)
    h = theirs(x)
    for i, d in enumerate(map(int, dilations)):
        h = torch.cat([h, F.relu(layer(h, f"dense.{i}", d, d))], 1)
    y = ours(layer(h, "final", 1, 0))
    y.backward(load("dy").detach())
    save("y", y)
    save("dx", x.grad)
    for key, t in weights.items():
        save(key + ".grad", t.grad)
