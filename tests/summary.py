"""Adds up meson's test logs and prints the closing line: N passed, N failed[, N skipped]."""
import json
import sys

count = {"passed": 0, "failed": 0, "skipped": 0}
for name in sys.argv[1:]:
    with open("build/meson-logs/testlog" + ("" if name == "release" else "-" + name) + ".json") as log:
        for line in log:
            test = json.loads(line)
            kind = {"OK": "passed", "EXPECTEDFAIL": "passed", "SKIP": "skipped"}.get(test["result"], "failed")
            count[kind] += 1
            if kind != "passed":
                print(f"{kind}: {test['name']} ({name})")
print(f"{count['passed']} passed, {count['failed']} failed" + (f", {count['skipped']} skipped" if count["skipped"] else ""))
sys.exit(1 if count["failed"] or not count["passed"] else 0)
