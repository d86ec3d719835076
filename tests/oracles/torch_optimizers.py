"""Twenty steps of each optimizer on a small regression in f64; LARS by its formula. Usage: torch_optimizers.py FOLDER

Reads x, y and the initial w0, b0, w1, b1; writes <name>.npy (all weights in the end, flattened) and <name>.loss.npy.
"""
import sys

try:
    import numpy as np
    import torch
except ImportError:
    sys.exit(77)

folder, steps = sys.argv[1], 20
load = lambda name: torch.from_numpy(np.load(f"{folder}/{name}.npy"))
x, y = load("x"), load("y")


def groups(weights, decay):
    return [{"params": [w for w in weights if w.dim() > 1], "weight_decay": decay}, {"params": [w for w in weights if w.dim() == 1]}]


class Lars(torch.optim.Optimizer):
    """You et al. 2017, with SGD for tensors of one axis."""

    def step(self):
        g = self.defaults
        for w in self.param_groups[0]["params"]:
            trust = 1.0
            if w.dim() > 1:
                trust = g["trust"] * w.data.norm() / (w.grad.norm() + g["decay"] * w.data.norm() + g["eps"])
            d = trust * (w.grad + g["decay"] * w.data)
            v = self.state[w]["v"] = g["momentum"] * self.state[w].get("v", 0) + d
            w.data -= g["lr"] * v


class Lamb(torch.optim.Optimizer):
    """You et al. 2020, algorithm 2, with Adam for tensors of one axis."""

    def step(self):
        g = self.defaults
        for w in self.param_groups[0]["params"]:
            s = self.state[w]
            t = s["t"] = s.get("t", 0) + 1
            m = s["m"] = 0.9 * s.get("m", 0) + 0.1 * w.grad
            v = s["v"] = 0.999 * s.get("v", 0) + 0.001 * w.grad**2
            r = m / (1 - 0.9**t) / ((v / (1 - 0.999**t)).sqrt() + 1e-6)
            trust = 1.0
            if w.dim() > 1:
                r = r + g["decay"] * w.data
                trust = w.data.norm() / r.norm()
            w.data -= g["lr"] * trust * r


o = torch.optim
recipes = {
    "sgd": lambda w: o.SGD(w, lr=0.1),
    "momentum": lambda w: o.SGD(w, lr=0.1, momentum=0.9, weight_decay=0.01),
    "dampening": lambda w: o.SGD(w, lr=0.1, momentum=0.9, dampening=0.4, weight_decay=0.01),
    "nesterov": lambda w: o.SGD(w, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01),
    "sgd_groups": lambda w: o.SGD(groups(w, 0.1), lr=0.1, momentum=0.9),
    "scheduled": lambda w: o.SGD(w, lr=0.1, momentum=0.9),
    "clipped": lambda w: o.SGD(w, lr=0.1, momentum=0.9),
    "adagrad": lambda w: o.Adagrad(w, lr=0.1, weight_decay=0.01, initial_accumulator_value=0.1),
    "adadelta": lambda w: o.Adadelta(w, lr=1.0, weight_decay=0.01),
    "adam": lambda w: o.Adam(w, lr=0.01, weight_decay=0.01),
    "adamw": lambda w: o.AdamW(w, lr=0.01, weight_decay=0.1),
    "adamw_groups": lambda w: o.AdamW(groups(w, 0.1), lr=0.01, weight_decay=0.0),
    "rmsprop": lambda w: o.RMSprop(w, lr=0.01, weight_decay=0.01),
    "rmsprop_centered": lambda w: o.RMSprop(w, lr=0.01, alpha=0.9, momentum=0.8, centered=True),
    "lamb": lambda w: Lamb(w, dict(lr=0.05, decay=0.1)),
    "clip_value": lambda w: o.SGD(w, lr=0.1, momentum=0.9),
    "groups": lambda w: o.AdamW([{"params": w[2:], "lr": 0.03, "weight_decay": 0.2}, {"params": w[:1]}, {"params": w[1:2], "weight_decay": 0}], lr=0.01, weight_decay=0.1),
    "lars": lambda w: Lars(w, dict(lr=0.5, momentum=0.9, decay=0.01, trust=0.1, eps=1e-9)),
}
for name, make in recipes.items():
    weights = [load(w).requires_grad_() for w in ("w0", "b0", "w1", "b1")]
    w0, b0, w1, b1 = weights
    optimizer = make(weights)
    losses = []
    for step in range(steps):
        if name == "scheduled":
            optimizer.param_groups[0]["lr"] = 0.1 * 0.5 ** (step // 5)
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(torch.tanh(x @ w0.T + b0) @ w1.T + b1, y)
        loss.backward()
        if name == "clipped":
            torch.nn.utils.clip_grad_norm_(weights, 0.2)
        if name == "clip_value":
            torch.nn.utils.clip_grad_value_(weights, 0.03)
        optimizer.step()
        losses.append(loss.item())
    np.save(f"{folder}/{name}.npy", torch.cat([w.detach().flatten() for w in weights]).numpy())
    np.save(f"{folder}/{name}.loss.npy", np.array(losses))
