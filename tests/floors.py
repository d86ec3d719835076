"""The house rules that a grep can check: floors, vendor headers, preprocessor conditionals, what lies at the top level."""
import pathlib
import re
import sys

root = pathlib.Path(sys.argv[1])
floors = {"kernels": 0, "framework": 1, "parallel": 2, "datasets": 2, "models": 3, "tools": 4}
# Folders within a floor, lowest first: each may include only itself and what stands before it.
sub_floors = [folder for floor, folders in {
    "kernels": "core contracts plans formulas cpu cpu/conv cuda",
    "framework": "tensor autograd ops layers optim metrics io io/foreign io/onnx",
    "parallel": "comm comm/transport comm/collectives comm/world plan async plan/check async/check strategies/codecs strategies async/strategies model split runtime analysis profile search inference",
    "datasets": "core images text volumes formats",
    "models": "registry text vision volumes",
    "tools": "training launch doctor study report backtest cli",
}.items() for folder in [f"{floor}/{name}" for name in folders.split()]]
vendors = {  # header pattern -> the only places that may include it
    r"oneapi/dnnl|dnnl": ("kernels/cpu/",),
    r"Eigen/": ("kernels/cpu/",),
    r"omp\.h": ("kernels/cpu/",),
    r"cuda|cudnn|cublas": ("kernels/cuda/", "models/examples/"),
    r"sqlite3": ("tools/study/database.cpp",),
    r"mpi\.h": ("parallel/comm/transport/mpi.cpp", "parallel/comm/transport/mpi_engine.",),
    r"tiffio\.h": ("datasets/volumes/tiff_volume.cpp",),
    r"(blosc|zstd)\.h": ("datasets/volumes/chunk_codecs.cpp",),
    r"nccl\.h": ("parallel/comm/transport/nccl.cpp",),
}
top = {"meson.build", "meson_options.txt", "README.md", "LICENSE", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "framework", "kernels", "parallel", "models",
       "datasets", "tools", "tests", "bench"}
# Folders whose files have one interface together: kernels register themselves for the contracts, strategies, models and subcommands for a list.
one_interface = {
    "kernels/cpu/": "kernels/contracts/", "kernels/cuda/": "kernels/contracts/", "framework/ops/": "framework/ops/ops.h",
    "parallel/comm/collectives/": "parallel/comm/collectives/collectives.h", "parallel/strategies/codecs/": "parallel/strategies/codecs/codecs.h", "parallel/strategies/": "parallel/strategies/strategy.h",
    "models/examples/": "programs", "datasets/volumes/no_tiff": "datasets/volumes/tiff_volume.h", "datasets/volumes/no_chunk_codecs": "datasets/volumes/chunk_codecs.h", "models/vision/vit_hf": "models/vision/vit.h", "models/vision/vit_hf.cpp": "models/vision/vit.h",  "parallel/runtime/executor_": "parallel/runtime/executor.h", "tools/cli/": "tools/cli/commands.h", "tools/doctor/": "tools/doctor/doctor.h", "parallel/profile/measure_": "parallel/profile/measure.h", "parallel/analysis/simulator_": "parallel/analysis/simulator.h", "framework/io/onnx/": "framework/io/onnx/onnx.h",
    "parallel/plan/check/": "parallel/plan/plan.h", "parallel/async/check/": "parallel/plan/plan.h", "parallel/async/strategies/": "parallel/strategies/strategy.h", "parallel/comm/transport/": "parallel/comm/world/world.h",
}
no_code = re.compile(r'//[^\n]*|R"([^(\s]*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"', re.S)
# What builds text belongs in a lambda among the arguments of check(), which calls it only for a message.
costly = re.compile(r"\b(to_string|fmt::format|strerror|place|reason|shown|listing|dump|message|in_words)\(|\bname\(\)")


def arguments(text, at):
    """The arguments of the call whose opening parenthesis ends at `at`."""
    found, begin, depth, quoted = [], at, 1, False
    while depth > 0 and at < len(text):
        c = text[at]
        if quoted:
            at += c == "\\"
            quoted = c != '"'
        elif c == '"':
            quoted = True
        elif c == "'" and not text[at - 1].isdigit():  # a character
            at = text.index("'", at + (3 if text[at + 1] == "\\" else 2))
        elif c in "([{":
            depth += 1
        elif c in ")]}":
            depth -= 1
        if depth == 0 or (depth == 1 and c == "," and not quoted):
            found.append(text[begin:at])
            begin = at + 1
        at += 1
    return found


inner = re.compile(r'"(?:\\.|[^"\\])*"|\([^()]*\)|\[[^\[\]]*\]|\{[^{}]*\}|(?<=\w)<[\w:, *&]*>')
act = re.compile(r"(?:\+\+|--|\*)?[\w.:@]+ ?(?:[-+*/|&^%]|<<|>>)?= ?[^=].*|(?:\+\+|--)[\w.:@]+|[\w.:@]+(?:\+\+|--|@)")


def joins_statements(line):
    """Whether the line is statements with commas between them: a = 1, b = 2; or f(), g();"""
    line = line.replace("->", ".").strip()
    while (flat := inner.sub(lambda m: "" if m[0][0] == "<" else "@", line)) != line:
        line = flat
    parts = re.sub(r"^(?:\} )?(?:else |(?:if(?: constexpr)?|for|while) ?@ )+", "", line).removesuffix(";").split(", ")
    return line.endswith(";") and len(parts) > 1 and not line.startswith(".") and all(map(act.fullmatch, parts))


