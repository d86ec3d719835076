"""What the linker and the compiler were asked to harden is hardened, in the program and in the library.
  hardened.py FILE...      ELF files; readelf is binutils'
"""
import re
import subprocess
import sys


def readelf(*words):
    return subprocess.run(["readelf", "-W", *words], capture_output=True, text=True, check=True).stdout


faults = []
for file in sys.argv[1:]:
    segments, dynamic, symbols, header = readelf("-l", file), readelf("-d", file), readelf("--dyn-syms", file), readelf("-h", file)
    if "__asan_init" in symbols:
        print("SKIPPED: sanitizers come with checks of their own")
        sys.exit(77)
    for what, well in {
        "addresses are not random (PIE)": re.search(r"Type: +DYN", header),
        "the table of addresses can be written (RELRO)": "GNU_RELRO" in segments and re.search(r"\bNOW\b", dynamic),
        "the stack can be executed": re.search(r"GNU_STACK .* RW +0x", segments),
        "a segment can be written and executed": not re.search(r"LOAD .* RWE ", segments),
        "stacks have no guard (-fstack-protector-strong)": "__stack_chk_fail" in symbols,
        "no checked calls (_FORTIFY_SOURCE)": re.search(r"__(memcpy|snprintf|vsnprintf|read|memset|memmove|realpath|fdelt)_chk", symbols),
        "it looks for libraries where others may put them (RPATH)": not re.search(r"R(UN)?PATH.*(\[|:)(/tmp|\.|:|\])", dynamic),
    }.items():
        if not well:
            faults.append(f"{file}: {what}")
print("\n".join(faults) or f"{len(sys.argv) - 1} files are hardened")
sys.exit(bool(faults))
