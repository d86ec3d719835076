#!/usr/bin/env python3
"""Which bundled models `trireme plan simulate` accepts under which strategies.
  simulate_matrix.py TRIREME [--models A,B] [--strategies NAME,...] [--jobs N] [--table | --check FILE]

Prints one line for each model and strategy: runs, or the refusal, and then the two totals. The exit status is 1 if a
command ended neither way, for example by a signal. --table prints the results as a table of Markdown instead. --check
compares them with the table in a document, and fails with the first cell that differs.
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
    words = [trireme, "plan", "simulate", model, "--mesh", strategies[strategy], "--strategy", strategy, "--cost", "equal"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=600)
    if done.returncode == 0:
        return "runs", True
    message = done.stderr.strip().removeprefix("trireme: simulate: ").splitlines()
    return (message[-1] if message else f"exit status {done.returncode}"), done.returncode > 0 and len(message) == 1


def cell(text):
    """The cell of a table: the last part of the reason."""
    return text if text == "runs" else "refused: " + text.split(" (in layer")[0].split(": ")[-1].replace("|", "/")


def table(results):
    """Lines of a table of Markdown from (model, strategy): text."""
    used = [s for s in strategies if any(s == strategy for _, strategy in results)]
    yield "| model | " + " | ".join(s.replace(" | ", " + ") for s in used) + " |"
    yield "| --- |" + " --- |" * len(used)
    for model in dict.fromkeys(model for model, _ in results):
        yield f"| {model} | " + " | ".join(cell(results[model, s]) for s in used) + " |"


def differing(lines, document):
    """The lines that the document lacks."""
    with open(document, encoding="utf-8") as file:
        there = set(file.read().splitlines())
    return [line for line in lines if line not in there]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trireme")
    parser.add_argument("--models", default=",".join(models))
    parser.add_argument("--strategies", default=",".join(strategies))
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--check", metavar="FILE")
    words = parser.parse_args()
    cells = [(m, s) for m in words.models.split(",") for s in strategies if s in words.strategies.split(",")]
    ends, results = [], {}
    with concurrent.futures.ThreadPoolExecutor(words.jobs) as pool:
        for (model, strategy), end in zip(cells, pool.map(lambda cell: simulate(words.trireme, *cell), cells)):
            if not words.table and not words.check:
                print(f"{model:<13} {strategy:<23} {end[0]}", flush=True)
            ends.append(end)
            results[model, strategy] = end[0]
    if words.table:
        print("\n".join(table(results)))
    for line in differing(table(results), words.check) if words.check else []:
        sys.exit(f"{words.check} lacks this line; paste the table that --table prints:\n{line}")
    runs = sum(text == "runs" for text, _ in ends)
    print(f"{runs} run, {len(ends) - runs} are refused")
    sys.exit(not all(good for _, good in ends))


if __name__ == "__main__":
    main()
