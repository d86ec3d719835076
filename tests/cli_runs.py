"""What a run says of itself: its metrics under every strategy, and how it goes on after --resume.
  cli_runs.py TRIREME MPIEXEC|none DATA_DIR [TEST ...]
"""
import json
import math
import random
import re
import sys
import unittest

from cli import Case, idx, mpiexec, run

timings = {"images_per_s", "wait_share"}


class Runs(Case):
    def metrics(self, name="run"):
        """Lines by (kind, step), without what only says how fast it went."""
        lines = [json.loads(line) for line in (self.dir / name / "metrics.jsonl").read_text().splitlines()]
        found = {(line["kind"], line["step"]): {k: v for k, v in line.items() if k not in timings} for line in lines}
        self.assertEqual(len(found), len(lines), "a line twice")
        return found


class Metrics(Runs):
    words = ["lenet5", "--dtype", "f64", "--data.name", "synthetic", "--data.synthetic_size", 70, "--data.batch", 6, "--data.eval_batch", 30,
             "--epochs", 2, "--optim.lr", 0.003, "--parallel.threads", 1]   # 12 steps an epoch; the last batch has 4, the last to test on 10
    strategies = [("accumulate(micro=3)", ""), ("pipeline(micro=2)", "pipe=2"), ("pipeline(micro=4, schedule=zb-h1)", "pipe=3"), ("data_parallel", "data=3"),
                  ("spatial", "h=2"), ("spatial", "h=2,w=2"), ("tensor", "tensor=2"), ("one_weird", "data=2"), ("zero(1)", "data=2"), ("zero(2)", "data=3"),
                  ("zero(3)", "data=2"), ("central_storage", "data=2"), ("tensor | data_parallel", "tensor=2,data=2"),
                  ("spatial | data_parallel", "h=2,data=2"), ("pipeline(micro=2) | data_parallel", "pipe=2,data=2")]

    def test_every_strategy_counts_each_sample_once(self):
        known = set(run("info").stdout.rsplit("strategies", 1)[1].split())
        self.assertEqual(known, {"serial"} | {re.match(r"\w+", text)[0] for text, mesh in self.strategies})
        self.trained(*self.words, name="serial")
        serial = self.metrics("serial")
        self.assertEqual(sorted(serial), [("eval", 12), ("eval", 24), ("train", 20)])
        for number, (strategy, mesh) in enumerate(self.strategies):
            with self.subTest(strategy=strategy, mesh=mesh):
                self.trained(*self.words, "--strategy", strategy, "--mesh", mesh, name=f"run{number}")
                found = self.metrics(f"run{number}")
                self.assertEqual(sorted(found), sorted(serial))
                for key, line in serial.items():
                    for word, value in line.items():
                        if word.endswith("loss"):
                            self.assertTrue(math.isclose(found[key][word], value, rel_tol=1e-11), (key, word, found[key][word], value))
                        else:
                            self.assertEqual(found[key][word], value, (key, word))

    @unittest.skipIf(mpiexec == "none", "no MPI")
    def test_processes_count_each_sample_once(self):
        self.trained(*self.words, name="serial")
        self.trained(*self.words, "--strategy", "spatial", "--mesh", "h=2", name="mpi", ranks=2)
        serial, found = self.metrics("serial"), self.metrics("mpi")
        for key in ("eval", 12), ("eval", 24):
            self.assertEqual([found[key][word] for word in ("train_top1", "test_top1", "test_top5", "test_correct")],
                             [serial[key][word] for word in ("train_top1", "test_top1", "test_top5", "test_correct")])

    def test_each_epoch_is_counted_anew(self):
        folder = self.dir / "mnist"
        folder.mkdir()
        images, labels = random.Random(5).randbytes(60 * 784), bytes(i % 10 for i in range(60))
        for kind in "train", "t10k":   # trained on and tested on the same, with weights that stay
            (folder / f"{kind}-images-idx3-ubyte").write_bytes(idx(3, (60, 28, 28), images))
            (folder / f"{kind}-labels-idx1-ubyte").write_bytes(idx(1, (60,), labels))
        for ranks in 1, 3:
            self.trained("lenet5", "--dtype", "f64", "--data.root", folder, "--data.batch", 7, "--epochs", 3, "--optim.lr", 0, "--ranks", ranks, name=f"run{ranks}")
            found = [line for line in self.metrics(f"run{ranks}").values() if line["kind"] == "eval"]
            self.assertEqual([line["epoch"] for line in found], [1, 2, 3])
            for line in found:
                self.assertEqual(line["train_top1"], line["test_top1"])
                self.assertTrue(math.isclose(line["train_loss"], line["test_loss"], rel_tol=1e-11), line)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[4:]], verbosity=1)
