"""Trains the MNIST CNN from given weights, in f32 and in f64. Usage: torch_mnist_cnn.py FOLDER STEPS MASKED

Reads images (N,H,W,C), labels and the weights 0.weight ... 10.bias in Trireme's layout; with MASKED 1 also the factors that
dropout multiplies by at each step, mask0 (N,H,W,C) and mask1. Writes loss_f32.npy, loss_f64.npy, and the final weights of the
f64 run as <name>.end.npy: what both frameworks' f32 runs are roundings of.
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
channels_first = lambda t: t.movedim(-1, 1).contiguous()


def train(dtype):
    load = lambda name: torch.from_numpy(np.load(f"{folder}/{name}.npy")).to(dtype)
    model = torch.nn.Sequential(
        torch.nn.Conv2d(1, 32, 3), torch.nn.ReLU(), torch.nn.Conv2d(32, 64, 3), torch.nn.ReLU(), torch.nn.MaxPool2d(2),
        torch.nn.Identity(), torch.nn.Flatten(), torch.nn.Linear(9216, 128), torch.nn.ReLU(), torch.nn.Identity(),
        torch.nn.Linear(128, 10)).to(dtype)
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
    return model, np.array(losses)


np.save(f"{folder}/loss_f32.npy", train(torch.float32)[1])
model, losses = train(torch.float64)
np.save(f"{folder}/loss_f64.npy", losses)
for name, t in model.state_dict().items():
    t = t.movedim(1, -1) if t.dim() == 4 else t
    np.save(f"{folder}/{name}.end.npy", t.contiguous().numpy())
