"""Chooses the tests of a run and writes their names, one a line, to build/tests-release.txt and build/tests-sanitizers.txt.
  tiers.py quick|default|all [SLICE]

quick    the tests of the suite `unit` that are not `slow` (tests/meson.build), as built.
default  all tests as built except those marked `sliced`; under the sanitizers the tests that handle memory (suite `memory`);
         and one slice of what is left. The commit's hash modulo the number of slices chooses the slice, so a commit
         always runs the same tests. SLICE chooses another one.
all      everything.

Prints what is left out. A test that is left out here runs in the slice of another commit, and with `tools/test --all`.
"""
import json
import pathlib
import subprocess
import sys
import zlib

slices = 8


def commit_slice():
    """The commit's hash modulo the number of slices; None outside of a git checkout."""
    try:
        commit = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout
        return int(commit[:8], 16) % slices
    except (OSError, subprocess.CalledProcessError):
        return None


def choose(tests, tier, number):
    """Lists of (setup, name): what runs, and what is left out."""
    suites = {t["name"]: {s.split(":")[-1] for s in t["suite"]} for t in tests}
    release = [("release", name) for name in suites]
    sanitizers = [("sanitizers", name) for name, of in suites.items() if "whole" not in of]
    if tier == "all":
        return release + sanitizers, []
    if tier == "quick":
        chosen = [item for item in release if "unit" in suites[item[1]] and not suites[item[1]] & {"slow", "sliced"}]
        return chosen, [item for item in release if item not in chosen]
    fixed = [item for item in release if "sliced" not in suites[item[1]]]
    fixed += [item for item in sanitizers if "memory" in suites[item[1]]]
    rest = sorted(item for item in release + sanitizers if item not in fixed)
    mine = [item for item in rest if zlib.crc32(" ".join(item).encode()) % slices == number]   # of a name alone: machines differ in what they have
    return fixed + mine, [item for item in rest if item not in mine]


def main(words):
    tier, of_commit = words[0], commit_slice()
    number = int(words[1]) if len(words) > 1 else of_commit or 0
    tests = json.loads(subprocess.run(["meson", "introspect", "--tests", "build"], capture_output=True, text=True, check=True).stdout)
    chosen, left = choose(tests, tier, number)
    for setup in "release", "sanitizers":
        lines = [name + "\n" for of, name in chosen if of == setup]
        pathlib.Path(f"build/tests-{setup}.txt").write_text("".join(lines))
    text = []
    if tier == "default":
        text.append(f"slice {number} of 0 to {slices - 1}, chosen by " + ("--slice" if len(words) > 1 else "default: there is no commit" if of_commit is None else "the commit"))
    for setup in "release", "sanitizers":
        names = [name for of, name in left if of == setup]
        if names:
            text.append(f"left out ({setup}, {len(names)}): {' '.join(names)}")
    pathlib.Path("build/tests-left-out.txt").write_text("\n".join(text) + "\n" if text else "")


if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1] not in ("quick", "default", "all") or (len(sys.argv) > 2 and not (sys.argv[2].isdigit() and int(sys.argv[2]) < slices)):
        sys.exit(f"tiers: quick, default or all is expected, and a slice from 0 to {slices - 1}, not {' '.join(sys.argv[1:])}")
    main(sys.argv[1:])
