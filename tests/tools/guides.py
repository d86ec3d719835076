"""What README.md and the guides in tools/docs/guides/ say: commands run, names are where links say, every strategy has its picture, every promise its test. (tests/consumers.sh
has their C++.)
  guides.py TRIREME MPIEXEC|none commands|names|environment|site
"""
import gzip
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

root = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(root / "tools/docs"))
import blocks

trireme, mpiexec, wanted = os.path.abspath(os.environ.get("TRIREME_EXE", sys.argv[1])), sys.argv[2], sys.argv[3]
guides = [root / "README.md", *sorted((root / "tools/docs/guides").glob("*.md"))]


def few_digits(folder):
    """MNIST's first 500 images of each kind, where TRIREME_DATA finds them: guides train on all of it."""
    folder.mkdir()
    for kind in "train", "t10k":
        for what, head, each in ("images-idx3", 16, 784), ("labels-idx1", 8, 1):
            whole = gzip.decompress((root / f"datasets/mnist/{kind}-{what}-ubyte.gz").read_bytes())
            (folder / f"{kind}-{what}-ubyte").write_bytes(whole[:4] + (500).to_bytes(4, "big") + whole[8:head + 500 * each])


def commands():
    """Each guide's shell blocks in order, in one empty folder."""
    with tempfile.TemporaryDirectory() as data:
        few_digits(pathlib.Path(data) / "mnist")
        yield from commands_with(data)


def commands_with(data):
    for guide in guides:
        with tempfile.TemporaryDirectory() as folder:
            for block in blocks.read(guide):
                if block.language != "sh" or "by-hand" in block.words:
                    continue
                for command in blocks.commands(block):
                    if "mpiexec" in command and mpiexec == "none":
                        continue
                    r = subprocess.run(["bash", "-c", command], cwd=folder, capture_output=True, text=True, timeout=300,
                                       env={**os.environ, "TRIREME_DATA": data, "PATH": f"{pathlib.Path(trireme).parent}:{pathlib.Path(mpiexec).parent}:{os.environ['PATH']}"})
                    if r.returncode:
                        yield f"{guide.name}:{block.line}: {command}\n{r.stdout}{r.stderr}"


def names():
    """[`Type::function`](file): the file is there and has the name. Each strategy has a section with a picture."""
    for guide in guides:
        text = re.sub(r"^```.*?^```$", "", guide.read_text(), flags=re.M | re.S)
        for name, path in re.findall(r"\[([^\]]+)\]\(((?!https?:)[^)#]+)\)", text):
            file = guide.parent / path
            if path.endswith((".svg", "modules.html", "where.html")):
                continue  # the site's own, which tools/docs/build checks
            if not file.is_file():
                yield f"{guide.name}: {path} is not there"
            elif m := re.fullmatch(r"`(?:[\w:]*::)?(\w+)(?:\(\))?`", name):
                if not re.search(rf"\b{m[1]}\b", file.read_text()):
                    yield f"{guide.name}: {path} has no {m[1]}"
    cases = [case for path in (root / "tests").rglob("test_*.cpp") for case in re.findall(r'TEST_CASE\(\s*"((?:[^"\\]|\\.)*)', path.read_text())]
    for case in re.findall(r'^build/tests/test_\w+ "(.*)"$', (root / "tools/docs/guides/promises.md").read_text(), re.M):
        if not any(c.startswith(case[:-1]) if case.endswith("*") else c == case for c in cases):
            yield f"promises.md: there is no test case {case}"
    strategies = re.search(r"^strategies (.*)", subprocess.run([trireme, "info"], capture_output=True, text=True, check=True).stdout, re.M)[1].split()
    text = "".join((root / f"tools/docs/guides/{guide}.md").read_text() for guide in ("strategies", "asynchronous"))
    sections = dict(re.findall(r"^## (\w+)\n(.*?)(?=^## |\Z)", text, re.M | re.S))
    for strategy in strategies:
        if "```sh picture" not in sections.get(strategy, ""):
            yield f"strategies.md and asynchronous.md: no section {strategy} with a picture"


def environment():
    """The table in files.md has the variables of `trireme info --env`, cell by cell."""
    printed = subprocess.run([trireme, "info", "--env"], capture_output=True, text=True, check=True).stdout
    head, rest = printed.split("\n", 1)
    default, unit, value = (head.index(column) for column in ("default", "unit or values", "value now"))
    known = {row[:default].strip(): [row[default:unit].strip(), row[unit:value].strip(), " ".join(meaning.split())]
             for row, meaning in re.findall(r"^(\w.*)\n((?:    .*\n)+)", rest, re.M)}
    guide = root / "tools/docs/guides/files.md"
    section = re.search(r"^## Environment variables\n(.*?)(?=^## |\Z)", guide.read_text() if guide.exists() else "", re.M | re.S)
    if not section:
        yield "files.md: there is no section 'Environment variables' with the table of `trireme info --env`"
        return
    rows = [[cell.strip().replace("`", "") for cell in line.strip().strip("|").split("|")] for line in section[1].splitlines() if line.startswith("|")]
    table = {name: cells for name, *cells in rows if re.fullmatch("[A-Z_]+", name)}
    for name in sorted(known.keys() | table.keys()):
        if known.get(name) != table.get(name):
            yield f"files.md: {name}: the guide says {table.get(name)}, trireme info --env {known.get(name)}"


def site():
    if not shutil.which("doxygen"):
        print("SKIPPED: doxygen is not installed")
        sys.exit(77)
    with tempfile.TemporaryDirectory() as folder:
        r = subprocess.run([root / "tools/docs/build", trireme, f"{folder}/site"], capture_output=True, text=True, timeout=300)
        if r.returncode:
            yield r.stderr
            return
        for page in ("index", "tour", "batch", "strategies", "extending", "where", "modules", "classtrireme_1_1Step", "group__floor__framework__ops"):
            if not (pathlib.Path(folder) / f"site/{page}.html").exists():
                yield f"there is no {page}.html"


faults = list({"commands": commands, "names": names, "environment": environment, "site": site}[wanted]())
print("\n".join(faults) or f"{wanted}: as the guides say")
sys.exit(1 if faults else 0)
