"""Ranks that fail, on MPI, on each of its ways: what is said, and that nobody waits until his patience (60 s) is over.
  mpi_failures.py MPI_FAILING MPIEXEC [TEST ...]      TRIREME_TEST_ALL=1: every failure on every way
"""
import os
import subprocess
import sys
import time
import unittest

program, mpiexec = sys.argv[1], sys.argv[2]
every = "TRIREME_TEST_ALL" in os.environ
ways = {"direct": {}, "staged": {"TRIREME_SHARED_MEMORY": "staged"}, "plain": {"TRIREME_SHARED_MEMORY": "0"}, "hosts": {"MPIR_CVAR_NOLOCAL": "1"}}
boards = {way: ways[way] for way in ("direct", "staged")}


class Failures(unittest.TestCase):
    def run_ranks(self, *words, env=None, ranks=2, launcher=(), seconds=30):
        start = time.time()
        got = subprocess.run([mpiexec, *launcher, "-n", str(ranks), program, *words], capture_output=True, text=True, timeout=90,
                             env={**os.environ, "TRIREME_TIMEOUT": "60", **(env or {})})
        self.assertNotEqual(got.returncode, 0, got.stderr)
        self.assertLess(time.time() - start, seconds, got.stderr)
        return got.stderr

    def each_way(self, among=ways, at_least=("direct",)):
        return [(way, env) for way, env in among.items() if every or way in at_least]

    def test_throw(self):
        for way, env in self.each_way(at_least=("direct", "plain", "hosts")):
            for call in ("all_reduce", "all_reduce_long", "broadcast", "recv_1") if every else ("all_reduce_long",):
                said = self.run_ranks("fail", "throw", call, env=env, ranks=3)
                self.assertIn("trireme: rank 1: the coffee is out", said)
                if way != "hosts":
                    self.assertEqual(said.count("trireme: "), 1, said)

    def test_killed(self):
        for _, env in self.each_way(at_least=("direct", "hosts")):
            self.run_ranks("fail", "kill", "all_reduce", env=env)

    def test_exit(self):
        for _, env in self.each_way():
            self.run_ranks("fail", "exit", "all_reduce", env=env)

    def test_abort_is_heard_though_its_rank_lives_on(self):
        for way, env in self.each_way(at_least=("direct", "plain")):
            for call in ("recv_1", "all_reduce_long", "broadcast_1", "barrier") if every else ("recv_1",):
                said = self.run_ranks("fail", "abort", call, env=env)
                if way != "hosts":
                    self.assertIn("ended because of no tea either", said)

    def test_who_is_missing_is_named(self):
        for way, env in self.each_way():
            for call in ("all_reduce", "all_gather", "split", "recv_1") if every else ("all_gather", "recv_1"):
                said = self.run_ranks("fail", "sleep", call, env={**env, "TRIREME_TIMEOUT": "0.5"}, ranks=3)
                if way in boards or call == "recv_1":
                    self.assertIn("rank 1", said)
                    self.assertRegex(said, "waited 0.5 s for rank 1:|recv of 1 f32 from rank 1 on rank . of 3: waited 0.5 s")
                else:
                    self.assertIn("waited 0.5 s", said)

    def test_calls_that_differ_are_named(self):
        pairs = [("all_gather", "broadcast"), ("barrier", "reduce_scatter"), ("split", "barrier"), ("all_reduce_long", "all_reduce")]
        if every:
            kinds = ("all_reduce", "all_reduce_max", "all_reduce_long", "all_reduce_none", "reduce_scatter", "all_gather", "all_gather_f64", "broadcast",
                     "broadcast_1", "all_to_all", "barrier", "split")
            pairs += zip(kinds, kinds[1:] + kinds[:1])   # test_transport has the others
        for _, env in self.each_way(at_least=("direct", "hosts")):
            for a, b in pairs:
                with self.subTest(a=a, b=b):
                    said = self.run_ranks("differ", a, b, env=env)
                    self.assertIn(f"rank 0 called {a.split('_long')[0].split('_max')[0].split('_none')[0].split('_f64')[0].split('_1')[0]}", said)

    def test_messages_of_another_size(self):
        for _, env in self.each_way(at_least=("direct", "plain")):
            for late in ("", "_late"):   # also where it was there before anybody waited for it
                said = self.run_ranks("differ", "recv_3" + late, "send_2", env=env)
                self.assertRegex(said, r"\b2 elements\b.*\b3\b")
            self.run_ranks("differ", "recv_1", "send_2", env=env)

    def test_a_world_of_ones_own(self):
        # The launcher would end the others: so it is kept from it.
        for way, env in self.each_way():
            launcher = () if way == "hosts" else ("-disable-auto-cleanup",)
            said = self.run_ranks("own", "throw", "all_reduce_long", env=env, launcher=launcher)
            self.assertIn("caught: the coffee is out", said)
            if way != "hosts":
                self.assertIn("ended because of rank 1: an exception left its World", said)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]], verbosity=1)
