"""Seeds and a dictionary for a fuzzer: make_corpus.py NAME DIRECTORY writes DIRECTORY/seeds/* and DIRECTORY/words."""
import gzip
import json
import os
import struct
import sys


def entry(dtype, shape, begin, end):
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def safetensors():
    """Headers; each is written as a whole file, and as the text alone behind a two-byte size of the data."""
    good = [
        ({}, 0),
        ({"__metadata__": {}}, 0),
        ({"__metadata__": {"format": "pt", "k\u00e9": "\u65e5\u672c"}, "a": entry("F32", [2, 2], 0, 16)}, 16),
        ({"w": entry("F64", [3], 0, 24), "b": entry("I64", [], 24, 32), "h": entry("F16", [2, 0], 32, 32)}, 32),
        ({"x": entry("BF16", [1, 2, 3], 0, 12), "m": entry("BOOL", [5], 12, 17), "u": entry("U8", [1], 17, 18)}, 18),
        ({"q": entry("F4", [2, 4], 0, 4), "s": entry("F6_E2M3", [4], 4, 7)}, 7),
    ]
    texts = [(json.dumps(header, separators=(",", ":"), ensure_ascii=False), n) for header, n in good]
    texts += [("{ }  \t\r\n", 0), ('{"a":{"shape":[18446744073709551614,2],"dtype":"F32","data_offsets":[0,4]}}', 4),
              ('{"a":1}', 0), ('{"a":{}}', 0), ("[[[[", 0), ('{"a":{"dtype":"F32"', 0), ('{"\\u0000":-1e999}', 0)]
    for text, n in texts:
        raw = text.encode()
        yield struct.pack("<Q", len(raw)) + raw + bytes(n)
        yield struct.pack("<H", n) + raw
    yield struct.pack("<Q", 2**64 - 1)


def idx():
    """Whole files, plain and packed, good and bad."""
    def plain(extents, values, kind=8):
        return struct.pack(">HBB%dI" % len(extents), 0, kind, len(extents), *extents) + values
    files = [plain([3], b"abc"), plain([2, 2, 3], bytes(range(12))), plain([0, 28, 28], b""), plain([1] * 6, b"x"),
             plain([2**32 - 1] * 3, b""), plain([2], b"\0\0\0\0", 0x0D), plain([5], b"ab"), plain([40, 50], bytes(2000))]
    for file in files:
        yield file
        yield gzip.compress(file, mtime=0)
    yield gzip.compress(files[0], mtime=0)[:-3]


WORDS = {
    idx: [b"\x1f\x8b\x08", b"\0\0\x08\x01", b"\0\0\x08\x03", b"\xff\xff\xff\xff", b"\x80\0\0\0"],
    safetensors: ['"dtype":', '"shape":[', '"data_offsets":[', '"__metadata__":{', '"F32"', '"BF16"', '"F4"', '"BOOL"', '"C64"',
                  "[0,4]", "{}", "[]", ",", "18446744073709551615", "9223372036854775807", "-1", "1.5", "null", "\\u0000",
                  "\\xff", "\\ud800"],
}

makers = {maker.__name__: maker for maker in WORDS}
if __name__ == "__main__":
    name, directory = sys.argv[1:]
    os.makedirs(os.path.join(directory, "seeds"), exist_ok=True)
    with open(os.path.join(directory, "words"), "w") as words:
        for word in WORDS.get(makers.get(name), []):
            words.write('"%s"\n' % "".join("\\x%02x" % byte for byte in (word.encode() if isinstance(word, str) else word)))
    for i, seed in enumerate(makers[name]() if name in makers else [b""]):
        with open(os.path.join(directory, "seeds", "%03d" % i), "wb") as f:
            f.write(seed)
