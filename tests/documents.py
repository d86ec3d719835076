"""The rules for documents that a script can check: length of pages, lines and sentences, plain words, links, names of files.
  documents.py ROOT [FILE...]      FILE: only the faults of these documents, by their paths below ROOT"""
import pathlib
import re
import sys

root = pathlib.Path(sys.argv[1]).resolve()
documents = [p.relative_to(root) for p in sorted(root.rglob("*.md"))
             if not p.relative_to(root).parts[0].startswith((".", "build", "runs"))]
most_lines = {"README.md": 150, "CONTRIBUTING.md": 100}
most_columns, most_words = 100, 30
# Words that hide who does what, and what to write instead.
plain = {
    r"behind": "after", r"beside": "next to, compared with", r"so many": "that many, N", r"tells": "reports, prints, names",
    r"stands(?! for)": "is, is stored", r"goes with": "can be combined with", r"goes on": "continues", r"anew": "again",
    r"of its own": "separate, custom", r"which is named": "the message names it", r"is told": "gets, reads",
    r"whosoever": "name the noun", r"nobody": "no rank, nothing", r"(?:rank|process|worker)s? who": "which, that",
}
plain = [(re.compile(rf"\b{word}\b", re.I), instead) for word, instead in plain.items()]
folders = ("kernels", "framework", "parallel", "datasets", "models", "tools", "tests", "bench")
suffixes = r"(?:h|cpp|cu|cuh|py|sh|md)"
files = {p for folder in folders for p in (root / folder).rglob("*")} | set(root.iterdir())
names = {p.name for p in files}
faults = []


def without_code(text):
    """The text with blocks of code blanked out; lines keep their numbers."""
    keep_lines = lambda m: "\n" * m[0].count("\n")
    text = re.sub(r"^```.*?^```$|^<!--.*?-->", keep_lines, text, flags=re.M | re.S)
    return re.sub(r"(?<=\n\n)(?:    .*\n)+", keep_lines, text)


def prose(text):
    """The same without tables and headings."""
    return re.sub(r"^(\|.*|#.*|\[TOC\])$", "", without_code(text), flags=re.M)


def found(pattern, text):
    """(line, first group) of each match outside of code."""
    text = without_code(text)
    return [(text.count("\n", 0, m.start()) + 1, m[1]) for m in re.finditer(pattern, text)]


def sentences(text):
    """(line, sentence) of each sentence. A paragraph or an item of a list ends one; so does a full stop."""
    blocks, block, begin = [], [], 0
    for number, line in enumerate([*prose(text).split("\n"), ""], 1):
        if block and (not line.strip() or re.match(r"\s*([-*]|\d+\.) ", line)):
            blocks.append((begin, block))
            block = []
        if line.strip():
            begin = begin if block else number
            block.append(line)
    for begin, block in blocks:
        whole = "\n".join(block)
        at = 0
        for end in [m.end() for m in re.finditer(r"(?<!et al)(?<!\bvs)(?<!\be\.g)(?<!\bi\.e)[.?!][)*\"]*(?=\s+[\W_]*[A-Z0-9`])|\Z", whole)]:
            sentence = whole[at:end]
            if sentence.strip():
                yield begin + whole.count("\n", 0, at + len(sentence) - len(sentence.lstrip())), " ".join(sentence.split())
            at = end


def words(sentence):
    """Its words: a code span is one, and a link's address is none."""
    text = re.sub(r"\]\([^)]*\)", "]", re.sub(r"`[^`]*`", "code", sentence))
    return [word for word in text.split() if re.search(r"\w", word)]


def anchors(text):
    """What a link may ask for: headings as GitHub names them, and names in {#...}."""
    named = set()
    for heading in re.findall(r"^#+ (.*)$", without_code(text), re.M):
        named |= set(re.findall(r"\{#([\w-]+)\}", heading))
        title = re.sub(r"\s*\{#[\w-]+\}", "", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)).lower()
        named.add(re.sub(r"[^\w\- ]", "", title).replace(" ", "-"))
    return named


def check_lengths(path, text):
    lines = text.splitlines()
    if len(lines) > most_lines.get(str(path), len(lines)):
        faults.append(f"{path}: {len(lines)} lines; at most {most_lines[str(path)]}")
    in_code = False
    outside = ("```", "    ") if str(path) == "README.md" else ("|", "```", "    ")   # a README shows on narrow pages
    for number, line in enumerate(lines, 1):
        in_code ^= line.startswith("```")
        can_be_cut = " " in re.sub(r"`[^`]*`|\]\([^)]*\)", "", line.strip().removeprefix("- "))
        if len(line) > most_columns and can_be_cut and not in_code and not line.startswith(outside):
            faults.append(f"{path}:{number}: {len(line)} columns; at most {most_columns}")


def check_words(path, text):
    for line, sentence in sentences(text):
        if (count := len(words(sentence))) > most_words:
            faults.append(f"{path}:{line}: {count} words; at most {most_words}: {sentence}")
        bare = re.sub(r"`[^`]*`|\]\([^)]*\)", "", sentence)
        for pattern, instead in plain:
            if m := pattern.search(bare):
                faults.append(f"{path}:{line}: '{m[0]}'; write {instead}: {sentence}")


def check_links(path, text):
    for line, target in found(r"\]\(([^)\s]+)\)", text):
        if re.match(r"https?:|mailto:", target) or target.endswith((".html", ".svg")):
            continue   # of another site, or of the site that tools/docs/build makes and checks
        name, _, anchor = target.partition("#")
        to = (root / path.parent / name).resolve() if name else root / path
        if not to.exists():
            faults.append(f"{path}:{line}: the link {target} leads nowhere")
        elif anchor and to.suffix == ".md" and anchor not in anchors(to.read_text()):
            faults.append(f"{path}:{line}: the link {target} names no heading of that page")
        elif anchor and name and path.parent.name == "guides":
            faults.append(f"{path}:{line}: the link {target}: link the page, since Doxygen finds no heading of another page")
    for line, words_of_link in found(r"\[([^\[\]\n]*\n[^\[\]\n]*)\]\([\w-]+\.md", text) if path.parent.name == "guides" else []:
        faults.append(f"{path}:{line}: Doxygen loses the rest of a page after a link over two lines: {' '.join(words_of_link.split())}")


def check_names(path, text):
    own = {p.stem + ".cpp" for p in documents}   # the program of a guide
    for line, span in found(r"`([^`\n]+)`", text):
        name = span.split()[0].rstrip("/")
        if re.fullmatch(rf"[\w./-]*\w\.{suffixes}", name):
            if pathlib.PurePath(name).name not in names | own:
                faults.append(f"{path}:{line}: there is no file `{name}`")
            elif "/" in name and not any(str(p).endswith("/" + name) for p in files):
                faults.append(f"{path}:{line}: `{name}` is in another folder")
        elif name.startswith(tuple(f + "/" for f in folders)) and re.fullmatch(r"[\w./-]+", name) and not (root / name).exists():
            faults.append(f"{path}:{line}: there is no `{name}`")


wanted = [pathlib.Path(name) for name in sys.argv[2:]] or documents
for path in wanted:
    text = (root / path).read_text()
    check_lengths(path, text)
    check_words(path, text)
    check_links(path, text)
    check_names(path, text)
print("\n".join(faults) or f"{len(wanted)} documents are as they should be")
sys.exit(1 if faults else 0)
