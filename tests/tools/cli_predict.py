"""The end of a run of several ranks: what a step was to take beside what it took, as lines and as prediction.json.
  cli_predict.py TRIREME MPIEXEC|none [TEST ...]
"""
import json
import math
import re
import sys
import unittest

sys.argv.insert(3, ".")   # cli wants the place of data, which synthetic ones do not need
import cli
import unittests
from cli import mpiexec, run

words = ["mlp", "--data.name", "synthetic", "--data.synthetic_size", 640, "--data.batch", 16, "--epochs", 1, "--optim.lr", 0.01, "--parallel.threads", 1]


class Predictions(cli.Case):
    def told(self, stderr):
        """{component: (predicted or None, measured)} in ms as printed, and the last line; None: nothing is told."""
        lines = stderr.splitlines()
        begins = [i for i, line in enumerate(lines) if line.startswith("predicted and measured: ")]
        if not begins:
            return None
        self.assertEqual(len(begins), 1, stderr)
        head = re.fullmatch(r"predicted and measured: ms of a step, mean of (\d+) ranks, (?:median|mean) of (\d+) steps", lines[begins[0]])
        self.assertTrue(head, lines[begins[0]])
        rows, at = {}, begins[0] + 2
        self.assertEqual(lines[at - 1].split()[:2], ["predicted", "measured"])
        while found := re.fullmatch(r"  (\S.*?) +(-|\d+\.\d{3}) +(\d+\.\d{3})(?: +([+-]\d+\.\d) %)?\s*", lines[at]):
            predicted, measured = (None if x == "-" else float(x) for x in found.groups()[1:3])
            if found[4] and measured > 0.2:
                self.assertAlmostEqual(float(found[4]), 100 * (predicted / measured - 1), delta=0.06 + 0.051 * (1 + predicted / measured) / measured)
            rows[found[1]], at = (predicted, measured), at + 1
        return rows, lines[at], int(head[1]), int(head[2])

    def check_told(self, got, name="run", ranks=2, predicted=True):
        """Lines and file say the same, and what a step is made of sums up to it."""
        told = self.told(got.stderr)
        self.assertIsNotNone(told, got.stderr)
        rows, last, told_ranks, steps = told
        kept = json.loads((self.dir / name / "prediction.json").read_text(), parse_constant=lambda text: self.fail(text))
        self.assertEqual((kept["ranks"], kept["steps"], told_ranks), (ranks, steps, ranks))
        self.assertGreater(kept["recorded"], 0)
        self.assertEqual([row["name"] for row in kept["rows"]], list(rows))
        self.assertEqual(list(rows)[-1], "step")
        self.assertIn("backward", rows)
        if kept["why_not"].startswith("the measurement would take more than 4 s"):   # a slow or busy machine
            self.assertGreater(18 * kept["rows"][-1]["measured_s"], 4, kept)   # two runs of 9 micro-batches
            predicted = False
        self.assertEqual(kept["why_not"] == "", predicted, kept)
        for row in kept["rows"]:
            for key, shown in zip(("predicted_s", "measured_s"), rows[row["name"]]):
                if shown is None:
                    self.assertIsNone(row[key])
                else:
                    self.assertTrue(math.isfinite(row[key]) and row[key] >= 0, row)
                    self.assertAlmostEqual(1e3 * row[key], shown, delta=0.00051)
        for key in ["measured_s"] + ["predicted_s"] * predicted:
            whole = kept["rows"][-1][key]
            self.assertGreater(whole, 0)
            self.assertAlmostEqual(sum(row[key] for row in kept["rows"][:-1]), whole, delta=0.01 * whole + 1e-5, msg=kept)
        if predicted:
            found = re.fullmatch(r"  largest difference: (.*), (\S+) ms predicted, (\S+) ms measured", last)
            self.assertEqual(rows[found[1]], (float(found[2]), float(found[3])))
            apart = {name: abs(row[0] - row[1]) for name, row in rows.items() if name != "step"}
            self.assertAlmostEqual(apart[found[1]], max(apart.values()), delta=0.0021)
        else:
            self.assertEqual(last, "  not predicted: " + kept["why_not"])
        return rows

    def check_silent(self, got, name="run"):
        self.assertIsNone(self.told(got.stderr), got.stderr)
        self.assertFalse((self.dir / name / "prediction.json").exists())

    def test_two_ranks(self):
        rows = self.check_told(self.trained(*words, "--ranks", 2))
        self.assertIn("waiting, axis data", rows)
        self.assertIn("update", rows)

    @unittest.skipIf(mpiexec == "none", "no mpiexec")
    def test_two_processes(self):
        self.check_told(self.trained(*words, ranks=2))

    def test_nothing_is_told_where_none_is_asked_for_or_there_is_one_rank(self):
        self.check_silent(self.trained(*words, "--ranks", 2, "--run.predict", "false", name="off"), "off")
        self.check_silent(self.trained(*words, name="one"), "one")
        few = self.trained(*words, "--ranks", 2, "--run.max_steps", 2, name="few")   # no step is settled
        self.check_silent(few, "few")
        self.check_silent(self.trained(*words, "--ranks", 2, "--parallel.virtual", 2, "--parallel.cluster", self.cluster(), name="virtual"), "virtual")

    def cluster(self):
        path = self.dir / "cluster.toml"
        path.write_text("[[nodes]]\ndevices = 2\n[links.inside]\nlatency = 1e-6\nbandwidth = 1e9\n")
        return path

    def test_strategies(self):
        for number, (strategy, mesh, component) in enumerate([
                ("data_parallel | zero(2)", "data=2", "waiting, axis data"), ("data_parallel | zero(3)", "data=2", "waiting, axis data"),
                ("pipeline(micro=2)", "pipe=2", "waiting, axis pipe"), ("local_sgd(every=3)", "data=2", "waiting, axis data"),
                ("gossip", "data=3", "waiting, axis data"), ("compress(codec=bf16)", "data=2", "waiting, axis data"),
                ("parameter_server(mode=sync)", "data=3", "waiting, axis data"), ("pipeline(micro=2, schedule=2bw)", "pipe=2", "waiting, axis pipe")]):
            with self.subTest(strategy=strategy):
                got = self.trained(*words, "--strategy", strategy, "--mesh", mesh, name=f"run{number}")
                self.assertIn(component, self.check_told(got, f"run{number}", ranks=int(mesh[-1])))

    def test_layers_that_ranks_divide_by_image_axes(self):
        """They stand between two parts that only send, which the measured model has not."""
        rows = self.check_told(self.trained("lenet5", "--data", "synthetic", "--data.synthetic_size", 320, "--batch", 16, "--epochs", 1, "--parallel.threads", 1, "--strategy", "spatial", "--mesh", "h=2"))
        self.assertGreater(rows["forward"][0], 0)

    def test_layers_whose_weights_ranks_divide(self):
        rows = self.check_told(self.trained(*words, "--strategy", "tensor", "--mesh", "tensor=2"))
        self.assertGreater(rows["forward"][0], 0)

    def test_where_nothing_can_be_predicted_it_is_said_why(self):
        got = self.trained(*words, "--strategy", "one_weird_trick", "--mesh", "data=2", name="divided")
        self.check_told(got, "divided", predicted=False)
        for strategy in "parameter_server(mode=async)", "gossip(mode=async)":
            got = self.trained(*words, "--strategy", strategy, "--mesh", "data=2", name=strategy[:6])
            self.check_silent(got, strategy[:6])
            self.assertIn("no prediction of steps: what a step is made of depends on the order in which messages come\n", got.stderr)

    def test_a_run_that_goes_on_tells_of_what_it_has_trained(self):
        self.trained(*words, "--epochs", 2, "--ranks", 2, "--run.max_steps", 20)
        before = json.loads((self.dir / "run/prediction.json").read_text())
        got = self.trained("--resume", "--run.max_steps", 80)
        self.check_told(got)
        after = json.loads((self.dir / "run/prediction.json").read_text())
        self.assertGreater(after["steps"], before["steps"])
        text = (self.dir / "run/prediction.json").read_bytes()
        self.assertIsNone(self.told(self.trained("--resume").stderr))   # there is nothing left to train
        self.assertEqual((self.dir / "run/prediction.json").read_bytes(), text)

    def test_lines_of_json(self):
        got = self.trained(*words, "--ranks", 2, "--run.log_format", "json")
        messages = "\n".join(json.loads(line)["message"] for line in got.stderr.splitlines())
        self.assertIsNotNone(self.told(messages))


if __name__ == "__main__":
    unittests.main(sys.argv[4:])
