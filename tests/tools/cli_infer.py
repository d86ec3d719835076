"""trireme infer: volumes whole, in tiles, over ranks and in parts have the same bytes; a run that was killed goes on; phantoms as volumes.
  cli_infer.py TRIREME MPIEXEC|none [TEST ...]
"""
import array
import itertools
import json
import os
import random
import re
import resource
import shutil
import signal
import struct
import subprocess
import sys
import time

sys.argv.insert(3, ".")   # cli wants the place of data, which these tests do not need
import cli
import unittests
from cli import mpiexec, run, trireme


def npy(path, shape, values=None, seed=0):
    """f32, values or whole numbers drawn by seed."""
    n = 1
    for extent in shape:
        n *= extent
    if values is None:
        values = array.array("f", array.array("b", random.Random(seed).randbytes(n)))
    head = str({"descr": "<f4", "fortran_order": False, "shape": tuple(shape)}).encode()
    head += b" " * (-(len(head) + 11) % 64) + b"\n"
    path.write_bytes(b"\x93NUMPY\1\0" + struct.pack("<H", len(head)) + head + array.array("f", values).tobytes())
    return list(values) if n < 10000 else None


def read_npy(path):
    data = path.read_bytes()
    at = 10 + struct.unpack("<H", data[8:10])[0]
    return array.array("f", data[at:])


def safetensors(path, tensors):
    head, body = {}, b""
    for name, (shape, values) in tensors.items():
        bytes_ = array.array("f", values).tobytes()
        head[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(body), len(body) + len(bytes_)]}
        body += bytes_
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + body)


def msd(path, axes, depth, width=1, classes=2, seed=1):
    """Weights of a mixed-scale dense network, in PyTorch's layout; returns them."""
    draw = random.Random(seed)
    tensors = {}
    for i in range(depth):
        channels = 1 + i * width
        shape = [width, channels] + [3] * axes
        tensors[f"dense.{i}.weight"] = shape, [draw.gauss(0, (2 / 3 ** axes / channels) ** 0.5) for _ in range(width * channels * 3 ** axes)]
        tensors[f"dense.{i}.bias"] = [width], [draw.gauss(0, 1) for _ in range(width)]
    channels = 1 + depth * width
    tensors["final.weight"] = [classes, channels] + [1] * axes, [draw.gauss(0, 0.2) for _ in range(classes * channels)]
    tensors["final.bias"] = [classes], [draw.gauss(0, 1) for _ in range(classes)]
    safetensors(path, tensors)
    return tensors


def by_hand(tensors, values, h, w, dilations):
    """What the network makes of a picture, in Python's numbers: [h, w, classes]."""
    layers = [values]
    for i in range(sum(name.endswith("bias") for name in tensors) - 1):
        (_, channels, *_), weight = tensors[f"dense.{i}.weight"]
        d, out = dilations[i % len(dilations)], []
        for y, x in itertools.product(range(h), range(w)):
            total = tensors[f"dense.{i}.bias"][1][0]
            for c, ky, kx in itertools.product(range(channels), range(3), range(3)):
                v, u = y + d * (ky - 1), x + d * (kx - 1)
                if 0 <= v < h and 0 <= u < w:
                    total += weight[(c * 3 + ky) * 3 + kx] * layers[c][v * w + u]
            out.append(max(0.0, total))
        layers.append(out)
    (classes, channels, *_), weight = tensors["final.weight"]
    return [tensors["final.bias"][1][k] + sum(weight[k * channels + c] * layers[c][p] for c in range(channels)) for p in range(h * w) for k in range(classes)]


