"""The MNIST CNN in PyTorch: times training steps and prints one JSON line. The counterpart of bench/mnist_step.cpp."""
import argparse
import json
import resource
import time

started = time.time()
import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from torch_nets import MnistCnn  # noqa: E402

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=30)
parser.add_argument("--warmup", type=int, default=5)
parser.add_argument("--batch", type=int, default=128)
parser.add_argument("--threads", type=int, default=0)
parser.add_argument("--channels-last", action="store_true")
parser.add_argument("--compile", action="store_true")
args = parser.parse_args()
if args.threads:
    torch.set_num_threads(args.threads)


def megabytes():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


torch.manual_seed(1)
data = torch.randint(0, 256, (60000, 28, 28), dtype=torch.uint8)   # as large as MNIST: shuffling it costs the same
labels = torch.randint(0, 10, (60000,))
base = megabytes()
net = MnistCnn()
memory_format = torch.channels_last if args.channels_last else torch.contiguous_format
net = net.to(memory_format=memory_format)
model = torch.compile(net) if args.compile else net
optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
order = torch.randperm(60000)
times = []
for i in range(args.steps + args.warmup):
    start = time.perf_counter()
    rows = order[(i * args.batch) % 59000:][:args.batch]
    x = ((data[rows].float() / 255 - 0.1307) / 0.3081).unsqueeze(1).to(memory_format=memory_format)
    optimizer.zero_grad(set_to_none=True)
    loss = F.cross_entropy(model(x), labels[rows])
    loss.backward()
    optimizer.step()
    value = loss.item()
    if i >= args.warmup:
        times.append((time.perf_counter() - start) * 1e3)
times.sort()
print(json.dumps({"median_ms": times[len(times) // 2], "mean_ms": sum(times) / len(times), "min_ms": times[0], "loss": value,
                  "peak_mb": megabytes(), "base_mb": base, "version": torch.__version__}))
