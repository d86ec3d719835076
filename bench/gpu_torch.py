"""PyTorch on a GPU: times training steps or inference on one batch that stays there and prints one JSON line. The counterpart of
bench/gpu_step.cpp. Eager at its best: channels last, autocast, cudnn.benchmark, fused SGD; --compile NAME: torch.compile in that mode."""
import argparse
import contextlib
import json
import time

import torch
import torch.nn.functional as F
from torch_nets import MnistCnn, resnet50

parser = argparse.ArgumentParser()
parser.add_argument("--model", default="resnet50")
parser.add_argument("--mode", default="train")
parser.add_argument("--dtype", default="bf16")
parser.add_argument("--batch", type=int, default=256)
parser.add_argument("--steps", type=int, default=20)
parser.add_argument("--runs", type=int, default=7)
parser.add_argument("--warmup", type=int, default=20)
parser.add_argument("--size", type=int, default=224)
parser.add_argument("--compile", default="")
args = parser.parse_args()

torch.manual_seed(1)
torch.backends.cudnn.benchmark = True
torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = args.dtype == "tf32"
narrow = {"bf16": torch.bfloat16, "f16": torch.float16}.get(args.dtype)
mnist = args.model == "mnist_cnn"
net = (MnistCnn() if mnist else resnet50()).cuda().to(memory_format=torch.channels_last)
shape = (args.batch, 1, 28, 28) if mnist else (args.batch, 3, args.size, args.size)
images = torch.randn(shape).cuda().to(memory_format=torch.channels_last)
labels = torch.randint(0, 10 if mnist else 1000, (args.batch,)).cuda()


def autocast():
    return torch.autocast("cuda", narrow) if narrow else contextlib.nullcontext()


def compiled(f):
    return torch.compile(f, mode=args.compile) if args.compile else f


if args.mode == "infer":
    # Folded and narrow throughout, which is what serves fastest: no casts at run time.
    net.eval()
    if narrow:
        net, images = net.to(narrow), images.to(narrow)
    model = compiled(net)

    def step():
        with torch.inference_mode():
            return model(images)
else:
    model = compiled(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4, fused=True)
    scaler = torch.amp.GradScaler("cuda", enabled=args.dtype == "f16")

    def step():
        optimizer.zero_grad(set_to_none=True)
        with autocast():
            loss = F.cross_entropy(model(images), labels)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        return loss.detach()

for _ in range(args.warmup):
    value = step().flatten()[0].item()
torch.cuda.reset_peak_memory_stats()
times = []
for _ in range(args.runs):
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(args.steps):
        result = step()
    value = result.flatten()[0].item()
    times.append((time.perf_counter() - start) * 1e3 / args.steps)
times.sort()
print(json.dumps({"median_ms": times[len(times) // 2], "min_ms": times[0], "loss": value,
                  "peak_mb": torch.cuda.max_memory_allocated() / 2**20, "base_mb": 0, "version": torch.__version__}))
