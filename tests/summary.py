"""Adds up meson's test logs and prints what did not pass, with why it was skipped, and the closing line: N passed, N failed[, N skipped].
  summary.py [--strict] LOG...      --strict: a skip counts as failed unless its reason is one of `allowed`
"""
import json
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
    print(f"{count['passed']} passed, {count['failed']} failed" + (f", {count['skipped']} skipped" if count["skipped"] else ""))
    return 1 if count["failed"] or not count["passed"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
