"""Adds up meson's test logs. Prints what did not pass and the reasons of skips, what tests/tiers.py left out, the minutes
and lines of the run, and the closing line: N passed, N failed[, N skipped].
  summary.py [--strict] LOG...      --strict: a skip counts as failed unless its reason is one of `allowed`
"""
import json
import os
import pathlib
import re
import sys

# What tools/setup cannot give a machine. It installs everything else that a test may lack.
allowed = (
    r"a full disk \(mounting a tmpfs needs root\)",
    r"an unwritable directory \(root that cannot change its user\)",
    r"this CPU ",      # has no such instructions
    r"this kernel ",   # forbids a call
    r"needs root",
    r"no ext4 on a loop device ",   # a container forbids the mount
    r"one core",
    r"sanitizers come with ",       # the build itself has sanitizers
)


product = ("kernels", "framework", "parallel", "datasets", "models", "tools")   # folders


def lines_of(folder):
    """Lines of a folder's programs that hold more than a comment: C++, CUDA, Python, shell, JavaScript, HTML and CSS."""
    count = 0
    for path in pathlib.Path(folder).rglob("*"):
        if not path.is_file() or "__pycache__" in path.parts:
            continue
        script = path.suffix == "" and os.access(path, os.X_OK)
        if script or path.suffix in (".h", ".cpp", ".cu", ".cuh", ".py", ".sh", ".js", ".html", ".css"):
            comment = "#" if script or path.suffix in (".py", ".sh") else "//"
            lines = (line.strip() for line in path.read_text(errors="replace").splitlines())
            count += sum(1 for line in lines if line and not line.startswith(comment))
    return count


def print_growth():
    """What grows: the minutes of build and tests (build/times.txt, which tools/test writes) and the lines of the product."""
    times = pathlib.Path("build/times.txt")
    for line in times.read_text().splitlines() if times.exists() else []:
        name, *seconds = line.split("\t")
        wall, user, system = (float(s.replace(",", ".")) for s in seconds)   # some locales write a comma
        print(f"{name}: {wall / 60:.1f} minutes, {(user + system) / 60:.1f} of CPU")
    lines = {folder: lines_of(folder) for folder in product}
    print(f"product lines: {sum(lines.values())} (" + ", ".join(f"{folder} {n}" for folder, n in lines.items()) + ")")


def main(words):
    strict = "--strict" in words
    count = {"passed": 0, "failed": 0, "skipped": 0}
    for name in words:
        if name == "--strict":
            continue
        with open("build/meson-logs/testlog" + ("" if name == "release" else "-" + name) + ".json") as log:
            for line in log:
                test = json.loads(line)
                kind = {"OK": "passed", "EXPECTEDFAIL": "passed", "SKIP": "skipped"}.get(test["result"], "failed")
                said = "\n".join(test.get(stream) or "" for stream in ("stdout", "stderr"))
                reasons = sorted(set(re.findall(r"^SKIPPED: *(.*\S)", said, re.M)))
                if kind == "skipped" and not reasons:
                    reasons = ["no reason given"]
                if strict and kind != "failed" and any(not re.match("|".join(allowed), why) for why in reasons):
                    kind = "failed"
                count[kind] += 1
                if kind != "passed" or reasons:
                    print(f"{kind}: {test['name']} ({name})")
                for why in reasons:
                    print(f"    skipped: {why}")
    left = pathlib.Path("build/tests-left-out.txt")
    print(left.read_text() if left.exists() else "", end="")
    print_growth()
    print(f"{count['passed']} passed, {count['failed']} failed" + (f", {count['skipped']} skipped" if count["skipped"] else ""))
    return 1 if count["failed"] or not count["passed"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
