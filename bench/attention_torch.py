"""The counterpart of bench/attention_step.cpp in PyTorch: scaled_dot_product_attention of q, k and v [N, T, H, D], as a linear layer leaves them.
  attention_torch.py SAMPLES HEADS TOKENS f32|bf16 forward|both [STEPS] [cpu|cuda]"""
import json
import sys
import time

import torch
import torch.nn.functional as F

samples, heads, tokens = (int(w) for w in sys.argv[1:4])
kind, both = {"f32": torch.float32, "bf16": torch.bfloat16}[sys.argv[4]], sys.argv[5] == "both"
steps = int(sys.argv[6]) if len(sys.argv) > 6 else 10
device = sys.argv[7] if len(sys.argv) > 7 else "cpu"
calls = 20 if device == "cuda" else 1
torch.manual_seed(1)
leaves = [torch.randn(samples, tokens, heads, 64).to(device, kind).requires_grad_(both) for _ in range(3)]
seed = torch.randn(samples, tokens, heads, 64).to(device, kind)
times = []
for i in range(-3, steps):
    start = time.perf_counter()
    for _ in range(calls):
        y = F.scaled_dot_product_attention(*(t.transpose(1, 2) for t in leaves), is_causal=True).transpose(1, 2)
        if both:
            y.backward(seed)
            for t in leaves:
                t.grad = None
    if device == "cuda":
        torch.cuda.synchronize()
    if i >= 0:
        times.append((time.perf_counter() - start) * 1e3 / calls)
times.sort()
print(json.dumps({"median_ms": times[len(times) // 2], "min_ms": times[0], "version": torch.__version__}))
