"""The trireme binary as its users meet it: what it prints, what it refuses, what it leaves behind.
  cli.py TRIREME MPIEXEC|none DATA_DIR [TEST ...]
"""
import contextlib
import csv
import fcntl
import gzip
import hashlib
import io
import json
import os
import pathlib
import pty
import random
import re
import shlex
import shutil
import signal
import struct
import subprocess
import sys
import tarfile
import tempfile
import termios
import threading
import time
import unittest
import zipfile
import zlib

import unittests
from unittests import statuses

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "tools"))   # for runs.py
trireme, mpiexec, data = os.path.abspath(os.environ.get("TRIREME_EXE", sys.argv[1])), sys.argv[2], pathlib.Path(sys.argv[3])
unmeasured = ["--run.predict", "false"]   # to measure the parts of a step takes longer than these runs do; cli_predict.py tests that
short = ["mlp", "--optim.name", "sgd", "--optim.lr", "0.1", "--optim.schedule", "one_cycle", "--data.batch", "50", "--epochs", "2", *unmeasured]
mnist = [*short, "--data.limit", "700"]   # tested on 10000 images
small = [*short, "--data.name", "synthetic", "--data.synthetic_size", "700"]


def run(*words, ranks=None, env=None, timeout=400, wrap=()):   # seconds, in which a busy machine ends under sanitizers, too
    launch = list(wrap) + ([mpiexec, "-n", str(ranks)] if ranks else [])
    return subprocess.run([*launch, trireme, *map(str, words)], capture_output=True, text=True, timeout=timeout,
                          env={**os.environ, **(env or {})})


def processes(folder, *words, program=""):
    """State by number of the processes that name the folder and have each of the words; zombies are none. program: that they run."""
    found = {}
    for path in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            line, state = (path / "cmdline").read_bytes().split(b"\0"), (path / "stat").read_text().rsplit(") ", 1)[1][0]
        except OSError:
            continue
        if state != "Z" and line[0].startswith(str(program).encode()) and any(str(folder).encode() in word for word in line) and all(word.encode() in line for word in words):
            found[int(path.name)] = state
    return found


def idx(kind, shape, payload):
    return bytes([0, 0, 8, len(shape)]) + struct.pack(f">{len(shape)}I", *shape) + payload


def png(pixels, width, height):
    def chunk(kind, body):
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
    rows = b"".join(b"\0" + pixels[y * width:(y + 1) * width] for y in range(height))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def records(data):
    """The events of a TensorBoard file (checksums: test_events)."""
    while data:
        length, = struct.unpack("<Q", data[:8])
        yield data[12:12 + length]
        data = data[16 + length:]


def fields(data):
    """A protobuf message as {field: last value}; varints become numbers."""
    def varint():
        nonlocal data
        value = shift = 0
        while True:
            byte, data = data[0], data[1:]
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value
    found = {}
    while data:
        tag = varint()
        if tag & 7 == 0:
            found[tag >> 3] = varint()
            continue
        size = {1: 8, 5: 4}.get(tag & 7) or varint()
        found[tag >> 3], data = data[:size], data[size:]
    return found


class Case(unittest.TestCase):
    def setUp(self):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="trireme-"))
        self.addCleanup(shutil.rmtree, self.dir, ignore_errors=True)

    def refused(self, got, *values, kind="usage", status=None):
        """One clear line (after whatever was logged) that names all the values; the status of the kind; nothing on stdout."""
        last = (got.stderr.strip().splitlines() or [""])[-1]
        for value in values:
            self.assertIn(str(value), last, got.stderr)
        self.assertTrue(last.startswith("trireme: "), got.stderr)
        self.assertEqual(got.returncode, status or statuses[kind], got.stderr)
        self.assertEqual(got.stdout, "")
        return last

    def signalled(self, process, number, folder):
        """Sends it: the process ends by it, or well before it came, and leaves nobody behind. Returns its status."""
        process.send_signal(number)
        said = process.communicate(timeout=60)[1]
        self.assertIn(process.returncode, (0, -number if number == signal.SIGKILL else 85), said)
        for _ in range(100):
            if not processes(folder):
                break
            time.sleep(0.05)
        self.assertEqual(processes(folder), {}, "left behind")
        return process.returncode

    def trained(self, *words, name="run", **options):
        got = run("train", *words, "--run.dir", self.dir / name, **options)
        self.assertEqual(got.returncode, 0, got.stderr[-2000:])
        return got

    def digests(self, name="run"):
        """Of the newest checkpoint's weights and optimizer: to print how bytes differ takes minutes."""
        newest = sorted((self.dir / name / "checkpoints").glob("step_*"))[-1]
        files = {kind: sorted(newest.glob(f"{kind}*.safetensors")) for kind in ("model", "optimizer")}   # one, or the shards of several ranks
        self.assertTrue(all(files.values()), newest)
        return newest.name, *(hashlib.sha256(b"".join(p.name.encode() + p.read_bytes() for p in found)).hexdigest() for found in files.values())


