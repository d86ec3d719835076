"""tools/mlperf_logs on made-up logs, whose step times are known: each way of logging, families, copies, damage.
  mlperf_logs.py ROOT
"""
import csv
import io
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

root = pathlib.Path(sys.argv[1])
samples = 1000


class Log:
    """Lines of one run, of which the clock starts at some millisecond."""

    def __init__(self, batch, start=1_600_000_000_000, **about):
        self.now, self.lines, self.steps = start, ["some other output"], samples / batch
        for key, value in {"global_batch_size": batch, "train_samples": samples, **about}.items():
            self.event(key, value)
        self.event("run_start")

    def event(self, key, value=None, **metadata):
        self.lines.append(":::MLLOG " + json.dumps({"namespace": "", "time_ms": round(self.now), "event_type": "POINT_IN_TIME", "key": key, "value": value, "metadata": metadata}))

    def text(self):
        self.event("run_stop", metadata={"status": "success"})
        return "\n".join(self.lines) + "\n"

    def epochs(self, step_ms, logged=True, count=12, evaluation=700):
        """Epochs of so many ms per step, the first twice as long; every fourth is followed by an evaluation."""
        for epoch in range(1, count + 1):
            if logged:
                self.event("epoch_start", epoch_num=epoch)
            length = self.steps * step_ms * (2 if epoch == 1 else 1)
            self.now += length if logged != "early" else length / 2   # asynchronous: the event says that it ends before it does
            if logged:
                self.event("epoch_stop", epoch_num=epoch)
            if logged == "early":
                self.now += length / 2
            if epoch % 4 == 0:
                self.event("eval_start", epoch_num=epoch)
                self.now += evaluation
                self.event("eval_stop", epoch_num=epoch)
                self.event("eval_accuracy", 0.5, epoch_num=epoch)
        return self

    def blocks(self, step_ms, evals=True, evaluation=400):
        for block in range(5):
            first, count = block * 4 + 1, 4
            self.event("block_start", first_epoch_num=first, epoch_count=count)
            self.now += self.steps * step_ms * count * (3 if block == 0 else 1)
            if evals:
                self.event("eval_start", epoch_num=first + 3)
            self.now += evaluation
            if evals:
                self.event("eval_stop", epoch_num=first + 3)
            self.event("eval_accuracy", 0.1 * block, epoch_num=first + 3)
            self.event("block_stop", first_epoch_num=first)
        return self


class MlperfLogs(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.TemporaryDirectory()
        self.folder = pathlib.Path(self.dir.name) / "training_results_v9.1"
        self.addCleanup(self.dir.cleanup)

    def system(self, submitter, name, nodes, per_node, *logs, accelerator="NVIDIA B7-80GB (300W)", framework="MX 1.0"):
        about = self.folder / submitter / "systems" / f"{name}.json"
        about.parent.mkdir(parents=True, exist_ok=True)
        about.write_text(json.dumps({"number_of_nodes": str(nodes), "accelerators_per_node": str(per_node), "accelerator_model_name": accelerator, "framework": framework}))
        results = self.folder / submitter / "results" / name / "resnet"
        results.mkdir(parents=True, exist_ok=True)
        for i, log in enumerate(logs):
            (results / f"result_{i}.txt").write_text(log if isinstance(log, str) else log.text())

    def table(self, status=0):
        got = subprocess.run([sys.executable, root / "tools/mlperf_logs", self.folder], capture_output=True, text=True)
        self.assertEqual(got.returncode, status, got.stderr)
        self.errors, self.text = got.stderr, got.stdout
        return {row["system"]: row for row in csv.DictReader(io.StringIO(got.stdout))}

    def test_ways_of_logging(self):
        self.system("A", "epochs", 1, 4, Log(100).epochs(50), Log(100, 2e12).epochs(54), Log(100, 3e12).epochs(51))
        self.system("A", "async", 2, 4, Log(100).epochs(50, logged="early"))
        self.system("A", "blocks", 4, 4, Log(100).blocks(60))
        self.system("A", "evals", 8, 4, Log(100).blocks(60, evals=False, evaluation=200))
        self.system("A", "batches", 16, 4, Log(100, d_batch_size=7).epochs(50), Log(200, 2e12).epochs(90))
        rows = self.table()
        self.assertEqual((rows["epochs"]["meth"], rows["epochs"]["runs"]), ("E", "3"))
        self.assertEqual([float(rows["epochs"][f"step_ms_{of}"]) for of in ("median", "min", "max")], [51, 50, 54])
        self.assertEqual((rows["async"]["meth"], float(rows["async"]["step_ms_median"])), ("W", 50))
        self.assertEqual((rows["blocks"]["meth"], float(rows["blocks"]["step_ms_median"])), ("B", 60))
        self.assertEqual((rows["evals"]["meth"], float(rows["evals"]["step_ms_median"])), ("X", 65))   # 200 ms of 40 steps
        self.assertEqual((rows["epochs"]["accels"], rows["epochs"]["lbs"], rows["epochs"]["round"]), ("4", "25", "9.1"))
        self.assertEqual([row["lbs"] for row in csv.DictReader(io.StringIO(self.text)) if row["system"] == "batches"], ["7", "3.125"])
        self.assertEqual({row["family"] for row in rows.values()}, {"9.1|A|B7-80GB|x4"})

    def test_families_and_copies(self):
        for nodes in (1, 2, 4):
            self.system("A", f"n{nodes}", nodes, 4, Log(100, 1e12 + nodes).epochs(40 + nodes))
            self.system("A", f"new{nodes}", nodes, 4, Log(100, 2e12 + nodes).epochs(30 + nodes), framework="MX 2.0")
            self.system("B", f"pod{nodes}", 1, 16 * nodes, Log(100, 3e12 + nodes).epochs(20), accelerator="TPU-v9")
        self.system("A", "spelt", 8, 4, Log(100, 5e12).epochs(50), framework="mx-1.0")
        self.system("B", "copy", 2, 4, Log(100, 1e12 + 1).epochs(41))
        self.system("C", "alone", 2, 4, Log(100, 4e12).epochs(41))
        rows = self.table()
        self.assertEqual({rows[name]["family"] for name in ("n1", "n2", "n4", "spelt")}, {"9.1|A|B7-80GB|x4"})
        self.assertEqual({rows[f"new{n}"]["family"] for n in (1, 2, 4)}, {"9.1|A|B7-80GB|x4|2"})
        self.assertEqual({rows[f"pod{n}"]["family"] for n in (1, 2, 4)}, {"9.1|B|TPU-v9|xn"})
        self.assertEqual((rows["copy"]["dup_of"], rows["copy"]["family"], rows["alone"]["family"]), ("9.1 A n1", "", ""))

    def test_damage(self):
        good = Log(100).epochs(50).text()
        self.system("A", "good", 1, 4, good, "nothing\n", good[: len(good) // 3], ":::MLLOG {broken\n" + good)
        self.system("A", "nodes", "many", 4, good)
        self.system("A", "unlisted", 1, 4, good)
        (self.folder / "A/systems/unlisted.json").unlink()
        rows = self.table()
        self.assertEqual(list(rows), ["good"])
        self.assertEqual(float(rows["good"]["step_ms_median"]), 50)
        self.assertIn("good/resnet/result_1.txt: has no :::MLLOG lines", self.errors)
        self.assertIn("nodes.json: states 0 nodes", self.errors)
        self.assertIn("unlisted.json", self.errors)

    def test_nothing(self):
        self.folder.mkdir()
        self.table(status=1)
        self.assertIn("no SUBMITTER/results/SYSTEM/resnet/result_*.txt", self.errors)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
