"""ResNet-50 in PyTorch: times training steps or inference on synthetic images and prints one JSON line. The counterpart of
bench/resnet_step.cpp."""
import argparse
import json
import resource
import time

import torch
import torch.nn.functional as F
from torch_nets import resnet50

parser = argparse.ArgumentParser()
parser.add_argument("--mode", default="train")
parser.add_argument("--steps", type=int, default=10)
parser.add_argument("--warmup", type=int, default=2)
parser.add_argument("--batch", type=int, default=16)
parser.add_argument("--size", type=int, default=224)
parser.add_argument("--threads", type=int, default=0)
parser.add_argument("--dtype", default="f32")
parser.add_argument("--channels-last", action="store_true")
parser.add_argument("--compile", action="store_true")
args = parser.parse_args()
if args.threads:
    torch.set_num_threads(args.threads)


def megabytes():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


torch.manual_seed(1)
base = megabytes()
net = resnet50()
memory_format = torch.channels_last if args.channels_last else torch.contiguous_format
net = net.to(memory_format=memory_format)
assert sum(p.numel() for p in net.parameters()) == 25557032
images = torch.randn(args.batch, 3, args.size, args.size).to(memory_format=memory_format)
labels = torch.randint(0, 1000, (args.batch,))
times, value = [], 0.0
if args.mode == "infer":
    net.eval()
    if args.compile:   # freezing folds batch norm into the convolutions
        import torch._inductor.config
        torch._inductor.config.freezing = True
        model = torch.compile(net)
    else:   # the eager way to fold batch norm and to hand conv + ReLU to oneDNN
        with torch.no_grad():
            model = torch.jit.optimize_for_inference(torch.jit.freeze(torch.jit.script(net)))
    with torch.no_grad():
        for i in range(args.warmup + args.steps):
            start = time.perf_counter()
            value = model(images)[0, 0].item()
            if i >= args.warmup:
                times.append((time.perf_counter() - start) * 1e3)
else:
    model = torch.compile(net) if args.compile else net
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4)
    for i in range(args.warmup + args.steps):
        start = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=args.dtype == "bf16"):
            loss = F.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        value = loss.item()
        if i >= args.warmup:
            times.append((time.perf_counter() - start) * 1e3)
times.sort()
print(json.dumps({"median_ms": times[len(times) // 2], "min_ms": times[0], "loss": value, "peak_mb": megabytes(), "base_mb": base,
                  "version": torch.__version__}))
