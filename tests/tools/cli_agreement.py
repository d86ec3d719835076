"""trireme plan simulate beside train --virtual: one table of all strategies, with the time of a step by both.
  cli_agreement.py TRIREME [MPIEXEC] Agreement|Reality

Agreement: every strategy, schedule and graph that the tool names. Reality: those that two ranks can run, with the time of a step
predicted from a profile of this machine, and the measured time. Times of this machine are printed and not tested.
"""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import unittests

trireme = os.environ.get("TRIREME_EXE", sys.argv[1])
steps, batch, most = 10, 32, 0.003

# An exchange of mlp's weights takes 21 ms, its step 40 ms on two ranks.
cluster = """flops = 1e9
[[nodes]]
count = 8
devices = 1
[links.between]
latency = 1e-4
bandwidth = 1e8
"""
# By strategy: model, mesh, options. {} takes each word that the tool names.
rows = {
    "serial": [("mlp", "data=1", "")],
    "accumulate": [("mlp", "data=1", "micro=4")],
    "pipeline": [("mlp", "pipe=3", "micro=4, schedule={}")],
    "spatial": [("lenet5", "h=2", ""), ("lenet5", "h=3", ""), ("lenet5", "h=2,w=2", "axes=h+w")],
    "data_parallel": [("mlp", "data=4", ""), ("lenet5", "data=3", "")],
    "tensor": [("mlp", "tensor=2", ""), ("gpt2", "tensor=2", ""), ("gpt2", "tensor=2", "sequence=true")],
    "context": [("gpt2", "context=2", "mode=gather"), ("gpt2", "context=2", "mode=ring, cut=zigzag"), ("gpt2", "context=2", "mode=ulysses")],
    "experts": [("experts", "data=2", "")],
    "place": [("mlp", "tensor=2", "*.weight")],
    "one_weird_trick": [("lenet5", "data=2", "")],
    "zero": [("mlp", "data=4", stage) for stage in "123"],
    "central_storage": [("mlp", "data=4", "")],
    "local_sgd": [("mlp", "data=4", "every=4")],
    "easgd": [("mlp", "data=4", "")],
    "gossip": [("mlp", "data=4", "graph={}"), ("mlp", "data=4", "mode=push_sum"), ("mlp", "data=4", "mode=async"),
               ("mlp", "data=4", "mode=async, graph=random")],
    "parameter_server": [("mlp", "data=4", ""), ("mlp", "data=4", "mode=async"), ("mlp", "data=4", "mode=ssp, staleness=2")],
    "compress": [("mlp", "data=4", "")],
}
# Two small blocks, and tokens enough that a reduction of their weights takes little of a step: in virtual time a layer's call waits for
# a reduction on its link, which simulate lets run beside it.
text = ("--arch.layers", 2, "--arch.heads", 4, "--arch.width", 64, "--arch.hidden", 128, "--arch.positions", 128,
        "--arch.vocabulary", 64, "--arch.dropout", 0)
settings_of = {"gpt2": text, "experts": (*text, "--arch.experts", 4)}
words_of = {"pipeline": ("pipeline(schedule=none)", "pipe=2", "there are: "), "gossip": ("gossip(graph=none)", "data=2", "use one of ")}


def milliseconds(number, unit):
    return float(number) * {"us": 1e-3, "ms": 1, "s": 1e3}[unit]


