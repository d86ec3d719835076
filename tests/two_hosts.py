#!/usr/bin/env python3
"""Two hosts on one machine: network namespaces with IPC, mount and host names of their own, MPI over TCP between them. trireme train -n
loses one of them, goes on with the other, and comes back to both. Needs root, ip and unshare.
  two_hosts.py TRIREME [TEST ...]
"""
import json
import os
import pathlib
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "tools"))
import unittests

trireme = os.path.abspath(sys.argv[1])
hosts = ["trireme-a", "trireme-b"]
words = ["mlp", "--dtype", "f64", "--data.name", "synthetic", "--data.synthetic_size", 3000, "--data.batch", 6, "--epochs", 2, "--checkpoint.steps", 20, "--optim.lr", 0.001, "--run.progress", "lines",
         "--parallel.threads", 1]
missing = [name for name in ("ip", "unshare", "mpiexec") if not shutil.which(name, path=os.environ["PATH"] + ":/usr/sbin")]


def ip(*words, **options):
    return subprocess.run(["ip", *words], capture_output=True, text=True, **options)


def inside(host):
    """Whatever follows runs there."""
    return ["ip", "netns", "exec", host, "unshare", "--uts", "--ipc", "--mount", "sh", "-c", f'hostname {host}; exec "$@"', "sh"]


def weights(run):
    found = {}
    newest = sorted((run / "checkpoints").glob("step_*[0-9]"))[-1]
    for path in newest.glob("model*.safetensors"):
        data = path.read_bytes()
        size, = struct.unpack("<Q", data[:8])
        for name, entry in json.loads(data[8:8 + size]).items():
            if name != "__metadata__":
                begin, end = entry["data_offsets"]
                found[name] = struct.unpack(f"<{(end - begin) // 8}d", data[8 + size + begin:8 + size + end])
    return found


@unittest.skipIf(os.geteuid() != 0, "needs root")
@unittest.skipIf(missing, "not installed: " + ", ".join(missing))
class TwoHosts(unittest.TestCase):
    def setUp(self):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="trireme-hosts-"))
        self.addCleanup(self.down)
        self.down(keep=True)
        for host in hosts:
            self.assertEqual(ip("netns", "add", host).returncode, 0)
            folder = pathlib.Path("/etc/netns") / host   # what ip netns exec lays over /etc
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "hosts").write_text("127.0.0.1 localhost\n" + "".join(f"10.77.0.{i + 1} {name}\n" for i, name in enumerate(hosts)))
        ip("link", "add", "wire", "netns", hosts[0], "type", "veth", "peer", "name", "wire", "netns", hosts[1], check=True)
        for i, host in enumerate(hosts):
            ip("-n", host, "address", "add", f"10.77.0.{i + 1}/24", "dev", "wire", check=True)
            ip("-n", host, "link", "set", "wire", "up", check=True), ip("-n", host, "link", "set", "lo", "up", check=True)
        # What stands for ssh: it reaches a host as long as that has not been taken away.
        shell = self.dir / "shell"
        shell.write_text(f"""#!/bin/sh
while case "$1" in -*) true ;; *) false ;; esac; do shift; done
host=$1; shift
[ ! -e {self.dir}/gone-$host ] || exit 255
exec ip netns exec "$host" unshare --uts --ipc --mount sh -c "hostname $host; $*"
""")
        shell.chmod(0o755)

    def down(self, keep=False):
        for host in hosts:
            self.kill(host)
            ip("-n", host, "link", "delete", "wire")
            ip("netns", "delete", host)
            shutil.rmtree(f"/etc/netns/{host}", ignore_errors=True)
        if not keep:
            shutil.rmtree(self.dir, ignore_errors=True)

    def kill(self, host):
        for process in ip("netns", "pids", host).stdout.split():
            try:
                os.kill(int(process), signal.SIGKILL)
            except ProcessLookupError:
                pass

    def step(self):
        return max([int(p.name[5:]) for p in (self.dir / "run/checkpoints").glob("step_*[0-9]")], default=0)

    def until(self, ready):
        end = time.monotonic() + 90
        while not ready():
            self.assertIsNone(self.process.poll(), "it ended early: " + (self.dir / "log").read_text())
            self.assertLess(time.monotonic(), end, (self.dir / "log").read_text())
            time.sleep(0.05)

    def test_a_host_is_lost_and_comes_back(self):
        got = subprocess.run([str(w) for w in [trireme, "train", *words, "--ranks", 2, "--run.dir", self.dir / "whole"]], capture_output=True, text=True)
        self.assertEqual(got.returncode, 0, got.stderr)
        line = [*inside(hosts[0]), trireme, "train", "-H", ",".join(f"{host}:1" for host in hosts), "--min-ranks", 1, "--max-restarts", 4, "--grace", 10, *words,
                "--run.dir", self.dir / "run"]
        env = {**os.environ, "HYDRA_LAUNCHER": "ssh", "HYDRA_LAUNCHER_EXEC": str(self.dir / "shell"), "HYDRA_IFACE": "wire", "UCX_TLS": "tcp,self", "UCX_NET_DEVICES": "wire",
               "OMP_WAIT_POLICY": "passive", "TRIREME_TIMEOUT": "20"}
        with open(self.dir / "log", "w") as log:
            self.process = subprocess.Popen([str(w) for w in line], stdout=log, stderr=log, env=env)
        said = lambda: (self.dir / "log").read_text()
        self.until(lambda: self.step() >= 40)
        (self.dir / f"gone-{hosts[1]}").touch()
        self.kill(hosts[1])
        self.until(lambda: "attempt 2: " in said())
        self.assertIn("going on with 1 of 2 ranks: trireme-a:1", said())
        before = self.step()
        self.until(lambda: self.step() >= before + 60)
        (self.dir / f"gone-{hosts[1]}").unlink()   # it is back, and the next attempt has it
        ranks = [int(p) for p in ip("netns", "pids", hosts[0]).stdout.split() if b"PMI_RANK=" in pathlib.Path(f"/proc/{p}/environ").read_bytes()]
        os.kill(ranks[0], signal.SIGKILL)
        self.assertEqual(self.process.wait(timeout=120), 0, said())
        result = json.loads((self.dir / "run/result.json").read_text())
        self.assertEqual((result["exit"], [a["ranks"] for a in result["attempts"]], result["step"]), ("finished", [2, 1, 2], 1000), said())
        # No sample was left out or taken twice: the weights are those of a run that nothing happened to, but for the order in which ranks' sums add.
        mine, whole = weights(self.dir / "run"), weights(self.dir / "whole")
        self.assertEqual(mine.keys(), whole.keys())
        worst = max(abs(a - b) for name in mine for a, b in zip(mine[name], whole[name]))
        self.assertLess(worst, 1e-9)
        print("largest difference of a weight:", worst, file=sys.stderr)


if __name__ == "__main__":
    unittests.main(sys.argv[2:])
