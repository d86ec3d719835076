"""New tokens of GPT-2 in PyTorch, greedy, with a preallocated cache, one JSON line: the counterpart of `text_step --decode`.
--compile: one graph of all layers; the whole cache is attended to under a mask, so that shapes are constant."""
import argparse
import json
import resource
import time

import torch
import torch.nn.functional as F
from torch_nets import Gpt

parser = argparse.ArgumentParser()
for name, value in {"decode": 256, "context": 1024, "vocabulary": 50257, "steps": 24, "warmup": 4, "threads": 0, "dtype": "f32"}.items():
    parser.add_argument(f"--{name}", type=type(value), default=value)
parser.add_argument("--compile", action="store_true")
args, _ = parser.parse_known_args()
if args.threads:
    torch.set_num_threads(args.threads)


def megabytes():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


torch.manual_seed(1)
base = megabytes()
dtype = torch.bfloat16 if args.dtype == "bf16" else torch.float32
net = Gpt(args.vocabulary, args.context).eval().to(dtype)
for p in net.parameters():
    if p.dim() == 2 and not args.compile:  # stored by columns, as Hugging Face's Conv1D: MKL multiplies one row faster
        p.data = p.data.t().contiguous().t()
cache = [torch.zeros(2, 1, 12, args.context, 64, dtype=dtype) for _ in net.h]


def logits(ids, begin, keys, mask):
    """The last token's logits. ids [1, T] are at positions begin, begin + 1, ...; keys: how many tokens of the cache are attended to."""
    t = ids.shape[1]
    at = begin + torch.arange(t)
    x = net.wte(ids) + net.wpe(at)
    for block, kv in zip(net.h, cache):
        q, k, v = (z.view(1, t, 12, 64).transpose(1, 2) for z in block.c_attn(block.ln_1(x)).split(768, 2))
        if mask is None:
            kv[0, :, :, begin:begin + t], kv[1, :, :, begin:begin + t] = k, v
        else:
            kv[0].index_copy_(2, at, k), kv[1].index_copy_(2, at, v)
        y = F.scaled_dot_product_attention(q, kv[0, :, :, :keys], kv[1, :, :, :keys], attn_mask=mask, is_causal=mask is None and t > 1)
        x = x + block.proj(y.transpose(1, 2).reshape(1, t, 768))
        x = x + block.c_proj(F.gelu(block.c_fc(block.ln_2(x)), approximate="tanh"))
    return F.linear(net.ln_f(x[:, -1:]), net.wte.weight)


def constant(ids, begin):
    return logits(ids, begin, args.context, (torch.arange(args.context) <= begin)[None])


run = torch.compile(constant) if args.compile else None
times, total = [], 0
ids = torch.randint(0, args.vocabulary, (1, args.decode))
with torch.inference_mode():
    value = logits(ids, 0, args.decode, None)
    for i in range(args.warmup + args.steps):
        start = time.perf_counter()
        ids, at = value[0].argmax(1, keepdim=True), args.decode + i
        total += ids.item()
        value = run(ids, torch.tensor([at])) if run else logits(ids, at, at + 1, None)
        if i >= args.warmup:
            times.append((time.perf_counter() - start) * 1e3)
times.sort()
print(json.dumps({"median_ms": times[len(times) // 2], "min_ms": times[0], "ids": total, "peak_mb": megabytes(), "base_mb": base, "version": torch.__version__}))