class Rows(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.dir = pathlib.Path(folder.name)
        (self.dir / "c.toml").write_text(cluster)

    def run_tool(self, *words):
        return subprocess.run([trireme, *map(str, words)], capture_output=True, text=True, timeout=300,
                              env=os.environ | {"OMP_NUM_THREADS": "1"})

    def done(self, *words):
        r = self.run_tool(*words)
        self.assertEqual(r.returncode, 0, r.stderr)
        return r.stdout

    def named(self, strategy):
        text, mesh, before = words_of[strategy]
        message = self.run_tool("plan", "simulate", "mlp", "--mesh", mesh, "--strategy", text).stderr
        return message.split(before)[1].split("\n")[0].split(", ")

    def all_rows(self):
        """(label, model, mesh, strategy) of each row."""
        there = re.search(r"^strategies (.*)$", self.done("info"), re.M).group(1).split()
        self.assertEqual(set(there), set(rows), "each strategy needs a row here")
        for name in there:
            for model, mesh, options in rows.get(name, []):
                for word in self.named(name) if "{}" in options else [""]:
                    text = options.format(word)
                    where = "pipe=2" if word in ("interleaved", "zb-v", "dualpipe-v") else mesh
                    if word == "pipedream":
                        text = text.replace("micro=4", "micro=1")
                    label = f"{name}({text})" if text else name
                    yield label, model, where, label if name != "experts" else f"{label} | data_parallel"

    def words(self, model, batch):
        return ("gpt2" if model == "experts" else model, *settings_of.get(model, ()), "--data", "synthetic", "--batch", batch, "--optim.name", "sgd")

    def times(self, model, mesh, strategy):
        """Milliseconds of a step: simulated, in virtual time."""
        same = (*self.words(model, batch), "--mesh", mesh, "--cluster", self.dir / "c.toml", "--strategy", strategy)
        ranks = 1
        for size in re.findall(r"=(\d+)", mesh):
            ranks *= int(size)
        text = self.done("plan", "simulate", *same, "--cost", "counted", "--steps", steps)
        number, unit = re.search(r"^predicted: .* takes? ([\d.e+-]+) (us|ms|s),", text, re.M).groups()
        simulated = milliseconds(number, unit) / steps
        run = self.dir / "run"
        self.done("train", *same, "--virtual", ranks, "--data.synthetic_size", batch * steps, "--epochs", 1, "--run.dir", run)
        last = json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])
        shutil.rmtree(run)
        return simulated, 1e3 * batch / last["images_per_simulated_second"]

    def compare(self, chosen):
        bad = []
        print(f"{'model':<8} {'mesh':<10} {'strategy':<44} {'simulate ms':>12} {'virtual ms':>12} {'apart':>8}")
        for label, model, mesh, strategy in chosen:
            try:
                simulated, virtual = self.times(model, mesh, strategy)
            except AssertionError as e:
                bad.append(f"{label}: {str(e).strip().splitlines()[-1]}")
                print(f"{model:<8} {mesh:<10} {label:<44} {bad[-1]}", flush=True)
                continue
            apart = simulated / virtual - 1
            print(f"{model:<8} {mesh:<10} {label:<44} {simulated:>12.3f} {virtual:>12.3f} {100 * apart:>+6.2f} %", flush=True)
            if abs(apart) > most:
                bad.append(f"{label}: {100 * apart:+.2f} %")
        self.assertEqual(bad, [])


class Agreement(Rows):
    def test_simulate_and_virtual_time(self):
        self.compare(self.all_rows())


class Reality(Rows):
    def test_two_ranks(self):
        profiles = {}
        print(f"\n{'model':<8} {'mesh':<10} {'strategy':<44} {'predicted ms':>12} {'measured ms':>12} {'apart':>8}   of 100 steps, least to longest")
        rows = []
        for label, model, mesh, strategy in self.all_rows():
            mesh = re.sub(r"^(data|pipe)=[34]$", r"\1=2", mesh)
            if mesh.endswith("=2") and "," not in mesh and (row := (label, model, mesh, strategy)) not in rows:
                rows.append(row)
        for label, model, mesh, strategy in rows:
            same = self.words(model, 32 if model in settings_of else 256)
            if model not in profiles:
                profiles[model] = self.dir / f"{model}.toml"
                self.done("bench", *same, "--ranks", 2, "--rows", "4,8,16,32" if model in settings_of else "32,64,128,256", "--machine", profiles[model])
            layout = (*same, "--mesh", mesh, "--strategy", strategy)
            text = self.done("plan", "simulate", *layout, "--cost", profiles[model], "--steps", steps)
            number, unit = re.search(r"^predicted: .* takes? ([\d.e+-]+) (us|ms|s),", text, re.M).groups()
            predicted = milliseconds(number, unit) / steps
            text = self.done("bench", *layout, "--steps", 100)
            number, unit, low, high = re.search(r"\(median of 100: ([\d.e+-]+) (us|ms|s) \[([\d.]+), ([\d.]+)\]\)", text).groups()
            measured = milliseconds(number, unit)
            print(f"{model:<8} {mesh:<10} {label:<44} {predicted:>12.3f} {measured:>12.3f} {100 * (predicted / measured - 1):>+6.1f} %"
                  f"   {low} to {high}", flush=True)
        self.assertGreater(len(rows), 30)


if __name__ == "__main__":
    unittests.main(sys.argv[3:])
