"""Trains the MNIST CNN from given weights in f32. Usage: torch_mnist_cnn.py FOLDER STEPS MASKED

Reads images (N,H,W,C), labels and the weights 0.weight ... 10.bias in Trireme's layout; with MASKED 1 also the factors that
dropout multiplies by at each step, mask0 (N,H,W,C) and mask1. Writes loss.npy and the final weights as <name>.end.npy.
"""
import sys

try:
    import numpy as np
    import torch
    import torch.nn.functional as F
except ImportError:
    sys.exit(77)

folder, steps, masked = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "1"
torch.set_num_threads(1)
load = lambda name: torch.from_numpy(np.load(f"{folder}/{name}.npy")).float()
channels_first = lambda t: t.movedim(-1, 1).contiguous()

model = torch.nn.Sequential(
    torch.nn.Conv2d(1, 32, 3), torch.nn.ReLU(), torch.nn.Conv2d(32, 64, 3), torch.nn.ReLU(), torch.nn.MaxPool2d(2),
    torch.nn.Identity(), torch.nn.Flatten(), torch.nn.Linear(9216, 128), torch.nn.ReLU(), torch.nn.Identity(),
    torch.nn.Linear(128, 10))
state = {name: load(name) for name in model.state_dict()}
model.load_state_dict({name: channels_first(t) if t.dim() == 4 else t for name, t in state.items()})
images, labels = channels_first(load("images")), load("labels").long()
if masked:
    batch = len(labels)
    mask0, mask1 = load("mask0").reshape(steps, batch, 12, 12, 64).movedim(-1, 2), load("mask1").reshape(steps, batch, 128)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
losses = []
for step in range(steps):
    optimizer.zero_grad()
    x = images
    for i, layer in enumerate(model):
        x = layer(x)
        if masked and i == 5:
            x = x * mask0[step]
        if masked and i == 9:
            x = x * mask1[step]
    loss = F.cross_entropy(x, labels)
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
np.save(f"{folder}/loss.npy", np.array(losses))
for name, t in model.state_dict().items():
    t = t.movedim(1, -1) if t.dim() == 4 else t
    np.save(f"{folder}/{name}.end.npy", t.contiguous().double().numpy())
