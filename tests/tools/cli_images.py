"""Training from folders of images, as users meet it.
  cli_images.py TRIREME MPIEXEC|none
"""
import os
import json
import math
import pathlib
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest
import zlib

import unittests

trireme, mpiexec = os.environ.get("TRIREME_EXE", sys.argv[1]), sys.argv[2]
here = pathlib.Path(__file__).parent
small = ["--data", "imagenet", "--data.image_size", 32, "--data.batch", 24, "--data.eval_batch", 24, "--epochs", 1, "--data.augment"]


def run(*words, ranks=None):
    launch = [mpiexec, "-n", str(ranks)] if ranks else []
    return subprocess.run([*launch, trireme, *map(str, words)], capture_output=True, text=True, timeout=300)


class Images(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.dir = pathlib.Path(tempfile.mkdtemp(prefix="trireme-"))
        cls.addClassCleanup(shutil.rmtree, cls.dir, ignore_errors=True)
        cls.root = cls.dir / "images"
        for python in sys.executable, "/usr/bin/python3":   # Debian's has Pillow
            made = subprocess.run([python, here.parent / "datasets/make_image_folder.py", cls.root, "--classes", "4", "--train", "24", "--val", "8"])
            if made.returncode == 0:
                break
        if made.returncode == 77:
            raise unittest.SkipTest("needs Pillow and dataset-fashion-mnist: tools/setup --oracles installs them")
        assert made.returncode == 0

    def trained(self, name, *words, model="resnet18", root=None, **options):
        got = run("train", model, *small, "--data.root", root or self.root, "--run.dir", self.dir / name, *words, **options)
        self.assertEqual(got.returncode, 0, got.stderr)
        return got

    def refused(self, *words, root=None, says=(), kind="data"):
        got = run("train", "mlp", *small, "--data.root", root or self.root, "--run.dir", self.dir / "refused", *words)
        last = (got.stderr.strip().splitlines() or [""])[-1]
        self.assertEqual((got.returncode, last[:9]), (unittests.statuses[kind], "trireme: "), got.stderr)
        for word in says:
            self.assertIn(word, last)

    def spoiled(self, name, damage):
        """A copy of the folder with one image damaged."""
        root = self.dir / name
        shutil.copytree(self.root, root)
        victim = next(iter(sorted((root / "train").iterdir()))) / "0003.jpg"
        victim.write_bytes(damage(victim.read_bytes()))
        return root, victim

    def test_resnet18_trains_from_a_folder(self):
        got = self.trained("run")
        self.assertRegex(got.stdout, r"test accuracy: [\d.]+ % \(\d+ of 32\)")
        self.assertRegex(got.stderr, r"images/s, [\d.]+ % of the time waiting for data")
        lines = [json.loads(line) for line in (self.dir / "run/metrics.jsonl").read_text().splitlines()]
        self.assertTrue(0 <= lines[-1]["wait_share"] <= 1)
        got = run("export", self.dir / "run", "--onnx", self.dir / "m.onnx")   # its classes are those of the folder
        self.assertEqual(got.returncode, 0, got.stderr)
        self.predicts(self.dir / "run")

    def predicts(self, trained):
        def chunk(kind, body):
            return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        grey = self.dir / "grey.png"
        grey.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 99, 40, 8, 0, 0, 0, 0)) +
                         chunk(b"IDAT", zlib.compress(b"".join(b"\0" + bytes(range(y, y + 99)) for y in range(40)))) + chunk(b"IEND", b""))
        images = [*sorted((self.root / "val").glob("*/*.jpg"))[::9], grey]
        names = sorted(path.name for path in (self.root / "val").iterdir())
        found = {}
        for kind, one, words in ("probabilities", "probability", []), ("logits", "logit", ["--logits"]):
            got = run("predict", "--run", trained, "--json", "--topk", 2, *words, *images)
            self.assertEqual(got.returncode, 0, got.stderr)
            self.assertEqual(got.stderr, "predict: shorter side to 37, centre 32 x 32, RGB, / 255, minus mean 0.485 0.456 0.406, over std 0.229 0.224 0.225\n")
            lines = [json.loads(line) for line in got.stdout.splitlines()]
            self.assertEqual([line["image"] for line in lines], list(map(str, images)))
            for line in lines:
                all = line[kind]
                best = sorted(range(4), key=lambda c: -all[c])[:2]
                self.assertEqual(line["top"], [{"class": c, "name": names[c], one: all[c]} for c in best])
            found[kind] = [line[kind] for line in lines]
        for p, logits in zip(found["probabilities"], found["logits"], strict=True):
            e = [math.exp(x - max(logits)) for x in logits]
            self.assertAlmostEqual(sum(p), 1, 5)
            for x, y in zip(e, p, strict=True):
                self.assertAlmostEqual(x / sum(e), y, 5)
        got = run("predict", "--run", trained, "--gray", grey)
        self.assertEqual((got.returncode, got.stdout), (2, ""), got.stderr)
        self.assertIn("--gray", got.stderr)
        self.assertIn("[32, 32, 3]", got.stderr)

    @unittest.skipIf(mpiexec == "none", "no MPI")
    def test_ranks_see_the_same_crops(self):
        # One layer without batch norm: what remains between the runs is the order of sums.
        one = self.trained("one", "--optim.lr", 0, model="mlp")
        two = self.trained("two", "--optim.lr", 0, model="mlp", ranks=2)
        loss = [re.search(r"train loss ([\d.]+)", got.stderr)[1] for got in (one, two)]
        self.assertEqual(*loss)

    def test_bad_images_stop_or_are_skipped(self):
        for kind, damage in ("short", lambda b: b[:len(b) // 2]), ("empty", lambda b: b""):
            root, victim = self.spoiled(kind, damage)
            self.refused(root=root, says=(str(victim), "sample 3", "--data.on-bad"))
            got = self.trained(kind + "_run", "--data.on-bad", "skip", model="mlp", root=root)
            self.assertRegex(got.stdout, r"bad images: +1 reads")
            self.assertIn(str(victim), got.stdout)

    def test_packed(self):
        file = self.dir / "all.pack"
        got = run("pack", file, "--data", "imagenet", "--data.root", self.root, "--data.image_size", 40)
        self.assertEqual((got.returncode, got.stdout), (0, f"{file}: 96 training and 32 test samples of [40, 40, 3], 4 classes\n"), got.stderr)
        self.trained("packed", "--data", "packed", root=file)
        whole = file.read_bytes()
        file.write_bytes(whole[:-100])
        self.refused("--data", "packed", root=file, says=("all.pack",))

    def test_runs_know_their_classes_and_images(self):
        root = self.dir / "own"
        shutil.copytree(self.root, root)
        self.trained("own_run", "--run.max_steps", 2, "--epochs", 2, model="mlp", root=root)
        known = (self.dir / "own_run/classes.txt").read_text()

        def refused(command, *words):
            got = run(*command)
            last = (got.stderr.strip().splitlines() or [""])[-1]
            self.assertEqual((got.returncode, last[:9]), (unittests.statuses["data"], "trireme: "), got.stderr)
            for word in words:
                self.assertIn(word, last)
        resume = ["train", "--resume", "--run.dir", self.dir / "own_run", "--run.max_steps", 0]
        first = known.splitlines()[0]
        for split in "train", "val":
            (root / split / first).rename(root / split / "zebra")
        file = self.dir / "zebra.pack"
        self.assertEqual(run("pack", file, "--data", "imagenet", "--data.root", root, "--data.image_size", 32).returncode, 0)
        refused(["eval", self.dir / "own_run"], first, "class 0")
        refused(["eval", self.dir / "own_run", "--data", "packed", "--data.root", file], first, "class 0")
        refused(resume, first, "--override")
        for split in "train", "val":
            (root / split / "zebra").rename(root / split / first)
        gone = next(iter((root / "train" / first).iterdir()))
        gone.rename(self.dir / gone.name)
        refused(resume, "train data", "95 files", "96 files")
        self.assertEqual(run("eval", self.dir / "own_run").stderr.count("note: "), 0)   # what is tested is the same
        (self.dir / gone.name).rename(root / "val" / first / gone.name)
        self.assertIn("33 files", run("eval", self.dir / "own_run").stderr)
        (root / "val" / first / gone.name).rename(gone)
        self.assertEqual(run(*resume).returncode, 0)

    @unittest.skipIf(mpiexec == "none", "no MPI")
    def test_folder_without_splits_is_warned_of(self):
        warned = [self.trained(f"warned{ranks}{root.name}", "--run.max_steps", 1, model="mlp", root=root, ranks=ranks).stderr.count("warning   ")
                  for ranks, root in ((0, self.root), (0, self.root / "train"), (2, self.root / "train"))]
        self.assertEqual(warned, [0, 1, 1])

    def test_folders_that_cannot_be_right(self):
        self.refused(root=self.dir / "nowhere", says=("nowhere",), kind="file")
        self.refused(root=self.root / "train/dress", says=("train/dress",))
        root = self.dir / "uneven"
        shutil.copytree(self.root, root)
        (root / "train/zebra").mkdir()
        self.refused(root=root, says=("zebra",))


if __name__ == "__main__":
    unittests.main(sys.argv[3:])
