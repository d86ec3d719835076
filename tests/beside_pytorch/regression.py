"""Regression with metrics, checkpoints and resume: the PyTorch side of regression.cpp. regression.py EPOCHS"""

import csv
import os
import sys

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def Model():
    return nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 1))


def samples_of(split):
    return TensorDataset(torch.from_numpy(np.load(f"x_{split}.npy")), torch.from_numpy(np.load(f"y_{split}.npy")))


def evaluate(model, data):
    x, y = data.tensors
    with torch.no_grad():
        error = model(x) - y
    mse = error.square().mean()
    r2 = 1 - error.square().sum() / (y - y.mean()).square().sum()
    return {"test_mae": error.abs().mean().item(), "test_rmse": mse.sqrt().item(), "test_r2": r2.item()}


if __name__ == "__main__":
    train, test = samples_of("train"), samples_of("test")
    model = Model().double()
    adam = torch.optim.Adam(model.parameters(), lr=0.01)
    done = 0
    if os.path.exists("checkpoint.pt"):
        checkpoint = torch.load("checkpoint.pt")
        model.load_state_dict(checkpoint["model"])
        adam.load_state_dict(checkpoint["optimizer"])
        done = checkpoint["epoch"]
    else:
        model.load_state_dict(torch.load("start.pt"))
    for epoch in range(done + 1, int(sys.argv[1]) + 1):
        total = 0.0
        for x, y in DataLoader(train, batch_size=32):
            loss = F.mse_loss(model(x), y)
            adam.zero_grad()
            loss.backward()
            adam.step()
            total += loss.item() * len(x)
        row = {"epoch": epoch, "train_loss": total / len(train), **evaluate(model, test)}
        with open("metrics.csv", "a") as file:
            writer = csv.DictWriter(file, row)
            if epoch == 1:
                writer.writeheader()
            writer.writerow(row)
        torch.save({"model": model.state_dict(), "optimizer": adam.state_dict(), "epoch": epoch}, "checkpoint.pt")
    print(row)
    torch.save(model.state_dict(), "end.pt")
