"""PyTorch on a GPU: times training steps or inference on one batch that stays there and prints one JSON line. The counterpart of
bench/gpu_step.cpp. Eager at its best: channels last, autocast, cudnn.benchmark, fused optimizers; --compile NAME: torch.compile in that mode.
  --same FOLDER: from the weights and the batch that gpu_step left there, prints the losses of --steps steps in f64, and in each of --dtypes
  those of three runs, whose weights differ by less than f32 tells apart."""
import argparse
import contextlib
import copy
import json
import time

import torch
import torch.nn.functional as F
from torch_nets import Gpt, MnistCnn, resnet50

parser = argparse.ArgumentParser()
for name, value in {"model": "resnet50", "mode": "train", "dtype": "bf16", "batch": 256, "steps": 20, "runs": 7, "warmup": 20, "size": 224, "context": 1024,
                    "vocabulary": 50304, "layers": 12, "compile": "", "same": "", "dtypes": "f32,bf16", "device": "cuda"}.items():
    parser.add_argument(f"--{name}", type=type(value), default=value)
args = parser.parse_args()
gpu, device = args.device == "cuda", torch.device(args.device)

torch.manual_seed(1)
torch.backends.cudnn.benchmark = not args.same
torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = args.dtype == "tf32"
halves = {"bf16": torch.bfloat16, "f16": torch.float16}
narrow = halves.get(args.dtype)
text, classes = args.model == "gpt2", 10 if args.model == "mnist_cnn" else 1000


def gpt_name(name):
    """Hugging Face's name of a GPT-2 tensor -> torch_nets.Gpt's."""
    for old, new in {"transformer.": "", "attn.c_attn": "c_attn", "attn.c_proj": "proj", "mlp.": ""}.items():
        name = name.replace(old, new)
    return name


def start_of(folder):
    """The network with the weights there, and the batch."""
    from safetensors.torch import load_file
    weights, batch = load_file(f"{folder}/weights.safetensors"), load_file(f"{folder}/batch.safetensors")
    if text:
        net = Gpt(args.vocabulary, args.context, args.layers)
        turned = {name for name in weights if ".c_" in name and name.endswith("weight")}   # Hugging Face has these as [in, out]
        net.load_state_dict({gpt_name(n): t.T if n in turned else t for n, t in weights.items() if n != "lm_head.weight"})
    else:
        import torchvision
        net = MnistCnn() if args.model == "mnist_cnn" else getattr(torchvision.models, args.model)()
        net.load_state_dict(weights, strict=False)
        missing = [n for n in net.state_dict() if n not in weights and not n.endswith("num_batches_tracked")]
        assert not missing, missing
    return net, batch["x"], batch["y"]


if args.same:
    net, x, y = start_of(args.same)
elif text:
    net = Gpt(args.vocabulary, args.context, args.layers)
    x, y = (torch.randint(0, args.vocabulary, (args.batch, args.context)) for _ in range(2))
else:
    net = MnistCnn() if args.model == "mnist_cnn" else resnet50()
    x = torch.randn((args.batch, 1, 28, 28) if args.model == "mnist_cnn" else (args.batch, 3, args.size, args.size))
    y = torch.randint(0, classes, (args.batch,))
net, x, y = net.to(device), x.to(device), y.to(device)
if not text:
    net, x = net.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)


def autocast(dtype=narrow):
    return torch.autocast(args.device, dtype) if dtype else contextlib.nullcontext()


def optimizer_of(net):
    fused = {"fused": True} if gpu else {}
    if text:
        return torch.optim.AdamW(net.parameters(), lr=6e-4, betas=(0.9, 0.95), weight_decay=0.1, **fused)
    return torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4, **fused)


def losses_from(net, x, y, dtype):
    optimizer, all = optimizer_of(net), []
    for _ in range(args.steps):
        optimizer.zero_grad(set_to_none=True)
        with autocast(dtype):
            loss = net(x, y) if text else F.cross_entropy(net(x), y)
        loss.backward()
        if text:
            torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        all.append(loss.item())
    return all


def all_losses():
    exact = copy.deepcopy(net).double()
    losses = {"f64": losses_from(exact, x if text else x.double(), y, None), "version": torch.__version__}
    for dtype in args.dtypes.split(","):
        losses[dtype] = []
        for run in range(3):
            other = copy.deepcopy(net)
            with torch.no_grad():
                for p in other.parameters() if run else []:
                    p.mul_(1 + 1e-7 * torch.randn_like(p))
            losses[dtype].append(losses_from(other, x, y, halves.get(dtype)))
    return losses


def compiled(f):
    return torch.compile(f, mode=args.compile) if args.compile else f


if args.same:
    print(json.dumps(all_losses()))
    raise SystemExit
if args.mode == "infer":
    # Folded and narrow throughout, which is what serves fastest: no casts at run time.
    net.eval()
    if narrow:
        net, x = net.to(narrow), x.to(narrow)
    model = compiled(net)

    def step():
        with torch.inference_mode():
            return model(x)
else:
    model = compiled(net)
    optimizer = optimizer_of(net)
    scaler = torch.amp.GradScaler("cuda", enabled=gpu and args.dtype == "f16")

    def step():
        optimizer.zero_grad(set_to_none=True)
        with autocast():
            loss = model(x, y) if text else F.cross_entropy(model(x), y)
        scaler.scale(loss).backward()
        if text:
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        return loss.detach()

for _ in range(args.warmup):
    value = step().flatten()[0].item()
if gpu:
    torch.cuda.reset_peak_memory_stats()
times = []
for _ in range(args.runs):
    if gpu:
        torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(args.steps):
        result = step()
    value = result.flatten()[0].item()
    times.append((time.perf_counter() - start) * 1e3 / args.steps)
times.sort()
print(json.dumps({"median_ms": times[len(times) // 2], "min_ms": times[0], "loss": value,
                  "peak_mb": torch.cuda.max_memory_allocated() / 2**20 if gpu else 0, "base_mb": 0, "version": torch.__version__}))