faults = []
for path in [p for folder in [*floors, "tests", "bench"] for p in sorted((root / folder).rglob("*")) if p.suffix in (".h", ".cpp", ".cu", ".cuh")]:
    before = ";"
    for number, line in enumerate(path.read_text().splitlines(), 1):
        code = re.sub(r" *//.*", "", line)
        if ", " in code and re.search(r"[;{}]$|^ *(?:if|for|while|else)\b", before) and joins_statements(code):
            faults.append(f"{path.relative_to(root)}:{number}: several statements with commas between them: {line.strip()}")
        before = code or before
types = {}  # (namespace, name) -> the header that defines it
for folder, floor in floors.items():
    for path in sorted((root / folder).rglob("*")):
        if path.suffix not in (".h", ".cpp", ".cu", ".cuh"):
            continue
        name = str(path.relative_to(root))
        room = str(path.relative_to(root).parent)
        if room not in sub_floors and room.split("/")[-1] not in ("trireme", "examples"):
            faults.append(f"{name}: no file of code lies here; the folders are {' '.join(f for f in sub_floors if f.startswith(folder))}")
        text = path.read_text()
        for number, line in enumerate(text.splitlines(), 1):
            if m := re.match(r'#include "(\w+)/', line):
                other = floors.get(m[1])
                if m[1] != folder and (other is None or other >= floor):
                    faults.append(f"{name}:{number}: {folder} (floor {floor}) includes {m[1]}")
                lower = m and str(pathlib.PurePath(line.split('"')[1]).parent)
                if lower in sub_floors and room in sub_floors and m[1] == folder and sub_floors.index(lower) > sub_floors.index(room):
                    faults.append(f"{name}:{number}: {room} includes {lower}, which stands above it")
            if m := re.match(r'#include [<"]([^>"]+)[>"]', line):
                for pattern, places in vendors.items():
                    if re.match(pattern, m[1]) and not name.startswith(places):
                        faults.append(f"{name}:{number}: {m[1]} belongs in {' or '.join(places)}")
            if re.match(r"#\s*(if|ifdef|ifndef|elif)\b", line) and not name.startswith("kernels/cpu/dnnl."):
                faults.append(f"{name}:{number}: conditional compilation outside kernels/cpu/dnnl.*")
        if room != "models/examples" and (m := re.search(r"^using namespace .*", text, re.M)):
            faults.append(f"{name}: {m[0]} changes overloads in all files of its unit: name the namespace, or write the line in a function")
        if m := re.search(r"(?<![\w.:>])(?:std::)?(system|popen)\(", no_code.sub("", text)):
            faults.append(f"{name}: {m[1]}() gives a shell what may come from a file: start programs with posix_spawn or execve")
        if path.suffix == ".cpp" and not path.with_suffix(".h").exists() and not any(name.startswith(place) for place in one_interface):
            faults.append(f"{name}: no header of this name; the interface of a folder's many files is listed in one_interface")
        if path.suffix == ".h":  # one type of a name: two would be one to the linker
            namespace = ""
            for m in re.finditer(r"^namespace ([\w:]*) ?\{|^(?:struct|class|enum class) (\w+)(?: final)? (?::|\{)", text, re.M):
                if m[2] is None:
                    namespace = m[1]
                elif types.setdefault((namespace, m[2]), name) != name:
                    faults.append(f"{name}: {namespace}::{m[2]} is defined in {types[namespace, m[2]]}, too")
        for m in re.finditer(r"(?<![\w.>])check\(", text):
            number = text.count("\n", 0, m.start()) + 1
            given = arguments(text, m.end())
            if len(given) > 1 and re.search(r"\bErrorKind\b|\bkind\(\)", given[1]):
                del given[1]
            for argument in [a for i, a in enumerate(given) if i == 1 or i > 2]:
                if costly.search(argument) and "[&]" not in argument:
                    faults.append(f"{name}:{number}: check() is given {' '.join(argument.split())} also when all is well: make it a lambda")
for room in [*floors, *sub_floors]:
    readme = root / room / "README.md"
    if not readme.exists():
        faults.append(f"{room}: no README.md")
    elif (lines := readme.read_text().count("\n")) > 40:
        faults.append(f"{room}/README.md: {lines} lines; at most 40")
listed = (root / "tests/meson.build").read_text()   # classes of tests are run by name
for path in (root / "tests/tools").glob("cli*.py"):
    text = path.read_text()
    if f"files('tools/{path.name}'), trireme_exe, mpiexec_name]" in listed:
        continue   # as a whole
    for m in re.finditer(r"^class (\w+)\(.*?(?=^class |\Z)", text, re.M | re.S):
        if "    def test_" in m[0] and f"'{m[1]}'" not in listed:
            faults.append(f"tests/tools/{path.name}: nobody runs {m[1]}")
for readme in [root / "CONTRIBUTING.md", *(root / room / "README.md" for room in [*floors, *sub_floors])]:
    if not readme.exists():
        continue
    # In a folder's own page a file is one of that folder's, or given from it; in CONTRIBUTING any of that name will do.
    near = {p.name for p in (root if readme.parent == root else readme.parent).rglob("*") if "build" not in p.parts[len(root.parts)][:5]}
    for name in set(re.findall(r"(?<![\w/*{])([a-z]\w*\.(?:h|cpp|cu|cuh|py))\b", readme.read_text())):
        if name not in near:
            faults.append(f"{readme.relative_to(root)}: there is no {name}")
if (root / ".git").exists():
    for path in root.iterdir():
        if path.name not in top and not path.name.startswith((".", "build", "runs")):
            faults.append(f"{path.name}: not a folder or file of the top level")
print("\n".join(faults) or "floors, vendor headers and top level are as they should be")
sys.exit(1 if faults else 0)
