"""The rows of tests/framework/cases.cpp over PyTorch in f64. Usage: torch_ops.py FOLDER

cases.txt has a line per case: index, one letter per input (g: wants a gradient, c: constant, l: labels), expression, separated
by tabs. Inputs are <index>.<k>.npy in our layout (channels last; filters O,spatial...,I), the gradient of the result
<index>.dy.npy. Leaves <index>.y.npy and <index>.d<k>.npy.
"""
import sys

try:
    import numpy as np
    import torch
    import torch.nn.functional as F
except ImportError:
    sys.exit(77)

folder = sys.argv[1]
SEED, STEP, SAMPLES = 7, 3, [3 * row + 1 for row in range(64)]  # as in tests/framework/test_ops.cpp


def nchw(x):
    return x.movedim(-1, 1)


def nhwc(x):
    return x.movedim(1, -1)


def pads(begin, end):
    return [n for b, e in zip(reversed(begin), reversed(end)) for n in (b, e)]


def conv(x, w, b=None, stride=1, begin=(), end=(), dilation=1, groups=1):
    f = (F.conv1d, F.conv2d, F.conv3d)[x.dim() - 3]
    return nhwc(f(F.pad(nchw(x), pads(begin, end)), nchw(w), b, stride, 0, dilation, groups))


def max_pool(x, window, stride, begin=(), end=(), dilation=1):
    f = (F.max_pool1d, F.max_pool2d, F.max_pool3d)[len(window) - 1]
    return nhwc(f(F.pad(nchw(x), pads(begin, end), value=-float("inf")), window, stride, 0, dilation))


def avg_pool(x, window, stride, padding=0, count_padding=True):
    f = (F.avg_pool1d, F.avg_pool2d, F.avg_pool3d)[len(window) - 1]
    return nhwc(f(nchw(x), window, stride, padding, count_include_pad=count_padding))


def mixed_scale_dense(x, *layers, dilations):
    for w, b, d in zip(layers[::2], layers[1::2], dilations):
        pad = [d] * (x.dim() - 2)
        x = torch.cat([x, F.relu(conv(x, w, b, begin=pad, end=pad, dilation=d))], -1)
    return x


def conv_transpose(x, w, b=None, **options):
    f = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[x.dim() - 3]
    return nhwc(f(nchw(x), nchw(w), b, **options))


def batch_norm(x, gamma, beta, mean, var, training=True, momentum=0.1):
    return nhwc(F.batch_norm(nchw(x), mean, var, gamma, beta, training, momentum))


def mix(a, b):
    """splitmix64's finaliser."""
    m = (1 << 64) - 1
    x = (a + 0x9E3779B97F4A7C15 * (b + 1)) & m
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & m
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & m
    return x ^ (x >> 31)


def philox(key, high, low):
    """Philox4x32-10 (Salmon et al. 2011)."""
    m = 0xFFFFFFFF
    c, k = [low & m, low >> 32, high & m, high >> 32], [key & m, key >> 32]
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(p1 >> 32) ^ c[1] ^ k[0], p1 & m, (p0 >> 32) ^ c[3] ^ k[1], p0 & m]
        k = [(k[0] + 0x9E3779B9) & m, (k[1] + 0xBB67AE85) & m]
    return c


