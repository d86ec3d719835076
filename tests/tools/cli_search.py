"""trireme plan search and train --strategy auto as their users meet them.
  cli_search.py TRIREME MPIEXEC|none
"""
import hashlib
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile
import tomllib
import unittest

import unittests

trireme, mpiexec = os.path.abspath(os.environ.get("TRIREME_EXE", sys.argv[1])), sys.argv[2]

cluster = """name = "two nodes"
flops = 1e9
[[nodes]]
count = 2
devices = 4
memory = MEMORY
source = "data sheet"
[links.inside]
latency = 2e-6
bandwidth = 10e9
source = "data sheet"
[links.between]
latency = 8e-6
bandwidth = 1e9
source = "data sheet"
"""


def run(*words, ranks=None, cwd=None):
    launch = [mpiexec, "-n", str(ranks)] if ranks else []
    return subprocess.run([*launch, trireme, *map(str, words)], capture_output=True, text=True, timeout=300, cwd=cwd)


def seconds(number, unit):
    return float(number) * {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1}[unit]


class Folder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.dir = pathlib.Path(folder.name)
        (self.dir / "c.toml").write_text(cluster.replace("MEMORY", "16e9"))

    def refused(self, r, text, status=2):
        self.assertEqual(r.returncode, status, r.stdout + r.stderr)
        self.assertIn(text, r.stderr)
        self.assertEqual(len(r.stderr.strip().splitlines()), 1, r.stderr)


