"""Training steps of GPT-2 (torch_nets.py) or torchvision's ViT in
PyTorch, on made-up data, one JSON line: the counterpart of bench/text_step.cpp."""
import argparse
import json
import math
import resource
import time

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch_nets import Gpt

parser = argparse.ArgumentParser()
for name, value in {"model": "gpt2", "layers": 12, "heads": 12, "width": 768, "context": 1024, "vocabulary": 50257, "batch": 1,
                    "steps": 10, "warmup": 2, "threads": 0, "bias": 1, "activation": "gelu_tanh", "dtype": "f32"}.items():
    parser.add_argument(f"--{name}", type=type(value), default=value)
parser.add_argument("--compile", action="store_true")
args = parser.parse_args()
if args.threads:
    torch.set_num_threads(args.threads)


def megabytes():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


class Classifier(nn.Module):
    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, x, labels):
        return F.cross_entropy(self.net(x).float(), labels)


torch.manual_seed(1)
base = megabytes()
if args.model == "gpt2":
    net = Gpt(args.vocabulary, args.context, args.layers, args.heads, args.width, bool(args.bias), args.activation)
    x, y = (torch.randint(0, args.vocabulary, (args.batch, args.context)) for _ in range(2))
else:
    import torchvision
    net = Classifier(getattr(torchvision.models, args.model)())
    x, y = torch.full((args.batch, 3, 224, 224), 0.1), torch.randint(0, 1000, (args.batch,))
model = torch.compile(net) if args.compile else net
decay = [p for p in net.parameters() if p.dim() >= 2]
rest = [p for p in net.parameters() if p.dim() < 2]
optimizer = torch.optim.AdamW([{"params": decay, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0}], lr=1e-3, betas=(0.9, 0.99))
times, value = [], 0.0
for i in range(args.warmup + args.steps):
    start = time.perf_counter()
    optimizer.zero_grad(set_to_none=True)
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=args.dtype == "bf16"):
        loss = model(x, y)
    loss.backward()
    nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    optimizer.step()
    value = loss.item()
    if i >= args.warmup:
        times.append((time.perf_counter() - start) * 1e3)
times.sort()
assert math.isfinite(value)
print(json.dumps({"median_ms": times[len(times) // 2], "min_ms": times[0], "loss": value, "peak_mb": megabytes(), "base_mb": base,
                  "parameters": sum(p.numel() for p in net.parameters()), "version": torch.__version__}))
