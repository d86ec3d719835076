"""trireme plan simulate as its users meet it: one mesh, sweeps over ranks, what is said of the numbers.
  cli_simulate.py TRIREME [MPIEXEC]
"""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree

import unittests

trireme = os.environ.get("TRIREME_EXE", sys.argv[1])


def run(*words):
    return subprocess.run([trireme, *map(str, words)], capture_output=True, text=True, timeout=300)


class Simulate(unittest.TestCase):
    cluster = """name = "two kinds"
[[nodes]]
count = 1024
devices = 8
[[nodes]]
count = 1024
devices = 8
speed = 0.5
[links.inside]
latency = 2e-6
bandwidth = 300e9
[links.between]
latency = 8e-6
bandwidth = 25e9
"""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.dir = pathlib.Path(folder.name)
        (self.dir / "c.toml").write_text(self.cluster)

    def simulate(self, *words):
        r = run("plan", "simulate", "mlp", *words)
        self.assertEqual(r.returncode, 0, r.stderr)
        return r.stdout

    def seconds(self, text):
        number, unit = re.search(r"takes ([\d.e+-]+) (us|ms|s),", text).groups()
        return float(number) * {"us": 1e-6, "ms": 1e-3, "s": 1}[unit]

    def test_this_machine(self):
        text = self.simulate("--batch", 16)
        for part in ("machines like this one: 1 node of", "measured here on one rank", "a step of 16 samples on 1 ranks takes", "MB per rank", "F forward"):
            self.assertIn(part, text)

    def test_cluster(self):
        words = ["--mesh", "data=64,pipe=4,tensor=64", "--strategy", "pipeline(micro=16) | data_parallel", "--batch", 16384, "--cost", "equal",
                 "--cluster", self.dir / "c.toml"]
        svg, html, trace = (self.dir / f"s.{kind}" for kind in ("svg", "html", "json"))
        text = self.simulate(*words, "--svg", svg, "--html", html, "--trace", trace)
        for part in ("two kinds: 1024 nodes of 8 devices, 1024 nodes of 8 devices of speed 0.5", "a step of 16384 samples on 16384 ranks takes", "stage 3 ",
                     "data+pipe+tensor"):
            self.assertIn(part, text)
        self.assertEqual(len(re.findall(r"^stage \d +pipe +[\d.]+ u?m?s +\d+ +[\d.]+ u?m?s +[\d.]+ %$", text, re.M)), 4)
        xml.etree.ElementTree.parse(svg)
        self.assertIn("<svg", html.read_text())
        self.assertTrue(json.loads(trace.read_text())["traceEvents"])
        # On devices of half the speed alone everything takes longer.
        (self.dir / "slow.toml").write_text(self.cluster.replace("devices = 8\n[[", "devices = 8\nspeed = 0.5\n[["))
        slow = self.simulate(*words[:-1], self.dir / "slow.toml")
        self.assertGreater(self.seconds(slow), 0.99 * self.seconds(text))

    def test_rows_that_do_not_divide(self):
        text = self.simulate("--mesh", "data=3", "--batch", 16, "--cost", "equal")
        self.assertIn("a step of 16 samples on 3 ranks takes", text)

    def test_what_layers_send(self):
        """Batch norm's sums over a slow link, in one step and in a sweep; on one rank there are none."""
        (self.dir / "slow.toml").write_text("[[nodes]]\ndevices = 4\n[links.inside]\nlatency = 1.0\nbandwidth = inf\n[collectives]\ndoubling = 0\nhalving = 0\n")
        def simulate(scope, *words):
            r = run("plan", "simulate", "resnet20", "--data", "synthetic", "--data.image_size", 8, "--batch", 8, "--cost", "equal", "--cluster", self.dir / "slow.toml", *words,
                    "--parallel.norm_scope", scope)
            self.assertEqual(r.returncode, 0, r.stderr)
            return r.stdout
        norms = 19 * (1 + 2)   # seconds: two ranks gather forward, and sum backward
        self.assertGreaterEqual(self.seconds(simulate("global", "--mesh", "data=2")) - self.seconds(simulate("local", "--mesh", "data=2")), 0.99 * norms)
        for calls in "21 all_gathers", "21 all_reduces":
            self.assertIn(f"batch norm statistics: {calls} over 2 ranks of data by ring", simulate("global", "--mesh", "data=2"))
        self.assertNotIn("batch norm statistics", simulate("local", "--mesh", "data=2"))
        one, two = (re.findall(r"^ +[12] .*$", simulate(scope, "--mesh", "data=1", "--sweep", "ranks=1,2"), re.M) for scope in ("global", "local"))
        self.assertEqual(one[0], two[0])
        self.assertNotEqual(one[1], two[1])
        r = run("plan", "show", "resnet20", "--data", "synthetic", "--data.image_size", 8, "--batch", 8, "--cost", "equal", "--mesh", "data=2")
        planned = re.search(r"^all +data +\d+ +(\d+)$", r.stdout, re.M)[1]
        self.assertRegex(simulate("global", "--mesh", "data=2"), rf"(?m)^all +data +[\d.]+ u?m?s +{planned} +[\d.]+ u?m?s +[\d.]+ %$")

    def test_phases_of_some_steps(self):
        """The looks at all gradients are not of the step shown: that is told, with what they take and send."""
        words = ["--mesh", "data=2", "--batch", 8, "--cost", "equal"]
        text = self.simulate(*words)
        self.assertRegex(text, r"the step shown is without .* \(every \d+ steps.*\)\n")
        self.assertRegex(text, r"\na step with .* \(every \d+ steps.*\) takes [\d.]+ ")
        self.assertIn("the step shown is without", run("plan", "show", "mlp", *words).stdout)
        divided = run("plan", "show", "mlp", "--mesh", "data=2", "--batch", 8, "--cost", "equal", "--strategy", "data_parallel | zero(2)").stdout
        self.assertRegex(divided, r"(?m)^  .* \(every \d+ steps.*\) +data +\d+ +[1-9]\d*$")

    def test_steps(self):
        """Stages of a pipeline get ahead of each other; looks at all gradients are counted."""
        words = ["--mesh", "pipe=2", "--strategy", "pipeline(micro=4)", "--batch", 8, "--cost", "equal"]
        one, text = self.seconds(self.simulate(*words)), self.simulate(*words, "--steps", 5)
        self.assertIn("predicted: 5 steps of 8 samples on 2 ranks take ", text)
        self.assertLessEqual(float(re.search(r"take [\d.]+ ms, ([\d.]+) ms each, [\d.]+ samples per second", text)[1]), 1.001e3 * one)
        self.assertRegex(text, r"\n0 of the steps shown are with check gradients \(every \d+ steps\)\n")
        rows = [line.split() for line in self.simulate("--mesh", "data=1", "--cost", "equal", "--sweep", "ranks=1,2", "--steps", 3).splitlines() if re.match(r" +\d", line)]
        self.assertEqual([row[0] for row in rows], ["1", "2"])

    def test_sweep(self):
        svg, html = self.dir / "s.svg", self.dir / "s.html"
        text = self.simulate("--mesh", "data=1", "--batch", 8, "--cost", "equal", "--cluster", self.dir / "c.toml", "--sweep", "ranks=1,8,64,16384", "--svg", svg,
                             "--html", html)
        rows = [line.split() for line in text.splitlines() if re.match(r" +\d", line)]
        self.assertEqual([(row[0], row[1]) for row in rows], [("1", "8"), ("8", "64"), ("64", "512"), ("16384", "131072")])
        self.assertEqual(rows[0][7:9], ["100.0", "%"])
        self.assertEqual([float(row[7]) for row in rows], sorted((float(row[7]) for row in rows), reverse=True))
        xml.etree.ElementTree.parse(svg)
        for part in ("samples per second", "in proportion", "16.4k, "):
            self.assertIn(part, svg.read_text())
        self.assertIn("100.0 %", html.read_text())

    def test_collectives_by_messages(self):
        (self.dir / "shared.toml").write_text(self.cluster.replace("count = 1024", "count = 2").replace("speed = 0.5", "speed = 1.0").replace("25e9", "1e8") + "oversubscription = 8\n")
        words = ("--cluster", self.dir / "shared.toml", "--mesh", "data=32", "--batch", 32, "--cost", "equal")
        formula, ring, tree = (self.seconds(self.simulate(*words, *more)) for more in
                               ((), ("--collectives", "messages"), ("--collectives", "messages", "--allreduce", "tree")))
        self.assertLess(ring, formula)   # a ring leaves each node once: nobody shares the way out
        self.assertNotEqual(ring, tree)
        self.assertIn("collectives simulated message by message, all-reduces by ring", self.simulate(*words, "--collectives", "messages"))
        self.assertIn("collectives simulated message by message, all-reduces by tree", self.simulate(*words, "--collectives", "messages", "--allreduce", "tree", "--sweep", "ranks=4"))
        r = run("plan", "simulate", "mlp", "--cluster", self.dir / "c.toml", "--mesh", "data=512", "--batch", 512, "--cost", "equal", "--collectives", "messages")
        self.assertNotEqual(r.returncode, 0)
        self.assertIn("up to 256 ranks, the mesh has 512", r.stderr)

    def test_sizes_choose_algorithms(self):
        """Batch norms' calls and sums of losses, too; the longest calls are named; a table of the file overrides."""
        words = ("plan", "simulate", "resnet18", "--mesh", "data=64", "--batch", 64, "--cost", "counted")
        def step(more):
            (self.dir / "c.toml").write_text("flops = 1e14\nmemory_bandwidth = 2e12\n" + self.cluster + more)
            r = run(*words, "--cluster", self.dir / "c.toml")
            self.assertEqual(r.returncode, 0, r.stderr)
            self.assertRegex(r.stdout, r"batch norm statistics: \d+ \w+s over 64 ranks of data by [\w ]+, [\d.]+ ms, [\d.]+ % of the step")
            shares = re.search(r"^time of all: (.*)$", r.stdout, re.M).group(1)
            self.assertAlmostEqual(sum(map(float, re.findall(r"([\d.]+) %", shares))), 100, delta=0.3)
            return self.seconds(r.stdout), r.stdout
        usual, rings, doubling = step(""), step("[collectives]\ndoubling = 0\nhalving = 0\n"), step("[collectives]\nhalving = 1000000000\n")
        self.assertLess(usual[0], rings[0])
        self.assertLess(doubling[0], usual[0])
        self.assertIn("64 ranks of data by ring", rings[1])
        self.assertIn("64 ranks of data by halving and doubling", doubling[1])

    def test_a_bandwidth_of_nothing(self):
        for value, words in (("0", "bandwidth"), ("-1.0", "bandwidth"), ("inf", "")):
            (self.dir / "c.toml").write_text(self.cluster.replace("300e9", value))
            r = run("plan", "simulate", "mlp", "--cluster", self.dir / "c.toml", "--mesh", "data=2", "--cost", "equal")
            self.assertEqual(r.returncode, unittests.statuses["usage"] if words else 0, r.stderr)
            self.assertIn(words and "links.inside.bandwidth", r.stderr)

    def test_jitter_of_many_ranks(self):
        (self.dir / "jitter.toml").write_text("jitter = 0.05\n" + self.cluster)
        (self.dir / "alike.toml").write_text(self.cluster.replace("speed = 0.5", "speed = 1.0"))
        (self.dir / "both.toml").write_text("jitter = 0.05\n" + self.cluster.replace("speed = 0.5", "speed = 1.0"))
        words = ("--mesh", "data=4096", "--batch", 4096, "--cost", "equal")
        calm, all_jitter = (self.simulate("--cluster", self.dir / name, *words) for name in ("alike.toml", "both.toml"))
        self.assertIn("jitter 0.05: not sampled; ranks that wait for each other take the expected maximum of up to 4096", all_jitter)
        self.assertNotIn("jitter", calm)
        self.assertLess(self.seconds(calm), self.seconds(all_jitter))
        self.assertNotIn("not drawn", self.simulate("--cluster", self.dir / "jitter.toml", "--mesh", "data=256", "--batch", 256, "--cost", "equal"))
        sweep = self.simulate("--cluster", self.dir / "both.toml", "--mesh", "data=1", "--batch", 1, "--cost", "equal", "--sweep", "ranks=256,4096")
        self.assertEqual(re.findall(r"(?m)^(\d+) ranks: jitter is not sampled", sweep), ["4096"])

    def test_clusters_that_ship(self):
        self.assertIn("DGX A100 SuperPOD: 140 nodes of 8 devices", self.simulate("--cluster", "dgx_a100", "--mesh", "data=64", "--batch", 64, "--cost", "counted"))
        r = run("plan", "simulate", "mlp", "--cluster", "dgx", "--mesh", "data=64")
        self.assertNotEqual(r.returncode, 0)
        self.assertIn("there is no 'dgx'", r.stderr)
        self.assertIn("aws_p4d, dgx_a100, dgx_h100, gigabit_ethernet, summit, tpu_v3", r.stderr)

    def test_refusals(self):
        (self.dir / "bad.toml").write_text(self.cluster.replace("speed = 0.5", "speed = 0"))
        (self.dir / "small.toml").write_text("name = \"small\"\n[[nodes]]\ndevices = 1\n")
        def table(text):
            (self.dir / f"{len(list(self.dir.iterdir()))}.csv").write_text(text)
            return ["--sweep", "ranks=1,2", "--measured", max(self.dir.glob("*.csv"), key=lambda p: int(p.stem))]
        for words, text in ((["--cluster", self.dir / "bad.toml"], "bad.toml:8: nodes.speed is 0, it must be at least"),
                            (["--cluster", self.dir / "none.toml"], "none.toml cannot be read"),
                            (["--cluster", self.dir / "small.toml", "--ranks", 2], "mesh data=2: 2 ranks on a cluster of 1 devices (small: 1 node of 1 device); use a smaller mesh, or add nodes"),
                            (["--cluster", self.dir / "small.toml", "--sweep", "ranks=1,2"], "mesh data=2: 2 ranks on a cluster of 1 devices"),
                            (["--sweep", "ranks=1,3", "--scaling", "strong"],
                             "a batch of 4 among 3 ranks (mesh data=3) in 1 micro-batch cannot be divided; use a multiple of 3 as --batch"),
                            (["--sweep", "ranks=1,8", "--scaling", "strong"], "a batch of 4 among 8 ranks (mesh data=8) in 1 micro-batch leaves ranks without a row"),
                            (["--scaling", "strong"], "--scaling requires --sweep"), (["--sweep", "ranks=1", "--scaling", "all"], "--scaling"),
                            (["--sweep", "ranks=1", "--trace", "t.json"], " excludes "),
                            (["--measured", "x.csv"], "--measured requires --sweep"), (["--sweep", "ranks=1", "--measured", "none.csv"], "none.csv cannot be read"),
                            (table("1,0.5\n"), ".csv:1: the first row must name the columns, ranks and seconds among them"),
                            (table("ranks,seconds\n2,0.5,7\n"), ".csv:2: 3 fields, where the first row names 2"),
                            (table("ranks,seconds\n2,fast\n"), ".csv:2: seconds is 'fast', it must be a number, at least"),
                            (table("ranks,seconds\n0,0.5\n"), ".csv:2: ranks is '0'"), (table('{"ranks": 2}\n'), ".csv:1: seconds is missing"),
                            (table('{"ranks": 2\n'), ".csv:1: this is no JSON object"), (table("ranks,seconds\n"), ".csv holds no measurements"),
                            (table("ranks,seconds,scaling\n1,2,both\n"), "scaling is 'both': weak or strong"),
                            (table("ranks,seconds,evidence\n1,2,guessed\n"), "evidence is 'guessed': real or emulated"),
                            (table("ranks,seconds\n2,1\n2,3\n"), "--measured: steps on 2 ranks are there twice (1 s and 3 s)"),
                            ([*table("ranks,seconds\n1,2\n"), "--scaling", "both"], "a column scaling with weak or strong"),
                            (["--sweep", "ranks=1", "--measured", self.dir], "no study"),
                            (["--sweep", "ranks=1,x"], "expected for example ranks=1,2,4,8"), (["--sweep", "1,2"], "expected for example"),
                            (["--sweep", "ranks=2147483647"], "1 to 16777216 ranks"), (["--sweep", "ranks=99999999999"], "1 to 16777216 ranks"),
                            (["--allreduce", "ring"], "parallel.allreduce is ring; simulate takes the algorithms of the cluster file"), (["--sweep", "ranks="], "expected for example"),
                            (["--mesh", "pipe=2,data=1", "--strategy", "pipeline", "--sweep", "ranks=3"], "3 ranks are no multiple of the 2"),
                            (["--mesh", "pipe=2", "--strategy", "pipeline", "--sweep", "ranks=2"], "axis data"), (["--cost", "free"], "cost"), (["--steps", 0], "steps")):
            r = run("plan", "simulate", "mlp", "--batch", 4, *words)
            kind = "file" if re.search("cannot be read|no study", text) else "data" if re.match(r"\.csv[: ]|scaling is|evidence is", text) else "usage"
            self.assertEqual(r.returncode, unittests.statuses[kind], words)
            self.assertIn(text, r.stderr, words)
            self.assertEqual(len(r.stderr.strip().splitlines()), 1, r.stderr)
            self.assertLess(len(r.stderr), 600)   # no limit of a type with its 309 digits