class Search(Folder):
    def search(self, model, ranks, *words):
        """What it prints, and its JSON."""
        r = run("plan", "search", model, "--ranks", ranks, "--json", self.dir / "found.json", *words)
        self.assertEqual(r.returncode, 0, r.stderr)
        return r.stdout, json.loads((self.dir / "found.json").read_text())

    def step_of(self, model, candidate, batch, *words):
        r = run("plan", "simulate", model, "--mesh", candidate["mesh"], "--strategy", candidate["strategy"], "--batch", batch, "--cost", "counted", *words)
        self.assertEqual(r.returncode, 0, r.stderr)
        return seconds(*re.search(r"ranks takes ([\d.e+-]+) (ns|us|ms|s),", r.stdout).groups())

    def test_ranking(self):
        text, found = self.search("mlp", 8, "--cluster", self.dir / "c.toml", "--batch", 256, "--top", 12)
        times = [r["seconds"] for r in found["ranked"]]
        self.assertEqual(times, sorted(times))
        self.assertEqual(len(times), 12)
        for r in found["ranked"]:
            self.assertLessEqual(r["least_seconds"], r["seconds"])
            self.assertIn(f'--mesh {r["mesh"]} --strategy "{r["strategy"]}"', text)
        self.assertTrue(found["best_is_known"])
        self.assertEqual(found["weakest_source"], "assumed")
        self.assertAlmostEqual(found["margin"], times[1] / times[0] - 1)
        self.assertEqual(found["alike"], sum(t <= times[0] * (1 + found["band"]) for t in times))
        self.assertIn(f'margin {100 * found["margin"]:.1f} % to the next, band +-50 % (assumed: costs counted from shapes)', text)
        self.assertIn("counted from shapes, at 1e+09 operations and 1.25e+08 bytes of memory per second; a rank may hold 16.000 GB, as the cluster file says", text)
        self.assertIn("candidates, ", text)

    def test_as_simulated(self):
        for model in ("mlp", "mnist_cnn"):
            _, found = self.search(model, 8, "--cluster", self.dir / "c.toml", "--batch", 256, "--top", 8)
            whole = [r for r in found["ranked"] if "tensor" not in r["strategy"] and "spatial" not in r["strategy"] and "one_weird" not in r["strategy"]]
            for r in whole[:3]:
                with self.subTest(model=model, strategy=r["strategy"]):
                    step = self.step_of(model, r, 256, "--cluster", self.dir / "c.toml")
                    self.assertAlmostEqual(r["seconds"] / step, 1, delta=2e-3)   # as printed

    def test_winner_trains(self):
        for model, words in (("mlp", []), ("mnist_cnn", ["--optim.clip_norm", 1])):
            text, _ = self.search(model, 2, "--batch", 64, *words)
            command = text.strip().splitlines()[-1]
            self.assertTrue(command.startswith(f"trireme train {model} "), command)
            r = run(*shlex.split(command)[1:], "--data", "synthetic", "--data.synthetic_size", 256, "--run.max_steps", 3, "--run.dir", self.dir / model)
            self.assertEqual(r.returncode, 0, r.stderr)
            self.assertIn("after 3 steps", r.stdout)

    def test_run(self):
        if len(os.sched_getaffinity(0)) < 2:
            self.skipTest("one core")
        r = run("plan", "search", "mlp", "--ranks", 2, "--run", "--batch", 64, "--data", "synthetic", "--data.synthetic_size", 256, "--run.max_steps", 3, cwd=self.dir)
        self.assertEqual(r.returncode, 0, r.stderr)
        self.assertIn("after 3 steps", r.stdout)

    def test_memory(self):
        words = ["--cluster", self.dir / "c.toml", "--batch", 256]
        _, free = self.search("mlp", 4, *words)
        least = min(r["memory_bytes"] for r in free["ranked"])
        text, found = self.search("mlp", 4, *words, "--memory", least)
        self.assertTrue(all(r["memory_bytes"] <= least for r in found["ranked"]))
        self.assertGreater(found["left_out"]["memory"], 0)
        self.assertGreaterEqual(found["ranked"][0]["seconds"], free["ranked"][0]["seconds"])
        self.assertRegex(text, r"\d+ not considered: memory")
        for written in ("1kB", "0.001 MB", "1e3"):
            r = run("plan", "search", "mlp", "--ranks", 4, *words, "--memory", written)
            self.refused(r, "--mesh", status=70)
            self.assertRegex(r.stderr, r"--mesh \S+ --strategy \".*\"")
            need, lacks = map(int, re.search(r"(\d+) bytes\D+(\d+)", r.stderr).groups())
            self.assertEqual(need - lacks, 1000)
        (self.dir / "small.toml").write_text(cluster.replace("MEMORY", "1000"))
        self.refused(run("plan", "search", "mlp", "--ranks", 4, "--batch", 256, "--cluster", self.dir / "small.toml"), "--mesh", status=70)

    def test_many_ranks(self):
        text, found = self.search("mlp", 100000, "--batch", 400000, "--top", 3)
        self.assertEqual(len(found["ranked"]), 3)
        self.assertIn("100000 ranks of 100000 devices", text)
        text, found = self.search("mlp", 997, "--batch", 4096, "--top", 3)   # a prime
        self.assertTrue(all(r["mesh"] == "data=997" for r in found["ranked"]))
        text, _ = self.search("mlp", 16, "--batch", 8)
        self.assertIn("fewer samples than ranks", text)

    def test_mesh(self):
        _, found = self.search("mlp", 4, "--mesh", "data=2,pipe=2", "--batch", 64)
        self.assertEqual({r["mesh"] for r in found["ranked"]}, {"data=2,pipe=2"})
        self.refused(run("plan", "search", "mlp", "--mesh", "x=4", "--batch", 64), "x=4")

    def test_hybrid_sharding(self):
        """On two hosts, in a mesh with the axis shard; simulate reports the same time and memory that fits."""
        text, found = self.search("mlp", 8, "--cluster", self.dir / "c.toml", "--batch", 256, "--mesh", "data=2,shard=4", "--memory", "1GB", "--top", 4)
        for r in found["ranked"]:
            self.assertRegex(r["strategy"], r"zero\(3, axis=shard(, reshard=false)?\)")
            step = self.step_of("mlp", r, 256, "--cluster", self.dir / "c.toml")
            self.assertAlmostEqual(r["seconds"] / step, 1, delta=2e-3)
        _, flat = self.search("mlp", 8, "--cluster", self.dir / "c.toml", "--batch", 256, "--mesh", "data=8", "--top", 200)
        three = [r["seconds"] for r in flat["ranked"] if "zero(3" in r["strategy"] and "micro" not in r["strategy"]]
        self.assertLess(found["ranked"][0]["seconds"], min(three))

    def test_sequence(self):
        """Transformers with divided tokens are candidates, and need less memory; other models have none."""
        words = ["--batch", 8, "--mesh", "tensor=2", "--arch.layers", 2, "--arch.width", 32, "--arch.heads", 4, "--top", 100]
        for model in ("gpt2", "vit_b_16"):
            _, found = self.search(model, 2, *words)
            memory = {r["strategy"]: r["memory_bytes"] for r in found["ranked"] if not r["recompute"]}
            self.assertLess(memory["tensor(sequence=true)"], memory["tensor"], memory)
        _, found = self.search("mnist_cnn", 2, "--batch", 64, "--mesh", "tensor=2", "--top", 100)
        self.assertFalse([r for r in found["ranked"] if "sequence" in r["strategy"]])

    def test_costs(self):
        text, found = self.search("mlp", 2, "--cost", "measured", "--batch", 32)
        self.assertIn("costs of parts measured here on one rank", text)
        text, found = self.search("mlp", 2, "--cost", "equal", "--batch", 32)
        self.assertIn("costs of parts all alike", text)

    def test_what_is_said(self):
        text, _ = self.search("mlp", 2, "--batch", 64, "--run.dir", "it's here")
        command = shlex.split(text.strip().splitlines()[-1])
        self.assertEqual(command[command.index("--run.dir") + 1], "it's here")
        self.assertNotIn("jitter", text)
        (self.dir / "jitter.toml").write_text("jitter = 0.1\n" + cluster.replace("MEMORY", "16e9"))
        self.assertIn("jitter 0.1 is not considered; trireme plan simulate considers it\n", self.search("mlp", 4, "--batch", 64, "--cluster", self.dir / "jitter.toml")[0])

    def test_sources(self):
        """Of a machine file's costs on devices that a cluster file describes; of its calls among more ranks than it has measured."""
        machine = self.dir / "machine.toml"
        r = run("bench", "mlp", "--data", "synthetic", "--batch", 16, "--ranks", 2, "--runs", 2, "--machine", machine, cwd=self.dir)
        self.assertEqual(r.returncode, 0, r.stderr)
        sources = {}
        for ranks, more in (2, []), (4, []), (2, ["--cluster", self.dir / "c.toml"]):
            sources[ranks, bool(more)] = self.search("mlp", ranks, "--batch", 16, "--cost", machine, *more)[1]["weakest_source"]
        self.assertEqual(sources, {(2, False): "measured", (4, False): "assumed", (2, True): "data sheet"})

    def test_refusals(self):
        c = ["--cluster", self.dir / "c.toml"]
        for words, text in ((["--ranks", 16, *c], str(self.dir / "c.toml")),
                            (["--ranks", 0], "parallel.ranks"),
                            (["--ranks", 4, "--memory", "much"], "much"),
                            (["--ranks", 4, "--memory", "-1"], "'-1'"),
                            (["--ranks", 4, "--memory", "4XB"], "'4XB'"),
                            (["--ranks", 997, "--batch", 64], "997"),
                            (["--ranks", 4, "--strategy", "data_parallel"], "plan search"),
                            (["--ranks", 4, "--mesh", "data=2"], "data=2"),
                            (["--ranks", 1000, "--run", "--batch", 1000], "1000"),
                            (["--ranks", 4, "--top", 0], "--top"),
                            (["--ranks", 4, "--svg", self.dir / "s.svg"], "svg"),
                            (["--ranks", 4, "--measure"], "measure"),
                            (["--ranks", 4, "--allreduce", "tree"], "parallel.allreduce")):
            with self.subTest(words=words):
                self.refused(run("plan", "search", "mlp", *words), text)
        for words in ["--ranks", 4, "--cost", "none.toml"], ["--cluster", self.dir / "none.toml"]:
            self.refused(run("plan", "search", "mlp", *words), "none.toml", unittests.statuses["file"])
        self.refused(run("plan", "find", "mlp"), "find")
        for words in (["--json", self.dir / "f.json"], ["--top", 3], ["--run"], ["--memory", "1GB"]):
            self.refused(run("plan", "show", "mlp", "--cost", "equal", *words), words[0].strip("-"))


