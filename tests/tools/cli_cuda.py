"""The trireme binary on GPUs: emulated ones (tests/cuda_emulator), which TRIREME_CUDA_PLUGIN names, or none.
  cli_cuda.py TRIREME MPIEXEC"""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import unittests

trireme, mpiexec = sys.argv[1], sys.argv[2]
plugin = os.environ.get("TRIREME_CUDA_PLUGIN", "")
tiny = ["lenet5", "--data", "synthetic", "--data.synthetic_size", "64", "--data.batch", "16", "--run.max_steps", "3"]


def run(*words, launcher=(), **env):
    done = subprocess.run([*launcher, trireme, *map(str, words)], capture_output=True, text=True, env={**os.environ, **env}, timeout=300)
    return done.returncode, done.stdout, done.stderr


class WithoutDevices(unittest.TestCase):
    nothing = {"TRIREME_CUDA_PLUGIN": "/nowhere/libtrireme_cuda.so"}

    def refused(self, *words, kind="usage", **env):
        code, _, err = run(*words, **{**self.nothing, **env})
        self.assertEqual(code, unittests.statuses[kind], err)
        self.assertEqual(len(err.strip().splitlines()), 1, err)
        return err

    def test_info_says_why(self):
        code, out, _ = run("info", **self.nothing)
        self.assertEqual(code, 0)
        self.assertIn("no GPU to use: /nowhere/libtrireme_cuda.so: cannot open shared object file", out)

    def test_one_clear_line(self):
        self.assertIn("/nowhere", self.refused("train", *tiny, "--device", "cuda", kind="device"))
        self.assertIn("cpu:0", self.refused("train", *tiny, "--dtype", "f16"))
        self.assertIn("tf32", self.refused("bench", "lenet5", "--dtype", "tf32"))
        self.assertIn("'gpu'", self.refused("train", *tiny, "--device", "gpu"))
        for wrong in "cuda:x", "cuda:-1":
            self.assertIn("cuda:NUMBER", self.refused("train", *tiny, "--device", wrong))

    def test_a_file_that_is_no_plugin(self):
        self.assertIn("GPU", self.refused("train", *tiny, "--device", "cuda", TRIREME_CUDA_PLUGIN=trireme, kind="device"))

    def test_auto_takes_the_cpu(self):
        with tempfile.TemporaryDirectory() as folder:
            code, out, err = run("train", *tiny, "--run.dir", f"{folder}/run", **self.nothing)
            self.assertEqual(code, 0, err)
            self.assertRegex(out + err, r"\d+ threads? each")


