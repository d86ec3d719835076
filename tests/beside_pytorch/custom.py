"""An op, a loss, an optimizer and a schedule of one's own, frozen layers, groups: the PyTorch side of custom.cpp."""

import numpy as np
import torch
from torch import nn


class Snake(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x + x.sin().square()

    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        return dy * (1 + (2 * x).sin())


class Activation(nn.Module):
    def forward(self, x):
        return Snake.apply(x)


def pinball(prediction, target):
    error = target - prediction
    return torch.maximum(0.9 * error, -0.1 * error).mean()


class Lion(torch.optim.Optimizer):
    def __init__(self, params, lr=1e-4, beta1=0.9, beta2=0.99, weight_decay=0.0):
        if lr < 0 or not 0 <= beta1 < 1 or not 0 <= beta2 < 1 or weight_decay < 0:
            raise ValueError("a setting is out of its range")
        super().__init__(params, {"lr": lr, "beta1": beta1, "beta2": beta2, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                m = self.state[p].setdefault("momentum", torch.zeros_like(p))
                mixed = group["beta1"] * m + (1 - group["beta1"]) * p.grad
                p -= group["lr"] * (mixed.sign() + group["weight_decay"] * p)
                m.copy_(group["beta2"] * m + (1 - group["beta2"]) * p.grad)


def Model():
    return nn.Sequential(nn.Linear(6, 16), Activation(), nn.Linear(16, 16), Activation(), nn.Linear(16, 1))


if __name__ == "__main__":
    model = Model().double()
    model.load_state_dict(torch.load("start.pt"))
    x, y = torch.from_numpy(np.load("x.npy")), torch.from_numpy(np.load("y.npy"))
    model[0].requires_grad_(False)
    groups = [{"params": model[2].parameters()}, {"params": model[4].parameters(), "lr": 0.1, "weight_decay": 0.0}]
    lion = Lion(groups, lr=0.01, weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.LambdaLR(lion, lambda step: 1 / (1 + 0.1 * step))
    for step in range(10):
        loss = pinball(model(x), y)
        lion.zero_grad()
        loss.backward()
        lion.step()
        schedule.step()
        print(loss.item())
    torch.save(model.state_dict(), "end.pt")