class Auto(Folder):
    words = ["--data", "synthetic", "--data.synthetic_size", 512, "--batch", 64, "--epochs", 1]

    def train(self, name, *words, model="mlp", ranks=None, status=0):
        r = run("train", model, *self.words, "--run.dir", self.dir / name, *([] if ranks else ["--ranks", 2]), *words, ranks=ranks)
        self.assertEqual(r.returncode, status, r.stderr)
        return r

    def settings(self, name):
        return tomllib.loads((self.dir / name / "config.toml").read_text())["parallel"]

    def weights(self, name):
        newest = sorted((self.dir / name / "checkpoints").glob("step_*"))[-1]
        files = sorted(newest.glob("*.safetensors"))
        self.assertTrue(files)
        return [hashlib.sha256(f.read_bytes()).hexdigest() for f in files]

    def check_run(self, ranks):
        r = self.train("auto", "--strategy", "auto", "--run.max_steps", 4, ranks=ranks)
        mesh, strategy = re.search(r"strategy  auto: --mesh (\S+) --strategy \"(.*)\"", r.stderr).groups()
        self.assertRegex(r.stderr, r"predicted step [\d.]+ ms(, of the fastest [\d.]+: the simplest of similar ones is used)?; (margin .*, )?band \+-\d+ % \(")
        kept = self.settings("auto")
        self.assertEqual((kept["mesh"], kept["strategy"]), (mesh, strategy))
        # It goes on with what it has, whether auto is asked for once more or not.
        r = run("train", "--run.dir", self.dir / "auto", "--resume", *([] if ranks else ["--ranks", 2]), "--run.max_steps", 6, ranks=ranks)
        self.assertEqual(r.returncode, 0, r.stderr)
        self.assertNotIn("predicted step", r.stderr)
        r = run("train", "--run.dir", self.dir / "auto", "--resume", "auto", "--strategy", "auto", *([] if ranks else ["--ranks", 2]), ranks=ranks)
        self.assertEqual(r.returncode, 0, r.stderr)
        self.assertIn(f"strategy  auto: the run's own, mesh {mesh}, {strategy}", r.stderr)
        self.assertNotIn("predicted step", r.stderr)
        kept = self.settings("auto")
        self.assertEqual((kept["mesh"], kept["strategy"]), (mesh, strategy))
        self.train("given", "--mesh", mesh, "--strategy", strategy, ranks=ranks)
        self.assertEqual(self.weights("auto"), self.weights("given"))

    def test_threads(self):
        self.check_run(None)

    @unittest.skipIf(mpiexec == "none", "no MPI")
    def test_processes(self):
        self.check_run(2)

    def test_goes_on_otherwise(self):
        """With another mesh that is asked for, and on other ranks, where the run's own does not count."""
        self.train("run", "--strategy", "auto", "--mesh", "pipe=2", "--run.max_steps", 2)
        on = ["train", "--run.dir", self.dir / "run", "--resume", "auto", "--strategy", "auto", "--run.max_steps"]
        for number, (words, mesh, said) in enumerate((([], {"pipe=2"}, "the run's own, mesh pipe=2"), (["--mesh", "data=2"], {"data=2"}, "--mesh data=2"),
                                                      (["--mesh", "", "--ranks", 1], {"data=1"}, "--mesh data=1"))):
            r = run(*on, 4 + 2 * number, *words)
            self.assertEqual(r.returncode, 0, r.stderr)
            self.assertIn("strategy  auto: " + said, r.stderr)
            self.assertIn(self.settings("run")["mesh"], mesh)

    def test_mesh(self):
        self.train("pipe", "--strategy", "auto", "--mesh", "pipe=2", "--run.max_steps", 2)
        self.assertEqual(self.settings("pipe")["mesh"], "pipe=2")
        self.assertTrue(self.settings("pipe")["strategy"].startswith("pipeline("))
        r = run("train", "mlp", *self.words, "--run.dir", self.dir / "shard", "--ranks", 4, "--strategy", "auto", "--mesh", "data=2,shard=2", "--run.max_steps", 2)
        self.assertEqual(r.returncode, 0, r.stderr)
        self.assertRegex(self.settings("shard")["strategy"], r"zero\(3, axis=shard")

    def test_batch_norms(self):
        r = self.train("norms", "--strategy", "auto", "--run.max_steps", 2, "--batch", 16, "--data.synthetic_size", 64, model="resnet20")
        self.assertNotRegex(self.settings("norms")["strategy"], r"micro=([2-9]|1\d)", r.stderr)

    def test_one_rank(self):
        r = run("train", "mlp", *self.words, "--run.dir", self.dir / "one", "--strategy", "auto", "--run.max_steps", 2)
        self.assertEqual(r.returncode, 0, r.stderr)
        self.assertEqual(self.settings("one")["mesh"], "data=1")

    def test_refusals(self):
        for words, text, status in ((["--mesh", "x=2"], "x=2", 2),
                                    (["--virtual", 4], "--cluster", 2),
                                    (["--ranks", 100000], "100000", 2)):
            with self.subTest(words=words):
                r = run("train", "mlp", *self.words, "--run.dir", self.dir / "none", "--strategy", "auto", *words)
                self.refused(r, text, status)
        self.refused(run("plan", "simulate", "mlp", "--ranks", 2, "--strategy", "auto"), "parallel.strategy")


if __name__ == "__main__":
    unittests.main(sys.argv[3:])