class Training(Case):
    def test_train_eval_predict(self):
        got = self.trained(*mnist)
        found = re.search(r"test accuracy: ([\d.]+) % \((\d+) of 10000\), top-5 ([\d.]+) %", got.stdout)
        self.assertGreaterEqual(float(found[3]), float(found[1]))
        self.assertGreater(float(found[1]), 75)
        self.assertNotIn("\r", got.stderr)   # no bar without a terminal
        lines = [json.loads(line) for line in (self.dir / "run/metrics.jsonl").read_text().splitlines()]
        self.assertEqual([line["epoch"] for line in lines if line["kind"] == "eval"], [1, 2])
        for ranks in (1, 3):
            again = run("eval", self.dir / "run", "--ranks", ranks)
            self.assertIn(found[0], again.stdout, again.stderr)
        images = gzip.decompress((data / "t10k-images-idx3-ubyte.gz").read_bytes())[16:]
        labels = gzip.decompress((data / "t10k-labels-idx1-ubyte.gz").read_bytes())[8:]
        files = []
        for i in range(8):
            files.append(self.dir / f"{i}.png")
            files[-1].write_bytes(png(images[i * 784:(i + 1) * 784], 28, 28))
        got = run("predict", "--run", self.dir / "run", *files)
        rows = [line.split("\t") for line in got.stdout.splitlines()]
        self.assertEqual([row[0] for row in rows], [str(f) for f in files], got.stderr)
        self.assertIn("predict: resized to 28 x 28, grey, / 255, minus mean 0.1307, over std 0.3081\n", got.stderr)
        self.assertGreaterEqual(sum(int(row[1]) == labels[i] for i, row in enumerate(rows)), 5)
        got = run("export", self.dir / "run", "--onnx", self.dir / "m.onnx")
        self.assertIn("m.onnx", got.stdout, got.stderr)
        onnx = (self.dir / "m.onnx").read_bytes()   # what lies in it: test_onnx
        for word in (b"input", b"output", b"1.weight", b"0.3081", b"step_00000028"):
            self.assertIn(word, onnx)
        self.refused(run("export", self.dir / "run", "--onnx", "/proc/m.onnx"), "/proc/m.onnx", kind="file")
        self.refused(run("export", "--model", "mlp", "--onnx", self.dir / "n.onnx"), "--weights")
        got = run("export", "--model", "mlp", "--weights", next((self.dir / "run/checkpoints").glob("step_*28")) / "model.safetensors",
                  "--onnx", self.dir / "n.onnx")
        self.assertEqual(got.returncode, 0, got.stderr)
        self.assertNotIn(b"/ std", (self.dir / "n.onnx").read_bytes())   # what fed it is not known

    def test_resume_in_mid_epoch_is_bitwise(self):
        for name, ranks, more in ("one", 1, []), ("two", 2, ["--optim.schedule", "cosine", "--optim.warmup_steps", 7]):   # stopped in its warm-up, and behind it
            words = ["mnist_cnn", *more, "--data.limit", 66, "--data.batch", 8, "--epochs", 2, "--ranks", ranks, "--data.name", "synthetic",
                     "--data.synthetic_size", 66, "--optim.lr", 0.02, *unmeasured]
            self.trained(*words, name=name)
            self.trained(*words, "--run.max_steps", 5, name=name + "-cut")
            self.trained(*words, "--run.max_steps", 12, "--resume", name=name + "-cut")
            self.trained(*words, "--resume", name=name + "-cut")
            self.assertEqual(self.digests(name), self.digests(name + "-cut"))
            steps = [json.loads(line)["step"] for line in (self.dir / f"{name}-cut/metrics.jsonl").read_text().splitlines()]
            self.assertEqual(steps, sorted(steps))

    def test_a_run_that_began_under_old_names_goes_on(self):
        words = [*small, "--ranks", 2, "--strategy", "one_weird_trick", "--allreduce", "default"]
        self.trained(*words, "--run.max_steps", 2)
        file = self.dir / "run/config.toml"
        old = file.read_text().replace("one_weird_trick", "one_weird").replace('"default"', '"vendor"')
        self.assertIn("one_weird\"", old)
        self.assertIn("vendor", old)
        file.write_text(old)
        got = run("train", "--resume", "--run.dir", self.dir / "run", "--run.max_steps", 4, "--ranks", 2)
        self.assertEqual(got.returncode, 0, got.stderr)
        self.refused(run("train", *small, "--ranks", 2, "--strategy", "one_weird"), "one_weird_trick")
        self.refused(run("train", *small, "--ranks", 2, "--allreduce", "vendor"), "default")

    def test_tensorboard_and_csv_say_what_metrics_say(self):
        words = [*small, "--run.tensorboard", "--run.images", 2, "--ranks", 2]   # 14 steps an epoch
        self.trained(*words, "--epochs", 4, "--run.max_steps", 50)
        self.trained(*words, "--epochs", 4, "--resume")
        lines = [json.loads(line) for line in (self.dir / "run/metrics.jsonl").read_text().splitlines()]
        rows = list(csv.DictReader((self.dir / "run/metrics.csv").read_text().splitlines()))
        self.assertEqual(len(rows), len(lines))
        def number(text):   # of two texts of 17 digits for one number Python and the writer may choose differently
            try:
                return json.loads(text)
            except json.JSONDecodeError:
                return text

        for row, line in zip(rows, lines):
            self.assertEqual({k: number(v) for k, v in row.items() if v}, line)
        scalars, others = {}, set()
        for path in sorted((self.dir / "run").glob("events.out.tfevents.*")):
            for event in records(path.read_bytes()):
                event = fields(event)
                if 7 in event:    # a session began: what was said of later steps is void
                    scalars = {key: value for key, value in scalars.items() if key[1] < event[2]}
                if 5 in event:
                    value = fields(fields(event[5])[1])
                    if 2 in value:
                        scalars[value[1].decode(), event[2]] = struct.unpack("<f", value[2])[0]
                    else:
                        others.add((value[1].decode(), event.get(2, 0)))
        for key, tag in (("loss", "train/loss"), ("lr", "lr"), ("train_top1", "train/top1"), ("test_loss", "test/loss"),
                         ("test_top1", "test/top1"), ("test_top5", "test/top5")):
            said = {line["step"]: line[key] for line in lines if key in line}
            self.assertEqual(sorted(said), [20, 40] if key in ("loss", "lr") else [14, 28, 42, 56])
            self.assertEqual(sorted(said), [step for t, step in sorted(scalars) if t == tag])
            for step, value in said.items():
                self.assertAlmostEqual(scalars[tag, step], value, delta=1e-6 * max(1, abs(value)))
        for wanted in (("_hparams_/session_start_info", 0), ("_hparams_/session_end_info", 0), ("inputs/0", 1), ("inputs/1", 51), ("weights/1.weight", 14), ("weights/5.bias", 56)):
            self.assertIn(wanted, others)
        self.assertNotIn(("inputs/2", 1), others)

    def test_print_config_is_read_back(self):
        got = run("train", "lenet5", "--optim.lr", "0.25", "--data.name", "fashion_mnist", "--print-config")
        self.assertIn("lr = 0.25", got.stdout)
        (self.dir / "c.toml").write_text(got.stdout)
        self.assertEqual(run("train", "--config", self.dir / "c.toml", "--print-config").stdout, got.stdout)
        self.assertIn("lr = 0.5", run("train", "--config", self.dir / "c.toml", "--optim.lr", "0.5", "--print-config").stdout)

    def test_recipes(self):
        folder = pathlib.Path(__file__).parents[2] / "models/recipes"
        self.assertGreaterEqual(len(list(folder.glob("*.toml"))), 5)
        for path in folder.glob("*.toml"):   # by name, as installed; the ImageNet ones on a lighter model
            model = ["resnet18"] if "imagenet" in path.stem else ["--arch.layers", 1, "--arch.width", 96, "--data.context", 8, "--data.windows", 0] if "gpt2" in path.read_text() else []
            self.trained(*model, "--config", path.stem, "--data.name", "synthetic", "--data.image_size", 32, "--data.synthetic_size", 4, "--data.batch", 2,
                         "--epochs", 1, name=path.stem)
        self.refused(run("train", "--config", "imagenet_resnet5"), "imagenet_resnet50")
        got = run("train", "vgg16", "--data.name", "synthetic", "--print-config")
        self.assertEqual(got.returncode, 0, got.stderr)
        self.trained("resnet20", "--dtype", "bf16", "--data.name", "synthetic", "--data.synthetic_size", 8, "--data.batch", 4, "--epochs", 1, name="bf16")

    def test_scripts_explain_themselves(self):
        tools = pathlib.Path(__file__).parents[2] / "tools"
        for name in "test", "setup", "quickstart", "fuzz", "sweep", "bundle":
            got = subprocess.run([tools / name, "--help"], capture_output=True, text=True)
            self.assertEqual((got.returncode, got.stderr), (0, ""), name)
            self.assertIn(f"tools/{name} [", got.stdout)
            got = subprocess.run([tools / name, "--foo"], capture_output=True, text=True)
            self.assertEqual((got.returncode, got.stdout), (2, ""), name)
            self.assertIn("--foo", got.stderr)

    def test_a_rank_outlives_the_thread_that_started_it(self):
        """A launcher's helper thread may end; only the launcher's own end kills."""
        words = [trireme, "train", *map(str, small), "--data.synthetic_size", "7000", "--run.dir", str(self.dir / "run")]
        started = []

        def start():
            started.append(subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                            env={**os.environ, "SLURM_STEP_ID": "0", "SLURM_PROCID": "0", "SLURM_NTASKS": "1"}))
            end = time.monotonic() + 60
            while not (self.dir / "run/metrics.jsonl").exists() and time.monotonic() < end:
                time.sleep(0.01)
        thread = threading.Thread(target=start)
        thread.start()
        thread.join()
        said = started[0].communicate(timeout=60)[1]
        self.assertEqual(started[0].returncode, 0, said)

    def test_help(self):
        whole = run("--help").stdout
        for status in statuses.values():
            self.assertRegex(whole, rf"\b{status}\b")
        commands = re.findall(r"(?m)^  ([a-z]+) {2,}", whole.partition("Options:")[0])
        self.assertIn("study", commands)
        for command in commands:
            short, all_of_it = run(command, "--help"), run(command, "--help-all")
            self.assertEqual(short.returncode, 0)
            self.assertIn(f"Usage: trireme {command}", short.stdout)
            self.assertLess(max(map(len, short.stdout.splitlines())), 81)
            if "--print-config" in short.stdout:
                self.assertLess(max(map(len, all_of_it.stdout.splitlines())), 81)
                self.assertIn("--optim.lr_base_size", all_of_it.stdout)
                self.assertNotIn("--optim.lr_base_size", short.stdout)
                self.assertLess(2 * len(short.stdout), len(all_of_it.stdout))
            lines = short.stdout.partition("Examples:\n")[2].replace("\\\n", " ").splitlines()
            self.assertTrue(lines, command)
            for line in map(shlex.split, (line.partition(" # ")[0] for line in lines)):   # their settings are settings
                self.assertTrue("trireme" in line or "<(trireme" in line, line)
                words = line[line.index("trireme") + 1:] if "trireme" in line else ["info"]
                if "--print-config" in short.stdout and words[0] == command and "--resume" not in words and command != "eval":
                    self.assertEqual(run(*words, "--print-config").returncode, 0, words)
        for words, meant in (["train", "--pritn-config"], "--print-config"), (["train", "--hostfil", 2], "--hostfile"), (["--verison"], "--version"), (["info", "--evn"], "--env"):
            self.refused(run(*words), words[-1] if len(words) < 3 else words[1], meant)
        self.refused(run(), "--help")
        self.refused(run("train", "--"), "--help")

    def test_environment_variables(self):
        printed = run("info", "--env", env={"TRIREME_TIMEOUT": "17", "XDG_CACHE_HOME": ""}).stdout
        self.assertRegex(printed, r'(?m)^TRIREME_TIMEOUT +300 +s +"17"$')
        self.assertRegex(printed, r'(?m)^XDG_CACHE_HOME +~/.cache +folder +""$')
        self.assertRegex(printed, r"(?m)^SLURM_NTASKS +none +ranks +not set$")
        read = set()
        for floor in "kernels", "framework", "datasets", "parallel", "models", "tools":
            for path in (pathlib.Path(__file__).parents[2] / floor).rglob("*.[ch]p*"):
                read |= set(re.findall(r'(?:getenv|environment_(?:number|text)|\bget|\bvariable)\("([A-Z_]{4,})"\)', path.read_text()))
        self.assertGreater(len(read), 15)
        self.assertEqual(read - {"PATH", "HOME"} - set(re.findall(r"(?m)^([A-Z_]+)", printed)), set())

    def test_info(self):
        got = run("info")
        self.assertEqual(got.returncode, 0)
        for word in ("version", "oneDNN", "mpi", "core", "kernels"):
            self.assertIn(word, got.stdout)

    def test_bench_divides_the_step_by_layer(self):
        for words in (["resnet20"], ["resnet20", "--infer"], ["mlp", "--ranks", "2"]):
            out = run("bench", *words, "--batch", 4, "--steps", 2).stdout
            self.assertRegex(out, r"images/s +[0-9.]+ ")
            kinds = out.split("work ")[1].split("layer ")[0].splitlines()
            shares = [float(found[1]) for line in kinds if (found := re.search(r" [\d.]+ +([\d.]+) %", line))]
            self.assertAlmostEqual(sum(shares), 100, delta=1)
            layers = [list(map(float, found)) for found in re.findall(r" +([\d.-]+) +([\d.-]+) +[\d.-]+ %", out.split("layer ")[1])]
            by_kind = sum(float(found[1]) for line in kinds if "outside kernels" not in line and (found := re.search(r" ([\d.]+) +[\d.]+ %", line)))
            self.assertAlmostEqual(sum(map(sum, layers)), by_kind, delta=0.01 * by_kind + 0.01 * len(layers))
            self.assertEqual(any(backward > 0 for _, backward in layers), "--infer" not in words)
            self.assertTrue(all(forward >= 0 and backward >= 0 for forward, backward in layers), out)
            self.assertIn("fc" if words[0] == "resnet20" else "\n1 ", out.split("layer ")[1])
        self.assertIn("(conv) [16, 3, 3, 3]", run("bench", "resnet20", "--infer", "--batch", 2, "--steps", 1).stdout)

    def test_progress(self):
        words = ["train", "mlp", "--data", "synthetic", "--data.limit", 200, "--data.batch", 20, "--epochs", 1, "--run.log_seconds", 0, *unmeasured]
        for progress in ("lines", "auto"):
            err = run(*words, "--run.progress", progress, "--run.dir", self.dir / progress, "--ranks", 2).stderr
            self.assertEqual(len(re.findall("^model ", err, re.M)), 1)   # one rank speaks
            self.assertEqual(re.findall(r"^epoch 1/1: (\d+)/10, loss [\d.]+, \d+ images/s", err, re.M), [str(n) for n in range(1, 11)], err)
            self.assertNotIn("[=", err)
        terminal, end = os.openpty()   # on one that draws nothing, lines
        subprocess.run([trireme, *map(str, words), "--run.log_seconds", "9", "--run.dir", self.dir / "dumb"], stdout=subprocess.DEVNULL, stderr=end, env={**os.environ, "TERM": "dumb"}, check=True)
        self.assertNotIn(b"\x1b", os.read(terminal, 1 << 16))
        os.close(end), os.close(terminal)
        drawn = run(*words, "--data.limit", 1024, "--data.batch", 4, "--epochs", 4, "--run.progress", "bar", "--run.dir", self.dir / "bar").stderr   # 10 times a second
        bars = re.findall(r"^epoch \d/4 \[(=*>? *)\] (\d+)/256, loss [\d.]+, ", drawn, re.M)
        self.assertRegex(drawn, r"\n\x1b\[Kepoch [1-4]/4: train loss")   # in the bar's place
        self.assertTrue(bars and all(bar.count("=") == len(bar) * int(n) // 256 for bar, n in bars), bars)

    def test_progress_on_a_narrow_terminal(self):
        ours, its = pty.openpty()
        fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 3, 9, 0, 0))   # 9 columns
        process = subprocess.Popen([str(w) for w in (trireme, "train", "mlp", "--data", "synthetic", "--data.limit", 1024, "--data.batch", 4, "--epochs", 1,
                                                     "--run.dir", self.dir / "run", *unmeasured)], stdout=subprocess.DEVNULL, stderr=its, env={**os.environ, "TERM": "xterm"})
        os.close(its)
        said = b""
        with contextlib.suppress(OSError):   # the end of a terminal
            while piece := os.read(ours, 1 << 16):
                said += piece
        os.close(ours)
        self.assertEqual(process.wait(60), 0, said)
        drawn = re.findall(rb"\r([^\r\n]*?)\x1b\[K", said)
        self.assertTrue(any(drawn) and all(len(bar) < 9 for bar in drawn), said)

    def test_paths_and_locales(self):
        """Spaces and UTF-8 in a path, in a locale of ASCII and one that no machine has: the run's files are where they were asked for."""
        for locale in "C", "xx_YY.UTF-8":
            env = {"LANG": locale, "LC_ALL": locale, "TERM": "dumb", "COLUMNS": "1"}
            place = self.dir / f"two words, ünd 漢字 {locale}" / "run"
            for words in ["train", *small, "--run.dir", place, "--run.progress", "bar", "--run.tensorboard"], ["eval", place]:
                r = run(*words, env=env)
                self.assertEqual(r.returncode, 0, r.stderr)
            self.assertIn(f"{place}/metrics.jsonl", run("train", *small, "--run.dir", place, "--resume", env=env).stdout)
            self.assertTrue((place / "metrics.jsonl").exists() and list(place.glob("events.out.*")))

    def test_runs_that_nobody_named(self):
        for _ in range(3):
            self.assertEqual(run("train", "mlp", "--data", "synthetic", "--data.limit", 60, "--epochs", 1, wrap=("env", "-C", self.dir)).returncode, 0)
        self.assertEqual(sorted(p.name for p in (self.dir / "runs").iterdir()), ["mlp", "mlp-2", "mlp-3"])

    def test_tar_shards(self):
        def shard(name, labels, size=24):
            with tarfile.open(self.dir / name, "w") as tar:
                for i, label in enumerate(labels):
                    for ending, data in ((".png", png(bytes([40 * label] * size * size), size, size)), (".cls", b"%d" % label)):
                        info = tarfile.TarInfo(f"{label}/{i}{ending}")
                        info.size = len(data)
                        tar.addfile(info, io.BytesIO(data))
        for i in range(3):
            shard(f"s-{i}.tar", [0, 1, 2, 3, 4] * 4)
        shard("test.tar", [3, 1, 4, 0])
        words = ["mlp", "--data", "tar", "--data.root", self.dir, "--data.shards", "s-{0..2}.tar", "--data.image_size", 16, "--data.batch", 12,
                 "--epochs", 30, "--optim.lr", 0.002, *unmeasured]
        got = self.trained(*words, "--data.val_shards", "test.tar", "--ranks", 2)
        self.assertIn("(4 of 4)", got.stdout, got.stderr)
        self.assertIn("60 training, 4 test samples", got.stderr)
        self.assertIn("(4 of 4)", run("eval", self.dir / "run").stdout)
        words += ["--run.dir", self.dir / "none"]
        self.refused(run("train", *words, "--data.val_shards", "test.tar", "--ranks", 4), "data.shards", 3, 4)
        self.refused(run("train", *words), "--data.val_shards")
        self.refused(run("train", *words, "--data.val_shards", "test.tar", "--data.classes", 4), "s-0.tar", "4/4.png", 4, kind="data")
        whole = (self.dir / "s-2.tar").read_bytes()
        (self.dir / "s-2.tar").write_bytes(whole[:len(whole) // 2])
        self.refused(run("train", *words, "--data.val_shards", "test.tar"), "s-2.tar", kind="data")
        self.assertFalse((self.dir / "none").exists())

    def test_import(self):
        header = b"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 1), }\n"
        with zipfile.ZipFile(self.dir / "w.npz", "w") as z:
            z.writestr("layer.weight.npy", b"\x93NUMPY\1\0" + struct.pack("<H", len(header)) + header + struct.pack("<2f", 0.5, -2))
        got = run("import", self.dir / "w.npz", "--list", "--out", self.dir / "w.safetensors")
        self.assertEqual(got.stdout, "layer.weight\tf32\t[2, 1]\n", got.stderr)
        self.assertEqual(got.stderr, f"{self.dir / 'w.safetensors'}: 1 tensors, 2 values\n")
        written = (self.dir / "w.safetensors").read_bytes()
        self.assertTrue(written.endswith(struct.pack("<2f", 0.5, -2)))
        self.assertIn(b'"layer.weight":{"dtype":"F32","shape":[2,1]', written)
        self.refused(run("import", self.dir / "w.npz"), "--out")
        with zipfile.ZipFile(self.dir / "evil.pt", "w") as z:
            z.writestr("x/data.pkl", b"\x80\2cos\nsystem\nX\2\0\0\0id\x85R.")
        self.refused(run("import", self.dir / "evil.pt", "--out", self.dir / "evil.safetensors"), "evil.pt", "os.system", kind="data")
        self.assertFalse((self.dir / "evil.safetensors").exists())

    @unittest.skipIf(mpiexec == "none", "no MPI")
    def test_mpi_trains_the_same_model(self):
        serial = self.trained(*mnist, name="one")
        parallel = self.trained(*mnist, "--allreduce", "ring", name="two", ranks=2)
        first = re.search(r"test accuracy: ([\d.]+)", serial.stdout)[1]
        self.assertAlmostEqual(float(re.search(r"test accuracy: ([\d.]+)", parallel.stdout)[1]), float(first), delta=0.1)
        self.assertEqual(parallel.stdout.count("test accuracy"), 1)

    def test_pipelines_train_the_same_model(self):
        words = ["mlp", "--data.name", "synthetic", "--data.synthetic_size", 130, "--data.batch", 40, "--dtype", "f64", "--epochs", 2, *unmeasured]
        found = lambda got: re.search(r"test accuracy: .*", got.stdout)[0].rsplit(",", 1)[0]
        serial = found(self.trained(*words, name="serial"))
        pipeline = [*words, "--strategy", "pipeline(micro=4, schedule=1f1b)", "--mesh", "pipe=2"]
        self.assertEqual(found(self.trained(*pipeline, name="pipe")), serial)
        self.trained(*pipeline, "--run.max_steps", 3, name="cut")
        self.assertEqual(found(self.trained(*pipeline, "--resume", name="cut")), serial)
        if mpiexec != "none":
            hybrid = [*words, "--strategy", "pipeline(micro=4, schedule=zb-h1) | data_parallel", "--mesh", "data=2,pipe=2"]
            self.assertEqual(found(self.trained(*hybrid, name="mpi", ranks=4)), serial)

    @unittest.skipIf(mpiexec == "none", "no MPI")
    def test_threads_and_processes_end_with_the_same_bits(self):
        alike = [*small, "--parallel.threads", 1]
        self.trained(*alike, "--ranks", 3, name="threads")
        self.trained(*alike, name="processes", ranks=3)
        self.assertEqual(self.digests("threads"), self.digests("processes"))


class Refusals(Case):
    def test_settings(self):
        self.refused(run("trian", "mlp"), "trian", "train")
        self.refused(run("train", "--optim.lrr", "0.1"), "optim.lrr", "optim.lr")
        for words, says in ((["--lr", 1], ["optim.lr"]), (["--weight-decay", 1], ["optim.weight_decay"]),
                            (["--dtype", "f23"], ["dtype", "f23", "f32", "f64"]),
                            (["--weights"], ["--help"]), (["--strategy", "pipeline(mirco=2)", "--ranks", 2], ["mirco", "micro"])):
            self.refused(run("train", "mlp", *words), *says)
        self.refused(run("train", "--optim.lr", "fast"), "optim.lr", "fast")
        self.refused(run("train", "--data.batch", "0"), "data.batch", 0)
        self.refused(run("train", "mnist_cmm"), "mnist_cmm", "mnist_cnn")
        self.refused(run("train", "--data.name", "imagnet"), "imagnet")
        self.refused(run("train", *small, "--parallel.strategy", "data_paralel"), "data_paralel", "data_parallel")
        pipeline = lambda knobs, mesh="pipe=2": run("train", *small, "--mesh", mesh, "--strategy", f"pipeline({knobs})", "--run.dir", self.dir / "run")
        self.refused(pipeline("schedule=1f1"), "'1f1'", "gpipe", "1f1b", "interleaved", "zb-h1")
        self.refused(pipeline("", "pipe=9"), "pipeline", 9)
        self.refused(pipeline("micro=51"), 51, 50)
        self.refused(pipeline("micro=3, schedule=interleaved"), 2, 3, "micro=4")
        self.refused(pipeline("", "pipe=2,data=2"), 2, "data_parallel")
        self.refused(pipeline("", "pipe=2,depth=2"), "depth", 2)
        self.assertFalse(list((self.dir / "run").glob("checkpoints/*")))
        shutil.rmtree(self.dir / "run")
        self.refused(run("train", *small, "--allreduce", "rings", "--ranks", 2), "rings", "ring")
        (self.dir / "c.toml").write_text("[optim]\nlrate = 1\n")
        self.refused(run("train", "--config", self.dir / "c.toml"), "c.toml:2", "lrate")
        (self.dir / "c.toml").write_text("[optim\n")
        self.refused(run("train", "--config", self.dir / "c.toml"), "c.toml:1")
        for name, wrong in ("TRIREME_TIMEOUT", "abc"), ("TRIREME_TIMEOUT", ""), ("TRIREME_FENCE", "yes"), ("SLURM_JOB_END_TIME", "9" * 20), ("PMI_SIZE", "-1"):
            self.refused(run("train", *small, "--run.dir", self.dir / "run", env={name: wrong}), name, f'"{wrong}"')
            self.assertFalse((self.dir / "run").exists())
        self.assertIn("TRIREME_TIMEOUT", self.refused(run("info", env={"TRIREME_TIMEOUT": "nan"})))
        self.refused(run("train", "--config", ""), "config")
        self.refused(run("eval", ""), "run", "empty")
        self.refused(run("train", *small, "--weights", self.dir / "a\nb", "--run.dir", self.dir / "weights"), r"a\nb", kind="file")
        self.assertEqual(run("train", *small, "--data.name", "a\nb").stderr.count("\n"), 1)
        self.refused(run("--foo"), "'--foo'")
        self.refused(run("--foo=1", "train"), "'--foo=1'")
        self.refused(run("train", *small, "--seed", -1), "seed", -1)
        for fault in "nan:5:1", "nan:0:-1", "nan:-1:1", "nan:0:1x", "nan:0", "nap:0:1":
            self.refused(run("train", *small, "--ranks", 2, "--run.fault", fault, "--run.dir", self.dir / "run"), "run.fault", fault)
        for missing in self.dir, self.dir / "none.toml":   # a folder, and nothing
            for words in ["train", "--config"], ["plan", "simulate", "mlp", "--cluster"], ["study", "run", "--out", self.dir / "s"]:
                with self.subTest(words=words):
                    self.refused(run(*words, missing), missing, kind="file")
        self.refused(run("train", *small, "--data.limit", 2, "--ranks", 3, "--run.dir", self.dir / "run"), "3", "2")
        self.assertFalse((self.dir / "run").exists())

    def test_data(self):
        def folder(**files):
            path = self.dir / "mnist"
            shutil.rmtree(path, ignore_errors=True)
            path.mkdir()
            good = {"train_images": idx(3, (60, 28, 28), bytes(60 * 784)), "train_labels": idx(1, (60,), bytes(60)),
                    "t10k_images": idx(3, (5, 28, 28), bytes(5 * 784)), "t10k_labels": idx(1, (5,), bytes(5))}
            for key, content in {**good, **files}.items():
                if content is not None:
                    kind, what = key.split("_")
                    (path / f"{kind}-{what}-idx{3 if what == 'images' else 1}-ubyte").write_bytes(content)
            return run("train", "mlp", "--epochs", 1, "--data.root", path, "--run.dir", self.dir / "run")
        images = idx(3, (60, 28, 28), bytes(60 * 784))
        self.refused(folder(train_images=None), "train-images", kind="file")
        self.refused(folder(train_images=images[:-1]), "train-images", kind="data")
        self.refused(folder(train_images=b"\1" + images[1:]), "train-images", kind="data")
        self.refused(folder(train_labels=idx(1, (60,), bytes(59) + b"\x0a")), 59, 10, kind="data")
        self.refused(folder(train_labels=idx(1, (59,), bytes(59))), 59, 60, kind="data")
        self.assertFalse((self.dir / "run").exists())

    def test_weights_of_another_model(self):
        self.trained(*small)
        other = next((self.dir / "run/checkpoints").glob("step_*")) / "model.safetensors"
        self.trained("lenet5", "--data.limit", 50, "--epochs", 1, name="lenet")
        got = run("eval", self.dir / "lenet", "--weights", other)
        self.assertEqual(got.returncode, statuses["data"])
        self.assertIn("0.weight", got.stderr)
        self.refused(run("eval", self.dir), self.dir, kind="file")
        self.refused(run("train", *small, "--run.dir", self.dir / "run"), "--resume")

    def test_run_directory(self):
        self.refused(run("train", *small, "--run.dir", "/proc/nothing"), "/proc/nothing", kind="file")
        (self.dir / "file").write_text("")
        self.refused(run("train", *small, "--run.dir", self.dir / "file/run", "--ranks", 2), "file/run", kind="file")

    def test_full_disk_keeps_the_previous_checkpoint(self):
        self.trained(*small, "--epochs", 3, "--run.max_steps", 14)
        before = self.digests()
        # A limit on file sizes stands for a full disk; the kernel's own ENOSPC is in test_checkpoint.
        got = run("train", *small, "--epochs", 3, "--run.dir", self.dir / "run", "--resume", wrap=["bash", "-c", 'ulimit -f 64; exec "$@"', "x"])
        self.assertNotEqual(got.returncode, 0)
        self.assertIn("checkpoints", got.stderr.strip().splitlines()[-1])
        self.assertEqual(self.digests(), before)
        self.assertEqual([p.name for p in (self.dir / "run/checkpoints").iterdir() if "tmp" in p.name], [])
        self.trained(*small, "--epochs", 3, "--resume")

    def test_nan_names_step_and_layer(self):
        self.refused(run("train", *small, "--optim.lr", 1e30, "--optim.schedule", "constant", "--run.dir", self.dir / "run"), "step", "layer", kind="numerics")


class Numbers(Case):
    """What is not finite, or not what other ranks have."""
    def test_numbers_that_are_not_finite_roll_back(self):
        """At random steps and ranks: the step is refused on all ranks before its update. Training goes on from the checkpoint before: with these samples, and the bits of a run that
        nothing has happened to; where they lead there again, without them."""
        self.trained(*small, "--ranks", 2, name="whole")
        for ranks in [None, 2] if mpiexec != "none" else [None]:
            step, rank, name = random.randrange(9, 28), random.randrange(2), f"nan{ranks}"
            with self.subTest(ranks=ranks, step=step, rank=rank):
                words = [*small, *([] if ranks else ["--ranks", 2]), "--checkpoint.steps", 4, "--run.fault", f"nantwice:{rank}:{step}"]
                got = run("train", *words, "--run.dir", self.dir / name, "--run.on_nan", "rollback", "--run.tensorboard", ranks=ranks)
                self.assertEqual(got.returncode, 0, got.stderr)
                self.assertRegex(got.stderr, rf"retry     step {step}: .*on rank {rank}.*; trying again from .*\n(.*\n)*.*rollback  step {step}: ")
                self.assertIn(f"on rank {rank}", got.stderr)
                before = (step - 1) // 4 * 4 if step <= 14 else max((step - 1) // 4 * 4, 14)   # 14 steps an epoch
                self.assertIn(f"weights of {self.dir}/{name}/checkpoints/step_{before:08}, ", got.stderr)
                self.assertEqual(json.loads((self.dir / name / "result.json").read_text())["step"], 28 - (step - before))
                self.refused(run("train", *words, "--run.dir", self.dir / (name + "stop"), "--run.finite_steps", 1, ranks=ranks), f"step {step}", f"rank {rank}", kind="numerics")   # whether the loss has it depends on the CPU's relu
                got = run("train", *words[:-1], f"nan:{rank}:{step}", "--run.dir", self.dir / (name + "once"), "--run.on_nan", "rollback", ranks=ranks)
                self.assertEqual(got.returncode, 0, got.stderr)
                self.assertRegex(got.stderr, rf"retry     step {step}: .*a transient fault")
                self.assertNotIn("rollback", got.stderr)
                self.assertEqual(self.digests(name + "once"), self.digests("whole"))

    def test_nan_anywhere_is_named_before_the_update(self):
        """In a random layer's weights or in the inputs, at random ranks and steps of each layout. TRIREME_NANS: how many in all (6, under sanitizers 3)."""
        seed = time.time_ns()
        draw = random.Random(seed)
        net = ["lenet5", "--data.name", "synthetic", "--data.synthetic_size", 600, "--data.batch", 12, "--epochs", 1, "--checkpoint.steps", 7, "--parallel.threads", 1, *unmeasured]   # 50 steps
        # Each stage writes a file of its own: two runs that measured where to cut may have other files.
        layouts = [("data=2", "data_parallel", 2, ("nan", "weight")), ("pipe=2", "pipeline(micro=2, partition=even)", 2, ("weight",)), ("tensor=2,data=2", "tensor | data_parallel", 4, ("nan", "weight")),
                   ("h=2", "spatial", 2, ("nan", "weight")), ("data=3", "zero(3)", 3, ("nan", "weight"))]
        wholes = {}
        for i in range(int(os.environ.get("TRIREME_NANS", 3 if "TRIREME_SANITIZED" in os.environ else 6))):
            mesh, strategy, ranks, kinds = draw.choice(layouts)
            kind, rank, step, back, name = draw.choice(kinds), draw.randrange(ranks), draw.randrange(9, 51), draw.random() < 0.5, f"run{i}"
            words = [*net, "--mesh", mesh, "--strategy", strategy]
            with self.subTest(mesh=mesh, kind=kind, rank=rank, step=step, back=back, seed=seed):
                if mesh not in wholes:
                    self.trained(*words, name="whole-" + mesh)
                    wholes[mesh] = self.digests("whole-" + mesh)
                got = run("train", *words, "--run.dir", self.dir / name, "--run.fault", f"{kind}:{rank}:{step}", "--run.finite_steps", 1, "--run.on_nan", "rollback" if back else "stop")
                self.assertRegex(got.stderr, rf"step {step}: loss is .*; first seen in \S.*" + (rf"on rank {rank}\b" if mesh == "data=2" else ""))
                if back:
                    self.assertEqual(got.returncode, 0, got.stderr)
                    self.assertEqual(self.digests(name), wholes[mesh])
                else:
                    self.assertEqual(got.returncode, statuses["numerics"], got.stderr)
                    kept = sorted(p.name for p in (self.dir / name / "checkpoints").iterdir() if p.name.startswith("step_"))
                    self.assertEqual(kept[-1], f"step_{(step - 1) // 7 * 7:08}")
                    self.trained("--run.dir", self.dir / name, "--resume", "--run.fault", "", "--run.override", name=name)
                    self.assertEqual(self.digests(name), wholes[mesh])

    def test_a_loss_that_jumps_rolls_back_three_times_at_most(self):
        got = run("train", "lenet5", "--data.name", "synthetic", "--data.synthetic_size", 2000, "--batch", 32, "--epochs", 5, "--checkpoint.steps", 30, "--optim.lr", 1e-5,
                  "--run.dir", self.dir / "run", "--run.on_nan", "rollback", "--run.spike", 0.9, "--ranks", 2, *unmeasured)
        self.refused(got, "step", "loss", kind="numerics")
        self.assertEqual(got.stderr.count("rollback  "), 3, got.stderr)

    def test_a_rank_whose_weights_drift_is_named(self):
        for rank in range(3):
            got = run("train", *small, "--ranks", 3, "--run.dir", self.dir / f"run{rank}", "--run.fault", f"flip:{rank}:7", "--run.digest_steps", 5)
            self.refused(got, "step 10", f"rank {rank}", 2, kind="internal")
        got = run("train", *small, "--ranks", 2, "--run.dir", self.dir / "two", "--run.fault", "flip:1:7", "--run.digest_steps", 5)
        self.refused(got, "step 10", "ranks 0", kind="internal")


class Failures(Case):
    def test_one_thread_rank_throws(self):
        start = time.time()
        got = run("train", *small, "--ranks", 3, "--run.dir", self.dir / "run", "--run.fault", "throw:1:5", timeout=60)
        self.assertLess(time.time() - start, 5)
        self.refused(got, "rank 1", "run.fault", kind="internal")

    @unittest.skipIf(mpiexec == "none", "no MPI")
    def test_one_mpi_rank_throws(self):
        start = time.time()
        got = run("train", *small, "--run.dir", self.dir / "run", "--run.fault", "throw:1:5", ranks=3, timeout=60)
        self.assertLess(time.time() - start, 5)
        self.assertNotEqual(got.returncode, 0)
        said = [line for line in got.stderr.splitlines() if line.startswith("trireme: ")]
        self.assertEqual(len(said), 1, got.stderr)
        self.assertIn("rank 1", said[0])

    def reports(self, name="run"):
        return {int(p.stem[5:]): json.loads(p.read_text()) for p in (self.dir / name / "crash").glob("rank_*.json")}

    def test_what_ends_a_rank_is_named_and_reported(self):
        """A crash, an exit and a rank that hangs, at random steps, by threads and processes: all gone, with a status other than 0, and reports."""
        for fault in "segv", "abort", "hang", "throw", "exit":
            for ranks in [None, 2] if mpiexec != "none" else [None]:
                step = random.randrange(1, 28)   # of 28
                with self.subTest(fault=fault, ranks=ranks, step=step):
                    name = f"{fault}{ranks}"
                    got = run("train", *small, *([] if ranks else ["--ranks", 2]), "--run.dir", self.dir / name, "--run.fault", f"{fault}:1:{step}", ranks=ranks, timeout=60,
                              env={"TRIREME_TIMEOUT": "2"})
                    self.assertNotEqual(got.returncode, 0, got.stderr)
                    if fault == "hang":
                        self.assertEqual(got.returncode, statuses["communicator"], got.stderr)
                    reports = self.reports(name)
                    if fault == "exit":   # there is nobody left to write one
                        continue
                    report = reports[1]
                    self.assertEqual((report["ranks"], report["phase"], report["step"]), (2, "step", step - 1))
                    self.assertTrue(report["entries"][-1]["what"])
                    self.assertGreaterEqual(report["now"], report["entries"][-1]["begun"])
                    if fault != "throw":
                        self.assertTrue(any("Trainer" in frame for frame in report["stack"]), report["stack"])
                        self.assertIn("the last actions of each rank are in " + str(self.dir / name / "crash"), got.stderr)
                    if not ranks:
                        self.assertEqual(reports.keys(), {0, 1})
                    reason = {"segv": "SIGSEGV", "abort": "SIGABRT", "hang": "watchdog: rank 1 (", "throw": "injected on rank 1"}[fault]
                    self.assertIn(reason, report["reason"])
                    self.assertIn(reason, got.stderr)

    def test_memory_that_ends_is_no_crash(self):
        """Under limits that end it in oneDNN, too, which does not look at what it gets (2.6)."""
        if "TRIREME_SANITIZED" in os.environ:   # which reserves more
            return
        for limit in 440000, 460000, 500000:   # KiB of addresses
            got = run("train", "mlp", "--data.name", "synthetic", "--data.synthetic_size", 20000, "--data.batch", 10000, "--run.max_steps", 1, "--parallel.threads", 2, *unmeasured, "--run.dir", self.dir / str(limit),
                      wrap=["bash", "-c", f'ulimit -v {limit}; exec "$@"', "bash"])
            self.assertIn(got.returncode, (0, statuses["out_of_memory"]), got.stderr)
            if got.returncode:
                self.refused(got, "memory", kind="out_of_memory")

    def test_a_job_that_was_suspended_goes_on(self):
        """Longer than a rank may hang, or wait for another."""
        words = [*small, "--data.synthetic_size", 7000]
        self.trained(*words, "--ranks", 2, name="whole")
        process = subprocess.Popen([str(w) for w in [trireme, "train", *words, "--ranks", 2, "--run.dir", self.dir / "run"]], stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True, env={**os.environ, "TRIREME_TIMEOUT": "2"})
        for _ in range(2):
            time.sleep(0.4)
            process.send_signal(signal.SIGSTOP)
            time.sleep(3)
            process.send_signal(signal.SIGCONT)
        said = process.communicate(timeout=60)[1]
        self.assertEqual(process.returncode, 0, said)
        self.assertEqual(self.digests("run"), self.digests("whole"))

    def test_singletons_are_refused(self):
        for env in ({"OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_RANK": "0"}, {"SLURM_STEP_ID": "0", "SLURM_PROCID": "1", "SLURM_NTASKS": "4", "SLURM_STEP_NUM_TASKS": "4"},
                    {"LOCAL_RANK": "1", "RANK": "1", "WORLD_SIZE": "4"}):
            got = run("train", *small, "--run.dir", self.dir / "run", env=env)
            self.refused(got, 4, kind="communicator")


if __name__ == "__main__":
    unittests.main(sys.argv[4:])
