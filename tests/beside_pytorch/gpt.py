"""A GPT of two blocks, trained eight steps: the PyTorch side of gpt.cpp."""

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

width, heads, length, vocabulary = 32, 4, 12, 50


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, heads, -1).permute(2, 0, 3, 1, 4)
        future = torch.ones(t, t, dtype=torch.bool).triu(1)
        scores = (q @ k.mT / (d // heads) ** 0.5).masked_fill(future, -torch.inf)
        x = x + self.out((scores.softmax(-1) @ v).transpose(1, 2).reshape(b, t, d))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(length, width)
        self.blocks = nn.Sequential(Block(), Block())
        self.norm = nn.LayerNorm(width)

    def forward(self, ids):
        x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1]))
        return F.linear(self.norm(self.blocks(x)), self.tokens.weight)


if __name__ == "__main__":
    model = Model().double()
    model.load_state_dict(torch.load("start.pt"))
    ids = torch.from_numpy(np.load("ids.npy"))
    decayed = [p for p in model.parameters() if p.dim() > 1]
    others = [p for p in model.parameters() if p.dim() <= 1]
    groups = [{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    adamw = torch.optim.AdamW(groups, lr=0.01, betas=(0.9, 0.95))
    warm_up = torch.optim.lr_scheduler.LinearLR(adamw, start_factor=0.1, total_iters=3)
    cosine = torch.optim.lr_scheduler.CosineAnnealingLR(adamw, T_max=10)
    schedule = torch.optim.lr_scheduler.SequentialLR(adamw, [warm_up, cosine], milestones=[3])
    for step in range(8):
        loss = F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
        adamw.zero_grad()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        adamw.step()
        schedule.step()
        print(loss.item(), norm.item())
    torch.save(model.state_dict(), "end.pt")
