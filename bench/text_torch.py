"""Training steps of GPT-2 (nanoGPT's form: one projection for q, k and v, scaled_dot_product_attention) or torchvision's ViT in
PyTorch, on made-up data, one JSON line: the counterpart of bench/text_step.cpp."""
import argparse
import json
import math
import resource
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

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


class Norm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width)) if args.bias else None

    def forward(self, x):
        return F.layer_norm(x, self.weight.shape, self.weight, self.bias, 1e-5)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        c, bias = args.width, bool(args.bias)
        self.ln_1, self.ln_2 = Norm(c), Norm(c)
        self.c_attn, self.proj = nn.Linear(c, 3 * c, bias=bias), nn.Linear(c, c, bias=bias)
        self.c_fc, self.c_proj = nn.Linear(c, 4 * c, bias=bias), nn.Linear(4 * c, c, bias=bias)

    def forward(self, x):
        n, t, c = x.shape
        q, k, v = (z.view(n, t, args.heads, c // args.heads).transpose(1, 2) for z in self.c_attn(self.ln_1(x)).split(c, 2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(n, t, c))
        h = F.gelu(self.c_fc(self.ln_2(x)), approximate="tanh" if args.activation == "gelu_tanh" else "none")
        return x + self.c_proj(h)


class Gpt(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(args.vocabulary, args.width), nn.Embedding(args.context, args.width)
        self.h = nn.ModuleList(Block() for _ in range(args.layers))
        self.ln_f = Norm(args.width)

    def forward(self, ids, labels):
        x = self.wte(ids) + self.wpe(torch.arange(ids.shape[1]))
        for block in self.h:
            x = block(x)
        return F.cross_entropy(F.linear(self.ln_f(x), self.wte.weight).flatten(0, 1), labels.flatten())


class Classifier(nn.Module):
    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, x, labels):
        return F.cross_entropy(self.net(x).float(), labels)


torch.manual_seed(1)
base = megabytes()
if args.model == "gpt2":
    net = Gpt()
    nn.init.normal_(net.wte.weight, std=0.02)
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
