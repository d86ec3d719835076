"""Logits and gradients of a GPT with the options of nanoGPT: torch_gpt.py FOLDER LAYERS HEADS

No biases, exact GELU, the head is the token embedding. FOLDER holds ids.npy, labels.npy and TENSOR.npy for each weight,
matrices as [out, in]; logits.npy and TENSOR.grad.npy are left there. All in f64.
"""
import pathlib
import sys

try:
    import numpy as np
    import torch
    import torch.nn.functional as F
except ImportError:
    sys.exit(77)

folder, layers, heads = pathlib.Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
w = {p.name[:-4]: torch.from_numpy(np.load(p)).requires_grad_() for p in folder.glob("transformer.*.npy")}
ids, labels = (torch.from_numpy(np.load(folder / f"{name}.npy")).long() for name in ("ids", "labels"))


def norm(x, name):
    return F.layer_norm(x, x.shape[-1:], w[f"transformer.{name}.weight"])


def apply(x, name):
    return F.linear(x, w[f"transformer.{name}.weight"])


N, T = ids.shape
x = w["transformer.wte.weight"][ids] + w["transformer.wpe.weight"][:T]
future = torch.ones(T, T, dtype=torch.bool).triu(1)
for i in range(layers):
    q, k, v = (t.reshape(N, T, heads, -1).transpose(1, 2) for t in apply(norm(x, f"h.{i}.ln_1"), f"h.{i}.attn.c_attn").chunk(3, -1))
    scores = (q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5).masked_fill(future, -torch.inf)
    x = x + apply((scores.softmax(-1) @ v).transpose(1, 2).reshape(x.shape), f"h.{i}.attn.c_proj")
    x = x + apply(F.gelu(apply(norm(x, f"h.{i}.ln_2"), f"h.{i}.mlp.c_fc")), f"h.{i}.mlp.c_proj")
logits = norm(x, "ln_f") @ w["transformer.wte.weight"].T
F.cross_entropy(logits.flatten(0, 1), labels.flatten()).backward()
np.save(folder / "logits.npy", logits.detach().numpy())
for name, tensor in w.items():
    np.save(folder / f"{name}.grad.npy", tensor.grad.numpy())
