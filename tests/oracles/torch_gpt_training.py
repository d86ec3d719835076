"""Training of a GPT with nanoGPT's options and rule: torch_gpt_training.py FOLDER LAYERS HEADS TYPE STEPS LR WARM DECAY

No biases, exact GELU, no dropout, the head is the token embedding. FOLDER holds x.npy and y.npy [STEPS or more, N, T]
and TENSOR.npy for each weight, matrices as [out, in]. AdamW of (0.9, 0.99), weight decay 0.1 of what has two axes,
gradients clipped to norm 1, a ramp of WARM steps, then half a cosine to a tenth of LR at step DECAY (nanoGPT's
train.py). TYPE: float32 or float64. Leaves losses.TYPE.npy, norms.TYPE.npy and TENSOR.TYPE.npy.
"""
import math
import pathlib
import sys

try:
    import numpy as np
    import torch
    import torch.nn.functional as F
except ImportError:
    sys.exit(77)

folder, layers, heads, kind = pathlib.Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
steps, peak, warm, end = int(sys.argv[5]), float(sys.argv[6]), int(sys.argv[7]), int(sys.argv[8])
names = sorted(p.name[:-4] for p in folder.glob("transformer.*.weight.npy"))
w = {name: torch.from_numpy(np.load(folder / f"{name}.npy")).to(getattr(torch, kind)).requires_grad_() for name in names}
xs, ys = (torch.from_numpy(np.load(folder / f"{name}.npy")).long() for name in "xy")


def norm(x, name):
    return F.layer_norm(x, x.shape[-1:], w[f"transformer.{name}.weight"])


def linear(x, weight):
    """PyTorch's product of oneDNN in f32: distributions build it without another fast one."""
    fast = getattr(torch._C._nn, "mkldnn_linear", None) if kind == "float32" and torch.backends.mkldnn.is_available() else None
    return fast(x.to_mkldnn(), weight).to_dense() if fast else F.linear(x, weight)


def apply(x, name):
    return linear(x, w[f"transformer.{name}.weight"])


def loss_of(ids, labels):
    T = ids.shape[1]
    x = w["transformer.wte.weight"][ids] + w["transformer.wpe.weight"][:T]
    future = torch.ones(T, T, dtype=torch.bool).triu(1)
    for i in range(layers):
        q, k, v = (t.unflatten(-1, (heads, -1)).transpose(1, 2) for t in apply(norm(x, f"h.{i}.ln_1"), f"h.{i}.attn.c_attn").chunk(3, -1))
        scores = (q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])).masked_fill(future, -torch.inf)
        x = x + apply((scores.softmax(-1) @ v).transpose(1, 2).flatten(2), f"h.{i}.attn.c_proj")
        x = x + apply(F.gelu(apply(norm(x, f"h.{i}.ln_2"), f"h.{i}.mlp.c_fc")), f"h.{i}.mlp.c_proj")
    logits = linear(norm(x, "ln_f"), w["transformer.wte.weight"])
    return F.cross_entropy(logits.flatten(0, 1), labels.flatten())


def rate(step):
    if step < warm:
        return peak * (step + 1) / (warm + 1)
    share = min(1, (step - warm) / (end - warm))
    return peak / 10 + (peak - peak / 10) * (1 + math.cos(math.pi * share)) / 2


groups = [{"params": [t for t in w.values() if (t.dim() >= 2) == matrices], "weight_decay": 0.1 * matrices} for matrices in (True, False)]
optimizer = torch.optim.AdamW(groups, betas=(0.9, 0.99), eps=1e-8)
losses, norms = [], []
for step in range(steps):
    for group in optimizer.param_groups:
        group["lr"] = rate(step)
    loss = loss_of(xs[step], ys[step])
    optimizer.zero_grad()
    loss.backward()
    norms.append(torch.nn.utils.clip_grad_norm_(w.values(), 1.0).item())
    optimizer.step()
    losses.append(loss.item())
np.save(folder / f"losses.{kind}.npy", np.array(losses))
np.save(folder / f"norms.{kind}.npy", np.array(norms))
for name, tensor in w.items():
    np.save(folder / f"{name}.{kind}.npy", tensor.detach().double().numpy())
