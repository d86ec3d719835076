#!/usr/bin/env python3
"""Which bundled models `trireme simulate` accepts under which strategies.
  simulate_matrix.py TRIREME [--models A,B] [--strategies NAME,...] [--jobs N]

Prints one line for each model and strategy: runs, or the refusal, and then the two totals. The exit status is 1 if a
command ended neither way, for example by a signal.
"""
import argparse
import concurrent.futures
import subprocess
import sys

models = ("mlp lenet5 mnist_cnn alexnet vgg16 resnet20 resnet50 mobilenet_v2 resnet18 unet3d msd vit_b_16 gpt2 llama "
          "bert").split()
strategies = {
    "data_parallel": "data=2",
    "spatial": "h=2",
    "tensor": "tensor=2",
    "one_weird_trick": "data=2",
    "pipeline(micro=2)": "pipe=2",
    "zero(3)": "data=2",
    "accumulate(micro=2)": "data=1",
    "tensor | data_parallel": "data=2,tensor=2",
}


def simulate(trireme, model, strategy):
    """(what the command printed in one line, whether it ended as it should)."""
    words = [trireme, "simulate", model, "--mesh", strategies[strategy], "--strategy", strategy, "--cost", "equal"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=600)
    if done.returncode == 0:
        return "runs", True
    message = done.stderr.strip().removeprefix("trireme: simulate: ").splitlines()
    return (message[-1] if message else f"exit status {done.returncode}"), done.returncode > 0 and len(message) == 1


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trireme")
    parser.add_argument("--models", default=",".join(models))
    parser.add_argument("--strategies", default=",".join(strategies))
    parser.add_argument("--jobs", type=int, default=1)
    words = parser.parse_args()
    cells = [(m, s) for m in words.models.split(",") for s in strategies if s in words.strategies.split(",")]
    ends = []
    with concurrent.futures.ThreadPoolExecutor(words.jobs) as pool:
        for (model, strategy), end in zip(cells, pool.map(lambda cell: simulate(words.trireme, *cell), cells)):
            print(f"{model:<13} {strategy:<23} {end[0]}", flush=True)
            ends.append(end)
    runs = sum(text == "runs" for text, _ in ends)
    print(f"{runs} run, {len(ends) - runs} are refused")
    sys.exit(not all(good for _, good in ends))


if __name__ == "__main__":
    main()
