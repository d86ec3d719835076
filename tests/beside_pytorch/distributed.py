"""Training and evaluation on several ranks: the PyTorch side of distributed.cpp. distributed.py RANKS DROPOUT"""

import os
import sys

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, Subset, TensorDataset


def Model(dropout=0.0):
    return nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten(), nn.Dropout(dropout), nn.Linear(288, 4))


def samples_of(split):
    x, y = np.load(f"x_{split}.npy"), np.load(f"y_{split}.npy")
    return TensorDataset(torch.from_numpy(x).permute(0, 3, 1, 2), torch.from_numpy(y))


def main(rank, ranks, dropout):
    dist.init_process_group("gloo", init_method=f"file://{os.getcwd()}/rendezvous", rank=rank, world_size=ranks)
    model = Model(dropout).double()
    model.load_state_dict(torch.load("start.pt"))
    parallel = DistributedDataParallel(model)
    sgd = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    train, test = samples_of("train"), samples_of("test")
    # The mean of the ranks' gradients is the gradient of the batch only where their shares of it are equal, and the
    # sampler repeats samples until they are: exact with 62 samples on two ranks, on three it is not. Dropout masks come
    # from each rank's generator, so that they depend on the number of ranks in any case.
    sampler = DistributedSampler(train, shuffle=False)
    loader = DataLoader(train, batch_size=24 // ranks, sampler=sampler)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for x, y in loader:
            loss = F.cross_entropy(parallel(x), y)
            sgd.zero_grad()
            loss.backward()
            sgd.step()
            dist.all_reduce(loss.detach_())
            if rank == 0:
                print(loss.item() / ranks)
    model.eval()
    sums = torch.zeros(3, dtype=torch.float64)
    # Not by a DistributedSampler, which would count some samples twice.
    for x, y in DataLoader(Subset(test, range(rank, len(test), ranks)), batch_size=24 // ranks):
        with torch.no_grad():
            logits = model(x)
        correct = (logits.argmax(1) == y).sum()
        sums += torch.tensor([len(y), correct, F.cross_entropy(logits, y, reduction="sum")])
    dist.all_reduce(sums)
    if rank == 0:
        print(sums[0].item(), sums[1].item(), (sums[2] / sums[0]).item())
        torch.save(model.state_dict(), "end.pt")


if __name__ == "__main__":
    torch.multiprocessing.spawn(main, args=(int(sys.argv[1]), float(sys.argv[2])), nprocs=int(sys.argv[1]))