@unittest.skipUnless(plugin, "TRIREME_CUDA_PLUGIN names no plugin")
class OnDevices(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def train(self, name, *words, **options):
        code, out, err = run("train", *tiny, "--run.dir", pathlib.Path(self.folder.name) / name, *words, **options)
        self.assertEqual(code, 0, err)
        return out + err

    def loss(self, text):
        return float(re.search(r"test accuracy: .* loss ([\d.]+)", text)[1])

    def test_info_lists_them(self):
        code, out, _ = run("info")
        self.assertEqual(code, 0)
        self.assertRegex(out, r"cuda:0 +\S+")
        all_contracts, on_cuda = re.search(r"kernels +(\d+) contracts.* (\d+) with a CUDA kernel", out).groups()
        self.assertEqual(all_contracts, on_cuda)

    def test_what_does_not_fit_gets_one_line(self):
        for why, setting in {"the driver knows CUDA 12.4, this build wants 13.0: update the driver": {"TRIREME_EMULATOR_DRIVER": "12040"},
                             "no NVIDIA driver is loaded": {"TRIREME_EMULATOR_DRIVER": "0"},
                             "the driver sees no GPU (CUDA_VISIBLE_DEVICES may hide it)": {"TRIREME_EMULATOR_DEVICES": "0"},
                             "Emulated GPU (sm_75) is too old: sm_80 is needed": {"TRIREME_EMULATOR_CARD": "75"}}.items():
            self.assertIn(f"no GPU to use: {why}", run("info", **setting)[1])
            code, _, err = run("train", *tiny, "--device", "cuda", **setting)
            self.assertEqual(code, unittests.statuses["device"], err)
            self.assertEqual(len(err.strip().splitlines()), 1, err)
            self.assertIn(why, err)

    def test_trains_what_the_cpu_trains(self):
        cpu = self.loss(self.train("cpu", "--device", "cpu"))
        on_gpu = self.train("gpu", "--device", "cuda:1")
        self.assertAlmostEqual(self.loss(on_gpu), cpu, places=3)
        self.assertIn("sm_", on_gpu)
        for dtype in ["tf32", "bf16", "f16"]:
            self.assertAlmostEqual(self.loss(self.train(dtype, "--device", "cuda", "--dtype", dtype)), cpu, places=1, msg=dtype)
        self.assertAlmostEqual(self.loss(self.train("two", "--device", "cuda", "--ranks", "2")), cpu, places=3)

    def test_a_run_goes_on(self):
        plans = {"TRIREME_PLAN_CACHE": f"{self.folder.name}/plans"}  # else each process takes what it finds fastest
        words = ["--device", "cuda", "--dtype", "f16", "--loss_scale", 1 << 24]   # so large that gradients overflow
        whole = self.train("whole", *words, **plans)
        self.train("parts", *words, "--run.max_steps", "2", **plans)
        rest = self.train("parts", *words, "--resume", **plans)
        self.assertEqual(self.loss(whole), self.loss(rest))
        def kept(name):
            return json.loads((pathlib.Path(self.folder.name) / name / "checkpoints/step_00000003/manifest.json").read_text())["metrics"]
        self.assertEqual(kept("whole"), kept("parts"))
        self.assertLess(kept("whole")["loss_scale"], 1 << 24)
        words[-1] = 128   # nothing overflows: the good steps of both starts are counted
        self.train("good", *words, "--run.max_steps", "2", **plans)
        self.train("good", *words, "--resume", **plans)
        self.assertEqual((kept("good")["loss_scale"], kept("good")["loss_scale_good_steps"]), (128, 3))
        code, out, err = run("eval", pathlib.Path(self.folder.name) / "parts", **plans)
        self.assertEqual(code, 0, err)
        self.assertEqual(self.loss(out + err), self.loss(whole))

    def test_inputs_wait_on_the_host(self):
        words = ["resnet20", *tiny[1:], "--data.image_size", "8", "--device", "cuda", "--recompute"]
        def outcome(name, *more):
            code, out, err = run("train", *words, *more, "--run.dir", f"{self.folder.name}/{name}", TRIREME_PLAN_CACHE="off")
            self.assertEqual(code, 0, err)
            return self.loss(out + err)
        self.assertEqual(outcome("there"), outcome("offloaded", "--recompute_offload"))
        plan = ["plan", "show", "resnet20", "--data", "synthetic", "--data.image_size", "8", "--data.batch", "4", "--cost", "equal", "--device", "cuda", "--recompute"]
        there, offloaded = (run(*plan, *more) for more in ([], ["--recompute_offload"]))
        self.assertEqual((there[0], offloaded[0]), (0, 0), there[2] + offloaded[2])
        self.assertNotIn("on host", there[1])
        self.assertIn("on host", offloaded[1])
        code, _, err = run("train", *tiny, "--device", "cuda", "--recompute_offload")
        self.assertEqual(code, unittests.statuses["usage"], err)
        self.assertIn("--recompute", err)

    def test_processes(self):
        if mpiexec == "none":
            self.skipTest("no MPI")
        cpu = self.loss(self.train("cpu", "--device", "cpu"))
        both = self.train("mpi", "--device", "cuda", launcher=(mpiexec, "-n", "2"))
        self.assertAlmostEqual(self.loss(both), cpu, places=3)

    def test_other_commands(self):
        model = ["--model", "lenet5", "--device", "cuda", "--data.batch", "8"]
        code, out, err = run("bench", "lenet5", "--device", "cuda", "--data.batch", "4", "--steps", "1")
        self.assertEqual(code, 0, err)
        self.assertIn("of its floor", out)
        code, out, err = run("plan", "verify", *model, "--data", "synthetic", "--steps", "1", "--mesh", "data=2,pipe=2", "--strategy",
                             "pipeline(micro=2) | data_parallel")
        self.assertEqual(code, 0, out + err)
        code, out, err = run("plan", "show", *model, "--mesh", "pipe=2", "--strategy", "pipeline(micro=2)")
        self.assertEqual(code, 0, err)

    def test_memory_that_runs_out_is_told_by_layer(self):
        code, _, err = run("train", "mnist_cnn", "--device", "cuda", "--data.batch", "256", "--data", "synthetic", "--run.dir",
                           f"{self.folder.name}/run", TRIREME_EMULATOR_MEMORY="60000000")
        self.assertNotEqual(code, 0)
        self.assertRegex(err, r"out of memory on cuda:0 in (forward|backward), \S+.* MB asked for, .* MB free .*smaller batch.*--recompute.*bf16")


if __name__ == "__main__":
    unittests.main([])
