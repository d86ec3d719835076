"""The code blocks of a guide.
  blocks.py GUIDES OUT [FILE...]      writes the programs of the guides in a folder, and of other files, into another one
A fence's first word is the language, the others say what becomes of the block:
  cpp            all of a guide's C++ blocks, one after another, are one program, which the tests compile and run
  sh             run by the tests, in an empty folder with `trireme` in PATH; also those that draw a `picture`
  sh by-hand     not run: it installs, takes minutes, or needs what a test machine may lack
  other          not code
"""
import dataclasses
import pathlib
import re
import sys


@dataclasses.dataclass
class Block:
    language: str
    words: list
    text: str
    line: int         # of the guide, of the text's first line
    begin: int = 0    # in the guide's text, fences included
    end: int = 0


def read(path):
    guide = path.read_text()
    return [Block(m[1], m[2].split(), m[3], guide.count("\n", 0, m.start()) + 2, m.start(), m.end())
            for m in re.finditer(r"^```([\w-]*)([^\n]*)\n(.*?)^```$", guide, re.M | re.S)]


def program(path):
    """The guide's C++ blocks as one file, whose errors name lines of the guide; empty: it has none."""
    return "".join(f'#line {b.line} "{path.name}"\n{b.text}\n' for b in read(path) if b.language == "cpp")


def commands(block):
    """Lines of a shell block, continuation lines joined, without comments."""
    lines = block.text.replace("\\\n", " ").splitlines()
    return [line for line in lines if line.strip() and not line.lstrip().startswith("#")]


if __name__ == "__main__":
    for guide in [*pathlib.Path(sys.argv[1]).glob("*.md"), *map(pathlib.Path, sys.argv[3:])]:
        if text := program(guide):
            (pathlib.Path(sys.argv[2]) / f"{guide.stem}.cpp").write_text(text)
