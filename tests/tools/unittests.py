"""Runs the unittest cases of the script that calls it. What was skipped is said line by line, and ends with 77 (meson: SKIP)."""
import sys
import unittest

# Exit statuses by the kind of an error: kernels/core/error.h.
statuses = {"usage": 2, "data": 65, "file": 66, "device": 67, "communicator": 68, "numerics": 69, "out_of_memory": 70, "internal": 71}

def main(arguments):
    done = unittest.main(argv=[sys.argv[0], *arguments], exit=False).result
    for what in sorted({why for _, why in done.skipped}):
        print("SKIPPED:", what, file=sys.stderr)
    sys.exit(1 if not done.wasSuccessful() else 77 if done.skipped or done.testsRun == 0 else 0)
