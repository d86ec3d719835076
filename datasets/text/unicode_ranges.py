"""Writes unicode_ranges.cpp: the code points of the general categories L and N, of the Unicode version that the
`tokenizers` library (0.23) has: 16, by PyPI's unicodedata2 of that version.
   pip install unicodedata2==16.0.0 && python3 datasets/text/unicode_ranges.py >datasets/text/unicode_ranges.cpp"""
import sys

import unicodedata2 as unicodedata


def ranges(category):
    """[first, last] of each run of code points whose category begins so, in order."""
    found = []
    for code in range(sys.maxunicode + 1):
        if unicodedata.category(chr(code)).startswith(category):
            if found and found[-1][1] == code - 1:
                found[-1][1] = code
            else:
                found.append([code, code])
    return found


print(f"""// Written by unicode_ranges.py: letters and numbers of Unicode {unicodedata.unidata_version}.
#include "datasets/text/unicode_ranges.h"

#include <iterator>

namespace trireme::detail {{""")
for name, category in ("letter_ranges", "L"), ("number_ranges", "N"):
    print(f"\n// clang-format off\nconst CodeRange {name}[] = {{")
    line = ""
    for first, last in ranges(category):
        item = f"{{{first:#x},{last:#x}}},"
        if len(line) + len(item) > 118:
            print("  " + line)
            line = ""
        line += item
    print(f"  {line}\n}};\n// clang-format on\nconst std::size_t {name}_count = std::size({name});")
print("\n}  // namespace trireme::detail")