class Infer(cli.Case):
    def infer(self, *words, out="out.npy", **options):
        return run("infer", "--weights", self.dir / "w", "--volume", self.dir / "in.npy", "--out", self.dir / out, *words, **options)

    def made(self, *words, out="out.npy", **options):
        got = self.infer(*words, out=out, **options)
        self.assertEqual(got.returncode, 0, got.stderr)
        self.assertFalse((self.dir / (out + ".tiles")).exists())
        self.assertFalse((self.dir / (out + ".partial")).exists())
        return (self.dir / out).read_bytes()

    def ended(self, got, *values, kind):
        """Refused once the plans are printed."""
        got.stdout = ""
        self.refused(got, *values, kind=kind)

    def test_all_ways_give_the_same_bytes(self):
        npy(self.dir / "in.npy", [34, 27, 30], seed=1)
        msd(self.dir / "w", 3, 5, width=2)
        whole = self.made("--way", "whole")
        ways = [["--tile", "17"], ["--tile", "20,16,30", "--mesh", "h=2"], ["--way", "mesh", "--mesh", "d=2,w=2"], ["--memory", "2MB"], ["--mesh", "d=3", "--memory", "1.5MiB"]]
        for i, words in enumerate(ways):
            self.assertEqual(self.made(*words, out=f"{i}.npy"), whole, words)
        if mpiexec != "none":
            for i, words in enumerate([["--way", "mesh", "--mesh", "d=2"], ["--tile", "16", "--mesh", "w=2"]]):
                self.assertEqual(self.made(*words, out=f"mpi{i}.npy", ranks=2), whole, words)
        labels = self.made("--result", "labels", "--tile", "17", out="labels.npy")
        logits = read_npy(self.dir / "out.npy")
        self.assertEqual(list(labels[-34 * 27 * 30:]), [int(b > a) for a, b in zip(logits[::2], logits[1::2])])

    def test_a_picture_by_hand(self):
        values = npy(self.dir / "in.npy", [13, 11], seed=2)
        tensors = msd(self.dir / "w", 2, 4)
        expected = by_hand(tensors, values, 13, 11, [1, 3])
        self.made("--dilations", "1,3", "--tile", "8")
        got = read_npy(self.dir / "out.npy")
        self.assertEqual(len(got), len(expected))
        size = max(map(abs, expected))
        for a, b in zip(got, expected):
            self.assertAlmostEqual(a / size, b / size, delta=1e-5)

    def records(self):
        return sum(p.read_text().count("\n") for p in (self.dir / "out.npy.tiles").glob("*.tiles"))

    def wait_for_tiles(self, process, before):
        for _ in range(2000):
            if self.records() >= before + 4:
                return
            self.assertIsNone(process.poll(), "it ended before it was killed")
            time.sleep(0.01)
        self.fail("no tile is finished")

    def test_a_model_of_pictures_sees_each_slice(self):
        npy(self.dir / "in.npy", [5, 24, 20], seed=9)
        values = read_npy(self.dir / "in.npy")
        msd(self.dir / "w", 2, 4)
        self.made("--mesh", "d=2", "--way", "mesh", out="mesh.npy")
        self.made("--tile", "3,16,16", out="tiles.npy")
        slices = array.array("f")
        for d in range(5):
            npy(self.dir / "in.npy", [24, 20], values[480 * d:480 * (d + 1)])
            self.made(out=f"{d}.npy")
            slices += read_npy(self.dir / f"{d}.npy")
        self.assertEqual(read_npy(self.dir / "mesh.npy"), slices)
        self.assertEqual(read_npy(self.dir / "tiles.npy"), slices)

    def test_a_run_that_was_killed_goes_on_to_the_same_bytes(self):
        npy(self.dir / "in.npy", [1500, 1400], seed=3)
        msd(self.dir / "w", 2, 30)
        words = ["infer", "--weights", self.dir / "w", "--volume", self.dir / "in.npy", "--out", self.dir / "out.npy", "--tile", "170"]
        whole = self.made("--way", "whole", out="whole.npy")
        for how in (signal.SIGKILL, signal.SIGKILL, signal.SIGTERM):
            before = self.records()
            process = subprocess.Popen([trireme, *map(str, words), *(["--mesh", "h=2"] if how == signal.SIGTERM else [])], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            self.wait_for_tiles(process, before)
            process.send_signal(how)
            told, _ = process.communicate(timeout=60)
            self.assertEqual(process.returncode, -9 if how == signal.SIGKILL else 85)
            self.assertFalse((self.dir / "out.npy").exists())
        self.assertIn("continues", told)
        self.refused(self.infer("--tile", "180"), "167 x 156")
        msd(self.dir / "w", 2, 30, seed=9)
        self.refused(self.infer(), "weights")
        msd(self.dir / "w", 2, 30)
        got = self.infer()
        self.assertEqual(got.returncode, 0, got.stderr)
        self.assertRegex(got.stdout, r"computed: +\d+ boxes of 167 x 156 in .*, ([3-9]|\d\d+) from an earlier run")
        self.assertEqual((self.dir / "out.npy").read_bytes(), whole)

    def test_parts_of_a_job_array(self):
        npy(self.dir / "in.npy", [130, 120], seed=4)
        msd(self.dir / "w", 2, 4)
        whole = self.made("--way", "whole", out="whole.npy")
        for part, left in ((3, "part 1/3"), (1, "part 2/3")):
            got = self.infer("--tile", "16", "--part", f"{part}/3")
            self.assertEqual(got.returncode, 0, got.stderr)
            self.assertIn(f"part {part}/3 is done", got.stdout)
            self.assertIn(left, got.stdout)
        got = self.infer("--tile", "16", "--join")
        self.assertEqual(got.returncode, 2)
        self.assertIn("2/3", got.stderr)
        self.assertIn("all 3 parts are finished", self.infer("--tile", "16", "--part", "2/3").stdout)
        self.assertEqual((self.dir / "out.npy").read_bytes(), whole)
        self.refused(self.infer("--tile", "16", "--part", "2/3"), "out.npy")

    def test_parts_are_checked_when_they_are_joined(self):
        npy(self.dir / "in.npy", [60, 50], seed=5)
        msd(self.dir / "w", 2, 3)
        whole = self.made("--way", "whole", out="whole.npy")
        self.infer("--tile", "16", "--part", "1/2")
        (self.dir / "out.npy.tiles/joined").touch()   # as if another were at it, and had been killed
        self.assertIn("another process", self.infer("--tile", "16", "--part", "2/2").stdout)
        partial = self.dir / "out.npy.partial"
        good = partial.read_bytes()
        partial.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
        got = self.infer("--join")
        self.assertEqual(got.returncode, 65, got.stderr)
        partial.write_bytes(good)
        self.assertIn("their tiles are correct", self.infer("--join").stdout)
        self.assertEqual((self.dir / "out.npy").read_bytes(), whole)

    def test_a_limit_of_addresses(self):
        npy(self.dir / "in.npy", [2400, 2200], seed=6)
        msd(self.dir / "w", 2, 6, width=4)
        words = ["infer", "--weights", self.dir / "w", "--volume", self.dir / "in.npy", "--dilations", "1,2"]
        whole = self.made("--way", "whole", "--dilations", "1,2", out="whole.npy")

        def limit():
            resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
        got = subprocess.run([trireme, *map(str, words), "--out", self.dir / "out.npy"], preexec_fn=limit, capture_output=True, text=True)
        self.assertEqual(got.returncode, 0, got.stderr)
        self.assertRegex(got.stdout, r"\* tiles ")
        self.assertTrue((self.dir / "out.npy").read_bytes() == whole)
        found = [float(x) for x in re.search(r"memory: +([\d.]+) MiB .* predicted, ([\d.]+) MiB used", got.stdout).groups()]
        self.assertLessEqual(found[1], found[0])

    def strided(self):
        """A 3-D U-Net of two channels, in a run directory."""
        got = run("train", "unet3d", "--data", "phantoms", "--data.size", "32,32,32", "--data.crop", "16,16,16", "--arch.width", 2, "--data.samples", 4, "--data.test_samples", 1,
                  "--epochs", 1, "--batch", 2, "--run.dir", self.dir / "run")
        self.assertEqual(got.returncode, 0, got.stderr)

    def test_a_model_with_strides_takes_any_extents(self):
        """Bit by bit as a volume that is padded by hand, of which the middle is kept; what is used is at most what is predicted."""
        self.strided()
        shape, padded, before = (37, 61, 53), (48, 64, 64), (5, 1, 5)
        values = npy(self.dir / "in.npy", shape, [random.Random(3).random() for _ in range(37 * 61 * 53)]) or read_npy(self.dir / "in.npy")
        by_hand = array.array("f", bytes(4 * 48 * 64 * 64))
        starts = [((d + 5) * 64 + h + 1) * 64 + 5 for d in range(37) for h in range(61)]
        for i, start in enumerate(starts):
            by_hand[start:start + 53] = array.array("f", values[i * 53:(i + 1) * 53])
        npy(self.dir / "padded.npy", padded, by_hand)

        def made(volume, *words):
            got = run("infer", self.dir / "run", "--volume", self.dir / volume, "--out", self.dir / "out.npy", *words)
            self.assertEqual(got.returncode, 0, got.stderr)
            found = [float(x) for x in re.search(r"memory: +([\d.]+) MiB .* predicted, ([\d.]+) MiB used", got.stdout).groups()]
            self.assertLessEqual(found[1], found[0], words)
            result = read_npy(self.dir / "out.npy")
            (self.dir / "out.npy").unlink()
            return got.stdout, result
        for words in ["--way", "whole"], ["--tile", "48,32,32"], ["--way", "mesh", "--mesh", "d=2,w=2"], ["--way", "mesh", "--mesh", "d=3"]:
            said, result = made("in.npy", *words)
            self.assertIn("[1, 37, 61, 53, 1], padded to [1, 48, 64, 64, 1] -> [1, 37, 61, 53, 3]", said)
            expected = made("padded.npy", *words)[1]
            self.assertEqual(len(result), 3 * len(values))
            for i, start in enumerate(starts):
                self.assertEqual(result[i * 159:(i + 1) * 159], expected[3 * start:3 * start + 159], words)

    def test_plans(self):
        npy(self.dir / "in.npy", [40, 30, 20], seed=7)
        msd(self.dir / "w", 3, 3)
        got = run("infer", "--weights", self.dir / "w", "--volume", self.dir / "in.npy", "--plan", "--mesh", "d=2")
        self.assertEqual(got.returncode, 0, got.stderr)
        for way in ("whole", "mesh", "tiles"):
            self.assertRegex(got.stdout, rf"(?m)^[* ] {way} ")
        self.assertEqual(len([line for line in got.stdout.splitlines() if line.startswith("* ")]), 1)

    def test_plans_on_a_cluster(self):
        npy(self.dir / "in.npy", [40, 30, 20], seed=7)
        msd(self.dir / "w", 3, 3)
        cluster = self.dir / "cluster.toml"
        cluster.write_text("flops = 1e9\n[[nodes]]\ncount = 2\ndevices = 1\n[links.inside]\nlatency = 0.0\nbandwidth = 1e9\n[links.between]\nlatency = 1.0\nbandwidth = 1e9\n")
        plan = lambda *words: run("infer", "--weights", self.dir / "w", "--volume", self.dir / "in.npy", "--plan", "--mesh", *words)
        got = plan("d=2", "--cluster", cluster)
        self.assertEqual(got.returncode, 0, got.stderr)
        self.assertIn("the links of " + str(cluster), got.stdout)
        # Two exchanges, each a second late: the third layer is the last, and nobody waits for it.
        self.assertRegex(got.stdout, r"simulated: +mesh, rank by rank: 2 s, of which the busiest rank computes 0\.\d+ s; 4 messages of ")
        self.assertRegex(got.stdout, r"(?m)^  mesh .* 2 s$")
        self.assertRegex(plan("d=2", "--measure").stdout, r"seconds are of [\d.]+ GFLOP/s for a rank, measured here")
        self.assertRegex(plan("d=2", "--measure", "--cluster", cluster).stdout, r"seconds are of [\d.]+ GFLOP/s, measured here, and the links of ")
        self.refused(plan("d=4", "--cluster", cluster), 4, 2)
        self.refused(self.infer("--measure"), "--measure", "--plan")
        self.assertNotIn("''", self.refused(self.infer("--seed", 1), "infer", "--seed"))   # a setting of other commands
        self.refused(self.infer("--cluster", cluster), "--cluster", "--plan")

    def test_phantoms_in_files_are_those_that_are_trained_on(self):
        """A model learns from them, and scores on them what it scores on phantoms that are made as they are read."""
        whole = ["--data.size", "24,32", "--data.phantoms", 3, "--data.angles", 12, "--data.test_samples", 3, "--data.noise", 0.05]
        for task, results in (("segment", "dice [0-9.]+, iou"), ("denoise", "mse")):
            folder, learned = self.dir / task, self.dir / f"{task}-run"
            got = run("pack", folder, "--data", "phantoms", "--data.task", task, *whole)
            self.assertEqual((got.returncode, got.stdout), (0, f"{folder}: 3 training phantoms of [24, 32], and the same number of test phantoms\n"), got.stderr)
            self.assertEqual(sorted(str(p.relative_to(folder)) for p in folder.rglob("*.npy")),
                             [f"{split}/{part}/{i}.npy" for split in ("train", "val") for part in ("inputs", "targets") for i in range(3)])
            got = run("train", "msd", "--data", "volumes", "--data.task", task, "--data.root", folder, "--data.classes", 3 if task == "segment" else 0, "--data.crop", "24,32",
                      "--data.samples", 24, "--data.batch", 2, "--epochs", 4, "--optim.lr", 0.05, "--arch.layers", 2, "--run.dir", learned)
            self.assertEqual(got.returncode, 0, got.stderr)
            scores = []
            for data in [], ["--data", "phantoms", *whole]:
                got = run("eval", learned, *data)
                self.assertEqual(got.returncode, 0, got.stderr)
                scores.append(got.stdout.splitlines()[0])
            self.assertRegex(scores[0], results)
            self.assertEqual(*scores)
            self.assertNotIn("dice 0,", scores[0])
        (self.dir / "file").touch()
        self.refused(run("pack", self.dir / "file", "--data", "phantoms"), self.dir / "file", kind="file")

    def test_another_run_does_not_go_on_with_the_tiles(self):
        npy(self.dir / "in.npy", [60, 50], seed=5)
        msd(self.dir / "w", 2, 3)
        part = lambda *words, **options: self.infer("--tile", "16", "--part", *words, **options)
        self.assertIn("part 1/2 is done", part("1/2").stdout)
        self.refused(part("2/3"), 2, "--part", "2/3")
        head = self.dir / "out.npy.tiles/inference.json"
        told = head.read_text()
        head.write_text(told.replace('"passes"', '"passages"'))
        self.refused(part("2/2"), "out.npy.tiles", kind="data")
        head.write_text(told)
        (self.dir / "out.npy.partial").unlink()   # the first part's tiles are gone with it
        self.assertIn("of part 1/2", part("2/2").stdout)
        self.assertIn("out.npy", part("1/2").stdout)
        self.assertEqual((self.dir / "out.npy").read_bytes(), self.made("--way", "whole", out="whole.npy"))
        part("1/2", out="again.npy")
        npy(self.dir / "in.npy", [60, 50], seed=6)
        self.refused(part("2/2", out="again.npy"), "volume")

    def test_a_volume_of_several_files_is_the_same_for_all_parts(self):
        msd(self.dir / "w", 2, 3)
        numbers = random.Random(2).randbytes(2 * 60 * 50)
        (self.dir / "in.npy.json").write_text('{"shape": [60, 50], "dtype": "uint16", "byte_order": "little"}')
        (self.dir / "in.npy").write_bytes(numbers)
        part = lambda number, out: self.infer("--tile", "16", "--part", f"{number}/2", out=out)
        self.assertIn("part 1/2 is done", part(1, "raw.npy").stdout)
        (self.dir / "in.npy.json").write_text('{"shape": [60, 50], "dtype": "uint16", "byte_order": "big"}')
        self.refused(part(2, "raw.npy"), "raw.npy.tiles", "volume")
        (self.dir / "in.npy.json").unlink()
        (self.dir / "in.npy").unlink()
        chunks = self.dir / "in.npy/0"   # as zarr writes them, in folders
        chunks.mkdir(parents=True)
        (self.dir / "in.npy/.zarray").write_text(json.dumps({"zarr_format": 2, "shape": [60, 50], "chunks": [60, 25], "dtype": "<u2", "order": "C", "compressor": None,
                                                             "filters": None, "fill_value": 0, "dimension_separator": "/"}))
        for i in range(2):
            (chunks / str(i)).write_bytes(numbers[i * 3000:(i + 1) * 3000])
        self.assertIn("part 1/2 is done", part(1, "zarr.npy").stdout)
        (chunks / "new").write_bytes(numbers[:3000])
        (chunks / "new").rename(chunks / "1")
        self.refused(part(2, "zarr.npy"), "zarr.npy.tiles", "volume")
        (chunks / "1").write_bytes(numbers[3000:])
        self.refused(part(2, "zarr.npy"), "zarr.npy.tiles", "volume")   # written anew: times count, too

    def test_voxels_that_are_no_numbers_or_have_no_scale(self):
        msd(self.dir / "w", 2, 3)
        values = npy(self.dir / "in.npy", [60, 50], seed=5)
        for count, (place, bad) in enumerate(((29 * 50 + 7, float("nan")), (44 * 50 + 2, float("-inf")), (59 * 50 + 49, float("nan"))), 1):
            values[place] = bad
            npy(self.dir / "in.npy", [60, 50], values)
            for words in [], ["--result", "labels", "--tile", "16"], ["--mesh", "h=2", "--way", "mesh"], ["--mesh", "h=2", "--tile", "16"]:
                self.ended(self.infer(*words), "in.npy", f"infinite: {count},", "[0, 29, 7, 0]", kind="data")
        self.ended(self.infer("--tile", "16", "--part", "2/2"), "infinite: 2,", "[0, 44, 2, 0]", kind="data")   # the part's own
        self.assertEqual(sorted(p.name for p in self.dir.iterdir()), ["in.npy", "w"])
        whole = array.array("q", range(3000))
        head = b"{'descr': '<i8', 'fortran_order': False, 'shape': (60, 50)}"
        head += b" " * (-(len(head) + 11) % 64) + b"\n"
        (self.dir / "in.npy").write_bytes(b"\x93NUMPY\1\0" + struct.pack("<H", len(head)) + head + whole.tobytes())
        self.refused(self.infer(), "int64", "--std")
        as_i64 = self.made("--std", "32767")
        short = array.array("h", whole)
        head = head.replace(b"<i8", b"<i2")
        (self.dir / "in.npy").write_bytes(b"\x93NUMPY\1\0" + struct.pack("<H", len(head)) + head + short.tobytes())
        self.assertEqual(self.made(out="short.npy"), as_i64)

    def test_a_result_that_does_not_fit_on_the_disk_leaves_nothing(self):
        msd(self.dir / "w", 2, 3)
        side = int((shutil.disk_usage(self.dir).free / 8) ** 0.5 / 1000 + 1) * 1000 + 2000
        (self.dir / "in.npy").mkdir()
        (self.dir / "in.npy/.zarray").write_text(json.dumps({"zarr_format": 2, "shape": [side, side], "chunks": [1000, 1000], "dtype": "<u2", "order": "C", "compressor": None,
                                                             "filters": None, "fill_value": 0}))
        free = shutil.disk_usage(self.dir).free
        self.ended(self.infer("--tile", "2000", "--way", "tiles"), "out.npy.partial", 8 * side * side + 128, kind="file")   # with its header
        self.assertEqual(sorted(p.name for p in self.dir.iterdir()), ["in.npy", "w"])
        self.assertGreater(shutil.disk_usage(self.dir).free, free // 2)

    def test_a_small_limit_of_addresses(self):
        npy(self.dir / "in.npy", [400, 300], seed=6)
        msd(self.dir / "w", 2, 4)
        whole = self.made("--way", "whole", out="whole.npy")
        taken = subprocess.run(["sh", "-c", 'for k in $(seq 60 5 600); do (ulimit -v ${k}000; "$@" >/dev/null 2>&1) && break; done; echo $k', "-", trireme, "info"], capture_output=True, text=True)
        for more in 14, 45, 90, 130, 200:   # beside what the process takes by itself
            room = (int(taken.stdout) + more) * 1000 * 1024
            got = subprocess.run([trireme, "infer", "--weights", self.dir / "w", "--volume", self.dir / "in.npy", "--out", self.dir / "out.npy"], env={**os.environ, "OMP_NUM_THREADS": "1"},
                                 preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (room, room)), capture_output=True, text=True)
            if more > 40 or got.returncode == 0:
                self.assertEqual(got.returncode, 0, got.stderr)
                self.assertTrue((self.dir / "out.npy").read_bytes() == whole)
                (self.dir / "out.npy").unlink()
            else:
                self.ended(got, "trireme: ", kind="out_of_memory")

    def test_refusals(self):
        npy(self.dir / "in.npy", [40, 30, 20], seed=8)
        msd(self.dir / "w", 3, 4)
        self.refused(self.infer("--mesh", "d=41"), 41, 40)
        self.refused(self.infer("--mesh", "data=2"), "'data'")
        self.refused(self.infer("--tile", "8"), 8, 10)
        self.refused(self.infer("--memory", "10kB"), "MiB", kind="out_of_memory")
        self.refused(self.infer("--memory", "much"), "--memory", "much")
        self.refused(self.infer("--tile", "0"), "--tile", "'0'")
        self.refused(self.infer("--tile", "8,8"), "--tile", 2, 3)
        self.refused(self.infer("--part", "3/2"), "--part", "3/2")
        self.refused(self.infer("--part", "3"), "--part", status=2)
        for option, wrong in ("--std", -1), ("--std", "nan"), ("--mean", "inf"):
            self.refused(self.infer(option, wrong), option, wrong)
        self.refused(self.infer("--way", "fast"), "fast")
        self.refused(self.infer("--join"), "out.npy.tiles", kind="file")
        self.refused(self.infer(out="out.tif"), "--out", "NAME.npy")
        self.refused(self.infer(out="in.npy"), "--out", "in.npy")
        self.refused(self.infer("--result", "all"), "--result", "all")
        self.refused(self.infer("--model", "unet3"), "unet3")
        self.refused(self.infer("--model", "unet3d"), "conv.bias", kind="data")
        self.refused(run("infer", "--weights", self.dir / "w"), "--volume")
        msd(self.dir / "w", 2, 4)
        self.assertEqual(self.infer("--plan").returncode, 0)   # each slice is a picture
        (self.dir / "w").write_bytes(b"no weights")
        self.refused(self.infer(), self.dir / "w", kind="data")
        msd(self.dir / "w", 3, 4)
        whole = (self.dir / "in.npy").read_bytes()
        (self.dir / "in.npy").write_bytes(whole[:-5])
        self.refused(self.infer(), "in.npy", kind="data")
        (self.dir / "in.npy").write_bytes(whole)
        (self.dir / "out.npy").touch()
        self.refused(self.infer(), "out.npy")
        self.assertEqual(sorted(p.name for p in self.dir.iterdir()), ["in.npy", "out.npy", "w"])


if __name__ == "__main__":
    unittests.main(sys.argv[4:])