class Numbers(unittest.TestCase):
    """What can be computed by hand: four parts of 10 us a row in each of forward and backward's halves, 1 ms between steps."""
    parts, between = 4 * 3 * 1e-5, 1e-3

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.dir = pathlib.Path(folder.name)
        machine = """jitter = 0
load = [0, 0]
checkpoint = [0, 0]
fresh = [0, 0]
vector_op = [0, 0]
[[calls]]
kind = "all_reduce"
ranks = 2
bytes = [8, 1000000000]
seconds = [1e-4, 1e-4]
[[calls]]
kind = "send"
ranks = 2
bytes = [8, 1000000000]
seconds = [1e-4, 1e-4]
[[models]]
model = "mlp"
ranks = 1
threads = 1
parameters = 535818
optimizer = "adam"
update = [0, 0]
parts = ["0", "1-2", "3-4", "5"]
arch = []
"""
        for rows in 1, 64:
            machine += f"""[[models.sizes]]
rows = {rows}
step_forward = [{4e-5 * rows}, 0]
step_backward = [{8e-5 * rows}, 0]
loss = [0, 0]
between = [1e-3, 0]
saved = [0, 0, 0, 0]
output = [0, 0, 0, 0]
""" + "".join(f"{name} = {[1e-5 * rows] * 4}\n" for name in ("forward", "input", "weight"))
        (self.dir / "machine.toml").write_text(machine)

    def simulate(self, *words, cost=None):
        r = run("plan", "simulate", "mlp", "--cost", cost or self.dir / "machine.toml", *words)
        self.assertEqual(r.returncode, 0, r.stderr)
        return r.stdout

    def cluster(self, text, name="c.toml"):
        (self.dir / name).write_text(text)
        return ["--cluster", self.dir / name]

    def free(self, devices):
        return self.cluster(f"source = \"measured\"\n[[nodes]]\ndevices = {devices}\n[links.inside]\nlatency = 0\nbandwidth = inf\n")

    def rows(self, text):
        """By ranks: batch, step in seconds, band, samples per second, speed-up, per rank, ...; the last word is the evidence."""
        units = {"us": 1e-6, "ms": 1e-3, "s": 1}
        table = {}
        for line in text.splitlines():
            if not re.match(r" +\d+ +\d+ ", line):
                continue
            words = line.replace(" %", "").split()
            seconds = [float(n) * units[unit] for n, unit in re.findall(r"([\d.]+) (us|ms|s)\b", line)]
            table[int(words[0])] = {"batch": int(words[1]), "step": seconds[0], "band": float(words[4]), "rate": float(words[5]), "speedup": float(words[6]),
                                    "per_rank": float(words[7]), "amdahl": float(words[8]), "exposed": seconds[1], "evidence": words[-1], "line": line}
        return table

    def test_efficiency(self):
        # Four equal parts in two stages: m of m + 1 time slots are filled.
        for micro in 1, 4, 8:
            text = self.simulate("--mesh", "pipe=2", "--strategy", f"pipeline(micro={micro})", "--batch", 8, cost="equal")
            self.assertIn(f"efficiency {100 * micro / (micro + 1):.1f} %", text)
            self.assertIn(f"bubble {100 / micro:.1f} %", text)
            self.assertIn("exposed communication", text)
        self.assertIn("efficiency 100.0 %", self.simulate("--mesh", "data=2", "--batch", 8, cost="equal"))
        # Ranks that divide layers compute no less than they would of whole ones: that each reads fewer weights is no gain where all parts cost alike.
        got = run("plan", "simulate", "resnet18", "--data", "synthetic", "--data.image_size", 32, "--batch", 8, "--mesh", "data=8", "--strategy", "one_weird_trick", "--cost", "equal")
        self.assertLessEqual(float(re.search(r"(?m)^efficiency ([\d.]+) %", got.stdout)[1]), 100)
        # All ranks wait for the one of half the speed: two halves of the work on 1.5 devices in the time of 2.
        two = self.cluster("[[nodes]]\ndevices = 1\n[[nodes]]\ndevices = 1\nspeed = 0.5\n[links.between]\nlatency = 0\nbandwidth = inf\n")
        self.assertIn(f"efficiency {100 / 1.5:.1f} %", self.simulate("--mesh", "data=2", "--batch", 8, *two, cost="equal"))
        # What is between steps is not shared.
        text = self.simulate("--mesh", "data=8", "--batch", 64, *self.free(8))
        alone = 64 * self.parts + self.between
        self.assertIn(f"efficiency {100 * alone / 8 / (8 * self.parts + self.between):.1f} %", text)

    def test_strong_scaling(self):
        text = self.simulate("--mesh", "data=1", "--batch", 64, "--sweep", "ranks=8,1,2,4,2", "--scaling", "strong", *self.free(8))
        rows = self.rows(text)
        self.assertEqual(sorted(rows), [1, 2, 4, 8])
        one = 64 * self.parts + self.between
        for ranks, row in rows.items():
            step = 64 // ranks * self.parts + self.between
            self.assertEqual(row["batch"], 64)
            self.assertAlmostEqual(row["step"], step, delta=1e-3 * step)
            self.assertAlmostEqual(row["rate"], 64 / step, delta=0.1)
            self.assertAlmostEqual(row["speedup"], one / step, delta=0.006)
            self.assertAlmostEqual(row["amdahl"], one / step, delta=0.006)
            self.assertAlmostEqual(row["per_rank"], 100 * one / step / ranks, delta=0.06)
            self.assertEqual(row["evidence"], "simulated")
            self.assertEqual(row["band"], 10)
        self.assertIn(f" of a step are not divided, {100 * self.between / one:.2f} % of one rank's; it is at most {one / self.between:.2f} times as fast", text)

    def test_communication_is_below_amdahl(self):
        slow = self.cluster("source = \"measured\"\n[[nodes]]\ndevices = 16\n[links.inside]\nlatency = 1e-4\nbandwidth = inf\nsource = \"data sheet\"\n[collectives]\ndoubling = 0\nhalving = 0\n")
        rows = self.rows(self.simulate("--mesh", "data=1", "--batch", 64, "--sweep", "ranks=1,4,16", "--scaling", "strong", "--strategy",
                                       "data_parallel(overlap=false)", *slow))
        one = 64 * self.parts + self.between
        self.assertEqual(rows[1]["exposed"], 0)
        self.assertEqual([row["band"] for row in rows.values()], [10, 20, 20])
        for ranks in 4, 16:
            row = rows[ranks]
            free = 64 // ranks * self.parts + self.between
            self.assertAlmostEqual(row["amdahl"], one / free, delta=0.006)
            self.assertLess(row["speedup"], row["amdahl"])
            self.assertAlmostEqual(row["step"] - free, row["exposed"], delta=2e-3 * row["step"])   # nothing of it is hidden
            # Ring all-reduces take 2 (ranks - 1) latencies: that of the gradients, and of that of the loss what backward does not hide.
            ring, backward = 2 * (ranks - 1) * 1e-4, 64 // ranks * 8e-5
            self.assertAlmostEqual(row["exposed"], ring + max(0, ring - backward), delta=1e-3 * row["step"])

    def test_weak_scaling(self):
        text = self.simulate("--mesh", "data=1", "--batch", 64, "--sweep", "ranks=1,8", *self.free(8))
        one = 64 * self.parts + self.between
        rows = self.rows(text)
        self.assertEqual([row["batch"] for row in rows.values()], [64, 512])
        self.assertAlmostEqual(rows[8]["speedup"], 8)
        share = self.between / one
        self.assertIn(f"(CACM 31, 1988): {100 * share:.2f} % of a rank's step do not grow with its rows, so that 8 ranks are at most {8 - 7 * share:.2f} times", text)
        both = self.simulate("--mesh", "data=1", "--batch", 64, "--sweep", "ranks=1,8", "--scaling", "both", *self.free(8))
        for part in ("\nweak scaling: 64 rows per micro-batch and rank\n", "\nstrong scaling: a batch of 64 shared by all ranks\n", "Amdahl's limit (AFIPS 1967)"):
            self.assertIn(part, both)

    def test_extrapolated(self):
        """Beyond the ranks and rows that were measured, and over links that are assumed; said in the table, with the band, and in the picture."""
        svg = self.dir / "s.svg"
        text = self.simulate("--mesh", "data=1", "--batch", 64, "--sweep", "ranks=1,2,4", "--svg", svg)
        rows = self.rows(text)
        self.assertEqual([row["evidence"] for row in rows.values()], ["simulated", "simulated", "extrapolated"])
        self.assertEqual([row["band"] for row in rows.values()], [10, 10, 50])
        self.assertIn("extrapolated from 4 ranks: calls were measured among 2 ranks at most\n", text)
        for part in ("simulated", "extrapolated", "predicted, with its error band", "in proportion"):
            self.assertIn(f">{part}</text>", svg.read_text())
        text = self.simulate("--mesh", "data=1", "--batch", 128, "--sweep", "ranks=1")
        self.assertIn("machine.toml was measured with other numbers of rows", text)
        assumed = self.cluster("[[nodes]]\ndevices = 2\n[links.inside]\nlatency = 1e-6\nbandwidth = 1e9\n")
        text = self.simulate("--mesh", "data=2", "--batch", 64, *assumed)
        for part in ("  links inside nodes     assumed\n", "weakest source: assumed; predicted times may be off by 50 %\n", "extrapolated: devices of speed 1 are assumed; links inside nodes are assumed\n"):
            self.assertIn(part, text)
        text = self.simulate("--mesh", "data=2", "--batch", 64)
        self.assertIn("weakest source: measured; predicted times may be off by 10 %\n", text)
        self.assertNotIn("extrapolated", text)

    def test_links_that_ranks_have(self):
        """Dealt in turn the last rank may lie beside the first; the first node may have a single device."""
        def links(placement, devices):
            nodes = "".join(f"[[nodes]]\ndevices = {n}\n" for n in devices)
            c = self.cluster(f"placement = \"{placement}\"\n{nodes}[links.inside]\nlatency = 0\nbandwidth = inf\n[links.between]\nlatency = 0\nbandwidth = inf\n")
            return re.findall(r"(?m)^  links (inside|between) nodes", self.simulate("--mesh", "data=3", "--batch", 12, *c, cost="equal"))
        self.assertEqual(links("block", (4,)), ["inside"])
        self.assertEqual(links("block", (1, 4)), ["inside", "between"])
        self.assertEqual(links("block", (1, 1, 1)), ["between"])
        self.assertEqual(links("cyclic", (2, 2)), ["inside", "between"])

    def test_measured_beside_simulated(self):
        svg, csv, lines = self.dir / "s.svg", self.dir / "m.csv", self.dir / "m.jsonl"
        words = ["--mesh", "data=1", "--batch", 64, "--sweep", "ranks=1,2,8", "--scaling", "strong", *self.free(8), "--svg", svg, "--measured"]
        one, two = (64 // ranks * self.parts + self.between for ranks in (1, 2))
        csv.write_text(f"# by hand\nranks,seconds,batch\n1,{one / 1.25},64\n2,{two},\n4,1,\n8,1,32\n")
        text = self.simulate(*words, csv)
        rows = self.rows(text)
        self.assertRegex(rows[1]["line"], r" real +\+25\.0 %  simulated$")
        self.assertRegex(rows[2]["line"], r" real +[+-]0\.0 %  simulated$")
        self.assertRegex(rows[8]["line"], r" - +-  simulated$")
        for part in ("measured on 4 ranks, which --sweep does not have: left out\n", "measured on 8 ranks with a batch of 32, not 64: left out\n"):
            self.assertIn(part, text)
        for part in ("real", "simulated", "measured", "Amdahl's limit"):
            self.assertIn(f">{part}</text>", svg.read_text())
        lines.write_text(f'{{"ranks": 2, "seconds": {two / 2}, "scaling": "strong", "evidence": "emulated"}}\n{{"ranks": 1, "seconds": 1, "scaling": "weak"}}\n')
        rows = self.rows(self.simulate(*words, lines))
        self.assertRegex(rows[2]["line"], r" emulated +\+100\.0 %  simulated$")
        self.assertRegex(rows[1]["line"], r" - +-  simulated$")
        both = self.simulate(*words[:-1][:6], "--scaling", "both", *self.free(8), "--measured", lines, "--svg", svg)
        self.assertEqual(both.count(" emulated "), 1)
        self.assertEqual(both.count(" real "), 1)
        self.assertEqual(len(xml.etree.ElementTree.parse(svg).getroot().findall("{*}svg")), 2)

    def test_counted(self):
        """Of devices twice as fast half the time; a guess, and called so."""
        def step(flops):
            c = self.cluster(f"flops = {flops}\n[[nodes]]\ndevices = 1\n")
            text = self.simulate("--batch", 64, *c, cost="counted")
            self.assertIn(f"costs of layers        assumed, counted from shapes, at {flops:.3g} operations and {flops / 8:.3g} bytes of memory per second", text)
            self.assertIn("weakest source: assumed", text)
            number, unit = re.search(r"takes ([\d.]+) (us|ms|s),", text).groups()
            return float(number) * {"us": 1e-6, "ms": 1e-3, "s": 1}[unit]
        self.assertAlmostEqual(step(1e9) / step(2e9), 2, delta=0.01)

    def test_split_layers(self):
        """A rank has its share of the weights and of the operations, and waits for others'."""
        whole, half, quarter = (self.simulate("--mesh", f"tensor={ranks}", "--strategy", "tensor", "--batch", 256, cost="counted") for ranks in (1, 2, 4))
        steps = [float(re.search(r"takes ([\d.]+) ms,", text)[1]) for text in (whole, half, quarter)]
        for ranks, step in zip((2, 4), steps[1:]):
            self.assertGreaterEqual(step, steps[0] / ranks)
            self.assertLess(step, 1.2 * steps[0] / ranks)
        weights = [float(re.search(r"^MB per rank.*\nall +([\d.]+)", text, re.M)[1]) for text in (whole, half, quarter)]
        self.assertAlmostEqual(weights[1], weights[0] / 2, delta=0.02)
        self.assertAlmostEqual(weights[2], weights[0] / 4, delta=0.02)
        self.assertIn("layers are split", half)
        planned = run("plan", "show", "mlp", "--mesh", "tensor=2", "--strategy", "tensor", "--batch", 256, "--cost", "equal").stdout
        self.assertEqual(re.search(r"^all +tensor +\d+ +(\d+)$", planned, re.M)[1], re.search(r"^all +tensor +[\d.]+ u?m?s +(\d+) ", half, re.M)[1])
        slow = self.cluster("[[nodes]]\ndevices = 2\n[links.inside]\nlatency = 1\nbandwidth = inf\n")
        text = self.simulate("--mesh", "data=1,tensor=2", "--strategy", "tensor", "--batch", 256, *slow, cost="counted")
        self.assertGreater(float(re.search(r"takes ([\d.]+) s,", text)[1]), 2)
        sweep = self.simulate("--mesh", "data=1,tensor=2", "--strategy", "tensor | data_parallel", "--batch", 256, "--sweep", "ranks=2,4", *self.free(4), cost="equal")
        self.assertIn("layers are split: times are those of the undivided model, in proportion", sweep)
        rows = self.rows(sweep)
        self.assertAlmostEqual(rows[4]["speedup"], 2)

    def test_what_is_left_out(self):
        """Costs measured here are of layers alone."""
        text = self.simulate("--batch", 64, cost="measured")
        self.assertIn("  costs of layers        measured, measured here on one rank\n  loss and update        assumed, take no time; a machine file has their times\n", text)
        self.assertIn("extrapolated: loss and update are assumed\n", text)

    def test_many_rows_and_ranks(self):
        """Beyond 64 of them what ranks keep and send is on lines through few."""
        few, many = (self.simulate("--mesh", f"data={ranks}", "--batch", ranks * rows, cost="counted") for ranks, rows in ((64, 64), (128, 128)))
        kept = [float(re.search(r"^MB per rank.*\nall(?: +[\d.]+){3} +([\d.]+)", text, re.M)[1]) for text in (few, many)]
        self.assertAlmostEqual(kept[1], 2 * kept[0], delta=0.02)
        sent = [re.search(r"^all +data +[\d.]+ u?m?s +(\d+) ", text, re.M)[1] for text in (few, many)]
        self.assertEqual(sent[0], sent[1])
        def resnet(*words):
            r = run("plan", "simulate", "resnet20", "--data", "synthetic", "--data.image_size", 8, "--cost", "counted", *words)
            self.assertEqual(r.returncode, 0, r.stderr)
            return int(re.search(r"^all +data +[\d.]+ u?m?s +(\d+) ", r.stdout, re.M)[1])
        # Batch norm's sums are gathered from all ranks.
        plain, two, four, eight = (resnet("--mesh", f"data={ranks}", "--batch", 8 * ranks) for ranks in (32, 64, 128, 256))
        self.assertEqual(four - two, 2 * (two - plain))
        self.assertEqual(eight - four, 4 * (two - plain))

    def test_memory(self):
        small = "[[nodes]]\ndevices = 1\nmemory = 1e9\n[[nodes]]\ndevices = 1\nmemory = 1e6\n[links.between]\nlatency = 0\nbandwidth = inf\n"
        text = self.simulate("--mesh", "pipe=2", "--strategy", "pipeline(micro=2)", "--batch", 8, *self.cluster(small), cost="equal")
        self.assertRegex(text, r"(?m)^stage 0 needs 6\.\d\d MB of 1\.00 GB: fits$")
        self.assertRegex(text, r"(?m)^stage 1 needs 2\.\d\d MB of 1\.00 MB: DOES NOT FIT$")
        text = self.simulate("--mesh", "data=1", "--batch", 8, "--sweep", "ranks=1,2", *self.cluster(small), cost="equal")
        self.assertRegex(text, r"(?m)^2 ranks: all needs .* DOES NOT FIT$")
        self.assertNotIn("1 ranks: all needs", text)
        self.assertIn("the cluster file gives no memory of devices", self.simulate("--batch", 8, cost="equal"))

    def test_thousands_of_ranks(self):
        """A trace has some ranks of each program, not all."""
        many = self.cluster("jitter = 0.05\n[[nodes]]\ncount = 512\ndevices = 8\n[links.inside]\nlatency = 1e-6\nbandwidth = 1e11\n"
                            "[links.between]\nlatency = 1e-5\nbandwidth = 1e10\n")
        trace = self.dir / "t.json"
        self.simulate("--mesh", "data=2048,pipe=2", "--strategy", "pipeline(micro=4) | data_parallel", "--batch", 16384, *many, "--trace", trace, cost="equal")
        self.assertLess(trace.stat().st_size, 1 << 20)
        events = json.loads(trace.read_text())["traceEvents"]
        self.assertEqual(len({e["pid"] for e in events}), 2)


if __name__ == "__main__":
    unittests.main([])