def dropout(x, p, layer):
    key = mix(mix(SEED, STEP), layer)
    keep = [
        [(philox(key, sample, e // 4)[e % 4] >> 8) * 2.0**-24 >= p for e in range(x[0].numel())]
        for sample in SAMPLES[: len(x)]
    ]
    return x * torch.tensor(keep).reshape(x.shape) / (1 - p)


def alibi_slopes(heads):
    """As the paper's code has them (Press et al., 2108.12409)."""
    power = 2 ** int(np.floor(np.log2(heads)))
    slopes = [2.0 ** (-8 * (h + 1) / power) for h in range(power)]
    return slopes + ([] if power == heads else alibi_slopes(2 * power)[::2][: heads - power])


def attention(q, k, v, causal=False, scale=None, alibi=False, q_at=0, lengths=None, starts=None, p=0, layer=0, window=0, first=None):
    """With the whole matrix of scores. A query that sees no key gets zeros."""
    (n, queries, heads, width), (keys, groups) = q.shape, k.shape[1:3]
    k, v = (t.repeat_interleave(heads // groups, 2) for t in (k, v))
    scores = torch.einsum("nihd,njhd->nhij", q, k) * (scale or width**-0.5)
    position = torch.arange(queries) + q_at + (torch.zeros(n, dtype=torch.long) if starts is None else starts)[:, None]
    distance = torch.arange(keys) - position[:, None, :, None]  # [N, 1, Tq, Tk]
    if alibi:
        scores = scores + torch.tensor(alibi_slopes(heads)).double()[:, None, None] * distance
    seen = distance <= 0 if causal else torch.ones_like(distance, dtype=torch.bool)
    if window:
        seen = seen & (distance > -window)
    if first is not None:
        seen = seen & (torch.arange(keys) >= first[:, None, :, None])
    if lengths is not None:
        seen = seen & (torch.arange(keys) < lengths[:, None])[:, None, None]
    weights = scores.masked_fill(~seen, -1e300).softmax(-1) * seen
    return torch.einsum("nhij,njhd->nihd", dropout(weights, p, layer) if p else weights, v)


def sdpa(q, k, v, causal=False):
    """PyTorch's own, which has been public since 2.0."""
    q, k, v = (t.transpose(1, 2) for t in (q, k.repeat_interleave(q.shape[2] // k.shape[2], 2), v.repeat_interleave(q.shape[2] // v.shape[2], 2)))
    public = getattr(F, "scaled_dot_product_attention", None)
    y = public(q, k, v, is_causal=causal) if public else F._scaled_dot_product_attention(q, k, v, is_causal=causal)[0]
    return y.transpose(1, 2)


def document_starts(ids, separator):
    ends = (ids == separator).long().cumsum(1)
    document = torch.cat((torch.zeros_like(ids[:, :1]), ends[:, :-1]), 1)
    return (document[:, :, None] > document[:, None]).sum(2)


def documents(q, k, v, ids, separator):
    """PyTorch's own, with a mask of the pairs of one document."""
    begins = document_starts(ids, separator)
    mask = (begins[:, :, None] == begins[:, None]).tril()[:, None]
    q, k, v = (t.transpose(1, 2) for t in (q, k.repeat_interleave(q.shape[2] // k.shape[2], 2), v.repeat_interleave(q.shape[2] // v.shape[2], 2)))
    public = getattr(F, "scaled_dot_product_attention", None)
    y = public(q, k, v, attn_mask=mask) if public else F._scaled_dot_product_attention(q, k, v, attn_mask=mask)[0]
    return y.transpose(1, 2)


def rope(x, width=None, base=10000, interleaved=False, positions=None, factor=1, llama3=None):
    """As complex numbers; the scalings as in transformers' modeling_rope_utils.py."""
    width = width or x.shape[-1]
    frequency = 1 / base ** (torch.arange(0, width, 2).double() / width) / factor
    if llama3:
        by, low, high, context = llama3
        length = 2 * np.pi / frequency
        smooth = (context / length - low) / (high - low)
        middle = (1 - smooth) * frequency / by + smooth * frequency
        frequency = torch.where(length > context / low, frequency / by, torch.where(length < context / high, frequency, middle))
    angle = (torch.arange(x.shape[1]) if positions is None else positions)[..., None, None] * frequency
    part, rest = x[..., :width], x[..., width:]
    pairs = part.unflatten(-1, (-1, 2)) if interleaved else part.unflatten(-1, (2, -1)).transpose(-1, -2)
    turned = torch.view_as_real(torch.view_as_complex(pairs.contiguous()) * torch.polar(torch.ones_like(angle), angle))
    return torch.cat([(turned if interleaved else turned.transpose(-1, -2)).flatten(-2), rest], -1)


for line in open(f"{folder}/cases.txt"):
    case, kinds, expression = line.rstrip("\n").split("\t")
    x = [torch.from_numpy(np.load(f"{folder}/{case}.{k}.npy")) for k in range(len(kinds))]
    x = [t.long() if kind == "l" else t.requires_grad_(kind == "g") for t, kind in zip(x, kinds)]
    y = eval(expression)
    np.save(f"{folder}/{case}.y.npy", np.array(y.detach().double(), order="C"))
    wanted = [k for k, kind in enumerate(kinds) if kind == "g"]
    if not wanted or not y.requires_grad:
        continue
    y.backward(torch.from_numpy(np.load(f"{folder}/{case}.dy.npy")))
    for k in wanted:
        np.save(f"{folder}/{case}.d{k}.npy", np.array(x[k].grad, order="C"))
