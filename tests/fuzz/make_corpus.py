"""Seeds and a dictionary for a fuzzer: make_corpus.py NAME DIRECTORY writes DIRECTORY/seeds/* and DIRECTORY/words."""
import base64
import gzip
import io
import json
import os
import struct
import sys
import tarfile
import zipfile
import zlib


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


def zipped(method=zipfile.ZIP_STORED, **entries):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as z:
        for name, data in entries.items():
            z.writestr(zipfile.ZipInfo(name), data, method)
    return out.getvalue()


def tar():
    """Archives in three formats, with samples and without."""
    for form in (tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
        for names in ([], ["a/1.jpg", "a/1.cls", "a/2.png", "a/2.json"], ["n" * 90 + "/" + "m" * 60 + "/7.jpeg", "x"]):
            out = io.BytesIO()
            with tarfile.open(fileobj=out, mode="w", format=form, pax_headers={"comment": "x"}) as archive:
                for name in names:
                    data = {"cls": b"7\n", "json": b'{"label": 3}'}.get(name.split(".")[-1], b"image")
                    info = tarfile.TarInfo(name)
                    info.size, info.mtime = len(data), 1.5
                    archive.addfile(info, io.BytesIO(data))
            yield out.getvalue().rstrip(b"\0") + bytes(1536)


def cifar():
    yield from (b"", bytes(3073), b"\x09" + bytes(3072), bytes(3074), b"\x0a" + bytes(3072), b"\0\x64" + bytes(3072), bytes(100))


def npz():
    """Archives, and arrays alone."""
    def array(descr, order, shape, data, version=1):
        header = b"{'descr': '%s', 'fortran_order': %s, 'shape': %s, }\n" % (descr, order, shape)
        return b"\x93NUMPY" + bytes([version, 0]) + struct.pack("<H" if version == 1 else "<I", len(header)) + header + data
    arrays = [array(b"<f4", b"False", b"(2, 3)", bytes(24)), array(b">i2", b"True", b"(2, 2)", b"abcdefgh"), array(b"|b1", b"False", b"(3,)", b"\1\0\2", 2),
              array(b"<f2", b"False", b"()", b"ab"), array(b"|O", b"False", b"(1,)", b"x"), array(b"<f8", b"True", b"(0, 5)", b"", 3),
              array(b"<i8", b"True", b"(1, 2, 1)", bytes(16)), array(b"|i1", b"False", b"(9223372036854775807, 9)", b"")]
    yield from arrays
    for method in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        yield zipped(method, **{"a.npy": arrays[0], "b/c.npy": arrays[1], "e.npy": arrays[5]})
        yield zipped(method, **{"a.npy": array(b"|u1", b"False", b"(3000,)", bytes(3000))})
    yield zipped()


def pt():
    """Archives, and pickles alone, over a storage "0" of 16 bytes and one "1" of 96."""
    def text(word):
        return b"X" + struct.pack("<I", len(word)) + word
    def tensor(key, kind, elements, size, strides, offset=0):
        storage = b"(" + text(b"storage") + b"ctorch\n%sStorage\n" % kind + text(key) + text(b"cpu") + b"K%ctQ" % elements
        numbers = [b"(" + b"".join(b"K%c" % n for n in group) + b"t" for group in (size, strides)]
        return b"ctorch._utils\n_rebuild_tensor_v2\n(" + storage + b"K%c" % offset + numbers[0] + numbers[1] + b"\x89ccollections\nOrderedDict\n)RtR"
    def state(*tensors):
        return b"\x80\2ccollections\nOrderedDict\n)Rq\0(" + b"".join(text(b"%d" % i) + t for i, t in enumerate(tensors)) + b"u}" + text(b"_metadata") + b"Nsb."
    a, b = tensor(b"0", b"Float", 4, (2, 2), (2, 1)), tensor(b"1", b"Double", 12, (3, 4), (1, 3))
    c, d = tensor(b"1", b"BFloat16", 48, (5,), (0,), 3), tensor(b"1", b"Half", 48, (2, 0), (1, 1))
    parameter = b"ctorch._utils\n_rebuild_parameter\n" + a + b"\x88N\x87R"
    pickles = [state(a), state(a, b, c, d), state(parameter), b"\x80\2}" + text(b"model") + state(b, b)[2:-1] + b"s.",
               b"\x80\4\x95" + bytes(8) + b"}\x94\x8c\1a" + a + b"s.", state(tensor(b"1", b"Bool", 96, (200, 200), (0, 0))),
               b"\x80\2]q\0h\0ah\0\x8a\3abce.", b"\x80\2cos\nsystem\n" + text(b"id") + b"\x85R.", b"\x80\2((((ttt\x85\x86G" + bytes(8) + b"\x87NJ" + bytes(4) + b".",
               b"\x80\2ctorch\nSize\n(K\1K\2t\x85R."]
    yield from pickles
    for pickle in pickles[:4]:
        yield zipped(**{"x/data.pkl": pickle, "x/data/0": bytes(16), "x/data/1": bytes(96), "x/version": b"3\n"})
    yield zipped(**{"x/data.pkl": pickles[0], "x/byteorder": b"big"})


# libjpeg's: grey 9 x 8; 4:2:0 21 x 18; the same, progressive; CMYK 8 x 8.
JPEGS = [
    "/9j/4AAQSkZJRgABAQAAAQABAAD/2wBDABQODxIPDRQSEBIXFRQYHjIhHhwcHj0sLiQySUBMS0dARkVQWnNiUFVtVkVGZIhlbXd7gYKBTmCNl4x9lnN+gXz/"
    "wAALCAAIAAkBAREA/8QAFQABAQAAAAAAAAAAAAAAAAAAAwb/xAAYEAACAwAAAAAAAAAAAAAAAAAAYQMEFP/aAAgBAQAAPwCZjrobMj//2Q==",
    "/9j/4AAQSkZJRgABAQAAAQABAAD/2wBDACAWGBwYFCAcGhwkIiAmMFA0MCwsMGJGSjpQdGZ6eHJmcG6AkLicgIiuim5woNqirr7EztDOfJri8uDI8LjKzsb/"
    "2wBDASIkJDAqMF40NF7GhHCExsbGxsbGxsbGxsbGxsbGxsbGxsbGxsbGxsbGxsbGxsbGxsbGxsbGxsbGxsbGxsbGxsb/wAARCAASABUDASIAAhEBAxEB/8QA"
    "GAABAQEBAQAAAAAAAAAAAAAAAAMEAgX/xAAcEAEAAwACAwAAAAAAAAAAAAAAAQIDESExUWH/xAAYAQADAQEAAAAAAAAAAAAAAAABAgQABf/EABwRAAICAgMA"
    "AAAAAAAAAAAAAAABAgMSMSEiM//aAAwDAQACEQMRAD8A8emS9Mfi9MmimRI9gV2mWuHXgbozmY6jgDOBYreDjNf0BF5s5NeytY6AZaK0f//Z",
    "/9j/4AAQSkZJRgABAQAAAQABAAD/2wBDACgcHiMeGSgjISMtKygwPGRBPDc3PHtYXUlkkYCZlo+AjIqgtObDoKrarYqMyP/L2u71////m8H////6/+b9//j/"
    "2wBDASstLTw1PHZBQXb4pYyl+Pj4+Pj4+Pj4+Pj4+Pj4+Pj4+Pj4+Pj4+Pj4+Pj4+Pj4+Pj4+Pj4+Pj4+Pj4+Pj4+Pj/wgARCAASABUDASIAAhEBAxEB/8QA"
    "GAABAQEBAQAAAAAAAAAAAAAAAAIDAQT/xAAXAQEBAQEAAAAAAAAAAAAAAAABAwAE/9oADAMBAAIQAxAAAAHy3dhm1FeWHNQ1f//EABYQAQEBAAAAAAAAAAAA"
    "AAAAABEAIP/aAAgBAQABBQIiIjP/xAAYEQACAwAAAAAAAAAAAAAAAAAAAQIQEv/aAAgBAwEBPwFSNCr/xAAYEQACAwAAAAAAAAAAAAAAAAAAARARQf/aAAgB"
    "AgEBPwFFoyP/xAAUEAEAAAAAAAAAAAAAAAAAAAAw/9oACAEBAAY/Ah//xAAXEAEBAQEAAAAAAAAAAAAAAAABABAR/9oACAEBAAE/ISGBCcjC/9oADAMBAAIA"
    "AwAAABCH/wB8/8QAFhEAAwAAAAAAAAAAAAAAAAAAAAEQ/9oACAEDAQE/ECVf/8QAGREAAQUAAAAAAAAAAAAAAAAAAAEQITFB/9oACAECAQE/EJMbEo//xAAa"
    "EAACAgMAAAAAAAAAAAAAAAABEAAhMUFR/9oACAEBAAE/EEIq4B6Xkwn/2Q==",
    "/9j/7gAOQWRvYmUAZAAAAAAA/9sAQwCgbniMeGSgjIKMtKqgvvD///Dc3PD//////////////////////////////////////////////////////////8AA"
    "FAgACAAIBEMRAE0RAFkRAEsRAP/EABQAAQAAAAAAAAAAAAAAAAAAAAP/xAAWEAEBAQAAAAAAAAAAAAAAAAAAARL/2gAOBEMATQBZAEsAAD8AKDyGQz//2Q==",
]


def image():
    """JPEG and PNG files, whole and cut."""
    files = [base64.b64decode(text) for text in JPEGS]
    chunk = lambda kind, body: struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
    for bits, kind, channels, interlaced in (8, 2, 3, 0), (8, 0, 1, 0), (16, 6, 4, 0), (8, 3, 1, 0), (8, 6, 4, 1), (1, 0, 1, 1):
        row = b"\1" + bytes(range(7 * channels * bits // 8 or 1))
        palette = chunk(b"PLTE", bytes(range(60))) if kind == 3 else b""
        files.append(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 7, 5, bits, kind, 0, 0, interlaced)) + palette +
                     chunk(b"IDAT", zlib.compress(row * 9)) + chunk(b"IEND", b""))
    for file in files:
        yield file
        yield file[:-20]


def tiff_file(order, pages, big=False):
    """Pages of (tags, strips): tags {number: (type, values)}, to which the strips' offsets and lengths are added (of tiles if there are tile tags)."""
    offset, count, entry, head = ("Q", "Q", 20, 16) if big else ("I", "H", 12, 8)
    file = bytearray((b"II" if order == "<" else b"MM") + struct.pack(order + "H", 43 if big else 42) + (struct.pack(order + "HH", 8, 0) if big else b""))
    file += struct.pack(order + offset, 0)
    link = head - struct.calcsize(offset)
    for tags, strips in pages:
        tags, places = dict(tags), []
        for strip in strips:
            places.append(len(file))
            file += strip + b"\0" * (len(strip) % 2)
        tiled = 322 in tags
        tags[324 if tiled else 273] = ("I", places)
        tags[325 if tiled else 279] = ("I", [len(strip) for strip in strips])
        entries = b""
        for number in sorted(tags):
            kind, values = tags[number]
            data = struct.pack(order + kind * len(values), *values)
            room = struct.calcsize(offset)
            if len(data) > room:
                at = len(file)
                file += data + b"\0" * (len(data) % 2)
                data = struct.pack(order + offset, at)
            entries += struct.pack(order + "HH" + offset, number, {"B": 1, "H": 3, "I": 4}[kind], len(values)) + data.ljust(room, b"\0")
        file[link:link + struct.calcsize(offset)] = struct.pack(order + offset, len(file))
        file += struct.pack(order + count, len(tags)) + entries
        link = len(file)
        file += struct.pack(order + offset, 0)
    return bytes(file)


def tiff_volume():
    """Pages in strips and tiles, as they are and by PackBits, LZW's end code alone, and deflate."""
    def tags(width, height, bits=8, channels=1, form=1, compression=1, rows=None, tile=None, colours=1):
        all = {256: ("I", [width]), 257: ("I", [height]), 258: ("H", [bits] * channels), 259: ("H", [compression]), 262: ("H", [colours]), 277: ("H", [channels]), 339: ("H", [form] * channels)}
        all.update({322: ("I", [tile]), 323: ("I", [tile])} if tile else {278: ("I", [rows or height])})
        return all
    for order in "<>":
        for big in (False, True):
            yield tiff_file(order, [(tags(5, 3, rows=2), [bytes(range(10)), bytes(5)])] * 3, big)
            yield tiff_file(order, [(tags(20, 17, 16, tile=16), [bytes(512)] * 4)] * 2, big)
        yield tiff_file(order, [(tags(4, 4, 32, form=3), [bytes(64)])])
        yield tiff_file(order, [(tags(4, 2, 8, 3, colours=2), [bytes(24)])])
        yield tiff_file(order, [(tags(6, 4, 16, form=2, compression=32773), [b"\xd1\0"])])
        yield tiff_file(order, [(tags(6, 4, 16, compression=8), [zlib.compress(bytes(48))])] * 2)
        yield tiff_file(order, [(tags(6, 4, 8, compression=5), [b"\x80\x00\x40\x40"])])
        yield tiff_file(order, [(tags(17, 9, 64, form=3, compression=8, tile=16), [zlib.compress(bytes(2048))] * 2)])
    for said in (b"ImageJ=1.5\nimages=3\n\0", b'{"shape": [3, 2, 4], "truncated": true}\0'):   # slices without pages
        yield tiff_file("<", [({270: ("B", list(said)), **tags(4, 2)}, [bytes(8)])]) + bytes(40)
    yield tiff_file("<", [(tags(2**31, 2**31, rows=1), [b"ab"])])
    yield tiff_file("<", [(tags(8, 8), [bytes(64)]), (tags(8, 9), [bytes(72)])])


def volume_headers():
    """The JSON beside raw numbers, .zarray, .npy files, and chunks of 4,096 bytes."""
    yield struct.pack("<4B3I", 2, 1, 2, 2, 4096, 4096, 4112) + bytes(4096)   # Blosc: as they are; by zlib, shuffled
    for flags, packed in ((0x70, zlib.compress(bytes(4096))), (0x71, zlib.compress(bytes(range(256)) * 16)), (0x74, zlib.compress(bytes(range(256)) * 16))):
        yield struct.pack("<4B5I", 2, 1, flags, 2, 4096, 4096, 24 + len(packed), 20, len(packed)) + packed
    yield bytes.fromhex("28b52ffd60000f") + struct.pack("<I", 4096 << 3 | 3)[:3] + bytes(1)   # Zstandard: a block of one byte, repeated
    yield json.dumps({"shape": [2, 3, 4], "dtype": "uint16", "byte_order": "big", "offset": 8}).encode()
    yield json.dumps({"shape": [2, 3], "dtype": "bool", "voxel": {"size": [1, 2.5]}}).encode()
    for change in ({}, {"compressor": {"id": "zlib", "level": 1}, "order": "F", "dimension_separator": "/"}, {"fill_value": "NaN", "dtype": ">f8"}, {"filters": []},
                   {"shape": [5, 6, 7, 2], "chunks": [2, 3, 4, 1], "fill_value": None}, {"fill_value": -7, "dtype": "<i8", "compressor": {"id": "gzip"}}):
        about = {"zarr_format": 2, "shape": [40, 50], "chunks": [16, 64], "dtype": "<u2", "compressor": None, "fill_value": 0, "order": "C", "filters": None}
        about.update(change)
        yield json.dumps(about).encode()
    for descr, order, shape, size in ((b"<u2", b"False", b"(3, 4)", 24), (b">f4", b"True", b"(2, 3, 5)", 120), (b"|b1", b"False", b"(2, 1, 3, 2)", 12), (b"<u8", b"True", b"(1, 1)", 8)):
        header = b"{'descr': '%s', 'fortran_order': %s, 'shape': %s, }\n" % (descr, order, shape)
        yield b"\x93NUMPY\1\0" + struct.pack("<H", len(header)) + header + bytes(size)


def store_spec():
    """Lists of tensors, good and bad."""
    good = ("store 80\nweight same 0 [5,3] f32 cpu:0 0.weight\nno_decay same 16 [5] f32 cpu:1 0.bias\n"
            "weight filter 32 [3,3,5] f32 cuda:0 a b\nbuffer same 0 [] f64 cpu:0 2.running_mean\n")
    yield good.encode()
    for old, new in [("f32", "f64"), ("80", "1099511627776"), ("[5,3]", "[1048576,1048576]"), ("16 ", "3 "), ("0.bias", "0.weight"),
                     ("weight same", "wieght same"), ("[3,3,5]", "[9223372036854775807,9223372036854775807]"), ("f64", "f66"),
                     ("[5]", "[5"), ("[5]", "[1,1,1,1,1,1,1]"), ("cpu:1", "cpu:-1"), ("\n", ""), ("store", "")]:
        yield good.replace(old, new).encode()


def ledger():
    """A head, and lines that get their hashes from the fuzzer, good and bad."""
    line = {"cell": "serial", "config_hash": "0" * 64, "device_seconds": 0.5, "mesh": "", "number": 1, "previous": "PREVIOUS", "ranks": 1, "run": "runs/serial/seed_1",
            "scaling": "strong", "seconds": 0.5, "seed": 1, "status": "started", "strategy": "", "time": "2026-11-25T17:41:46.123Z", "why": ""}
    def text(*changes):
        return "".join("=" + json.dumps(line | {"number": i + 1} | change, separators=(",", ":"))[:-1] + "\n" for i, change in enumerate(changes)).encode()
    for good in text(), text({}), text({}, {"status": "finished"}), text({}, {"status": "failed", "why": "\u00fc\n"}, {}):
        yield b"\0" + good
        yield good
        yield b"1 abc\n\0" + good
    for bad in {"number": 3}, {"number": 1e300}, {"number": 9223372036854775807}, {"ranks": 1.5}, {"seed": -2**63}, {"run": 3}, {"previous": ""}, {"seconds": "1"}:
        yield b"\0" + text({}, bad, {})
    yield b"\0" + text({})[:-9]


def measurements():
    """Tables of steps that were measured, and objects a line, good and bad."""
    good = "# here\nranks,seconds,scaling,batch,evidence\n1,0.5,weak,64,real\n2,0.25,strong,,emulated\n"
    lines = '{"ranks": 1, "seconds": 0.5}\n{"ranks": 2, "seconds": "0.25", "scaling": "weak", "batch": 64, "evidence": "emulated"}\n'
    yield good.replace("\n", "\r\n").encode()
    for text in good, lines:
        yield text.encode()
        for old, new in [("0.5", "nan"), ("0.25", "1e999"), ("64", "-1"), ("2", "2147483648"), ("weak", "we\\nak"), ("ranks", "rank"), ("}", "")]:
            yield text.replace(old, new).encode()


def cluster():
    """Cluster files, good and bad."""
    good = ('name = "two kinds"\njitter = 0.25\nseed = 7\nflops = 2e12\n[[nodes]]\ncount = 4\ndevices = 8\nspeed = 1.5\n[[nodes]]\ndevices = 1\n'
            "[links.inside]\nlatency = 2e-6\nbandwidth = 300e9\n[links.between]\nlatency = 0.5\nbandwidth = inf\n")
    yield good.encode()
    yield b"links.between = { latency = 1, bandwidth = 2 }\n[[nodes]]\ndevices = 1\n[[nodes]]\ndevices = 1\n"
    for old, new in [("two kinds", "a\\u007f\\\\\\n\\\""), ("devices = 8", "devices = 99999999"), ("count = 4", "count = 16777216"), ("0.25", "nan"), ("2e-6", '"2e-6"'),
                     ("[[nodes]]", "[nodes]"), ("speed", "sped"), ("[links.inside]", "[links]"), ("bandwidth = inf\n", ""), ("= 7", "= -7"), ("name", "nodes")]:
        yield good.replace(old, new).encode()


def tokenizer():
    """Tokenizer files, good and bad, and texts."""
    def bpe(vocab, merges, words={"type": "ByteLevel", "add_prefix_space": False, "use_regex": True}, added=[], **model):
        return json.dumps({"added_tokens": added, "normalizer": None, "pre_tokenizer": words,
                           "model": {"type": "BPE", "vocab": vocab, "merges": merges, **model}}, ensure_ascii=False).encode()
    vocab = {c: i for i, c in enumerate(["a", "b", "\u0120", "\u010a", "1", "2", "ab", "abab", "\u0120ab", "\u00e9", "\u65e5"])}
    split = {"type": "Sequence", "pretokenizers": [{"type": "Split", "behavior": "Isolated", "invert": False, "pattern": {"Regex": "(?i:'s|'t|'re|'ve|'m|'ll|'d)|"
             "[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"}},
             {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False}]}
    merges = ["a b", "ab ab", "\u0120 ab"]
    added = [{"id": 11, "content": "<|end|>", "normalized": False, "special": True}, {"id": 6, "content": "ab", "normalized": True}]
    yield bpe(vocab, merges)
    yield bpe(vocab, [m.split() for m in merges], split, added, ignore_merges=True)
    yield bpe(vocab, merges, {"type": "ByteLevel"}, added[:1], unk_token=None, dropout=None)
    yield b'{"trireme_tokenizer":"bytes"}'
    yield '{"trireme_tokenizer":"characters","characters":"\\n ab\u00e9\u65e5"}'.encode()
    yield json.dumps(vocab).encode() + b"\0#version: 0.2\n" + "\n".join(merges).encode()
    yield " don't  I'LL\r\n\n they'\u017f\t 123 4567 na\u00efve\u3000\u65e5\u672c!? <|a  ".encode() + b"\xff\xe2\x80"


def token_file():
    """nanoGPT's and llm.c's files, good and bad; also the header's first words before the tokens."""
    tokens = struct.pack("<5H", 1, 2, 50256, 65535, 0)
    yield tokens
    yield tokens[:-1]
    for magic, version, count, body in ((20240520, 1, 5, tokens), (20240801, 7, 2, tokens[:8]), (20240520, 2, 5, tokens), (20240520, 1, -1, b""), (20240801, 7, 2**31 - 1, tokens)):
        head = struct.pack("<3i", magic, version, count)
        yield head + bytes(1012) + body
        yield head + body


WORDS = {
    tokenizer: ['"model":{', '"vocab":{', '"merges":[', '"added_tokens":[', '"pre_tokenizer":{"type":"ByteLevel"}', '"content":', '"id":', '"normalized":', '"ignore_merges":true',
                '"add_prefix_space":true', '"use_regex":false', '"trireme_tokenizer":', '"characters"', '"bytes"', "\u0120", "\u010a", "'s", "'ll", "\u017f", "\u3000", b"\xff", b"\0", "#version", "a b"],
    token_file: [struct.pack("<i", 20240520), struct.pack("<i", 20240801), struct.pack("<i", 1), struct.pack("<i", 7)],
    ledger: ['"number":', '"previous":"PREVIOUS"', '"ranks":', '"seconds":', '"status":"finished"', ',"hash":"', '"}', "9223372036854775807", "-1", "1e999", "null", "\n=", b"\0"],
    measurements: ["ranks", "seconds", "scaling", "batch", "evidence", "weak", "strong", "real", "emulated", ",", "\n", '{"ranks": 1, "seconds": 1}', "1e999", "nan"],
    cluster: ["name = ", "jitter = ", "seed = ", "flops = ", "[[nodes]]\n", "count = ", "devices = ", "speed = ", "[links.inside]\n", "[links.between]\n", "links = {",
              "latency = ", "bandwidth = ", "inf", "nan", "1e999", "9223372036854775807", '"\\u007f"', "\'\'\'", "=", "{ }", "[ ]"],
    image: [b"\xff\xd8\xff", b"\xff\xc0", b"\xff\xc2", b"\xff\xc4", b"\xff\xda", b"\xff\xdb", b"\xff\xd9", b"\xff\xdd", b"IHDR", b"IDAT", b"PLTE", b"tRNS", b"IEND"],
    idx: [b"\x1f\x8b\x08", b"\0\0\x08\x01", b"\0\0\x08\x03", b"\xff\xff\xff\xff", b"\x80\0\0\0"],
    tar: ["ustar", "path=", "size=", "9 path=a\n", "GNU.sparse.", ".jpg", ".cls", ".json", '{"label": 1}', '{"cls": 1}', "0000000001", b"\x80\0\0\0\0\0\0\0\0\0\0\1", "../"],
    cifar: [b"\x0a", b"\x64"],
    npz: ["PK\1\2", "PK\3\4", "PK\5\6", "PK\6\6", "PK\6\7", "'descr': ", "'fortran_order': ", "'shape': (", "True", "False", "'<f8'", "'>f2'", "'|b1'",
          "9223372036854775807", ", }", b"\x93NUMPY\1\0", b"\xff\xff\xff\xff"],
    pt: ["PK\1\2", "PK\3\4", "PK\5\6", b"\x80\2", "ccollections\nOrderedDict\n)R", "ctorch._utils\n_rebuild_tensor_v2\n(", "ctorch._utils\n_rebuild_parameter\n(",
         "ctorch\nHalfStorage\n", "ctorch\nCharStorage\n", "ctorch\nSize\n", "tQ", "tR", "}b", b"\x8a\x08\0\0\0\0\0\0\0\x40", b"J\xff\xff\xff\xff", "X\1\0\0\0", "h\0", "q\0",
         b"\x93", b"\x94", b"\x95", b"\x8c\1", b"\x85", b"\x86", b"\x87", "state_dict"],
    tiff_volume: [b"II*\0", b"MM\0*", b"II+\0\x08\0\0\0", b"MM\0+\0\x08\0\0"] + [struct.pack(order + "HH", tag, kind) for order in "<>" for tag, kind in (
        (254, 4), (256, 4), (257, 3), (258, 3), (259, 3), (262, 3), (266, 3), (270, 2), (273, 16), (277, 3), (278, 4), (279, 4), (284, 3), (317, 3), (322, 3), (323, 3), (324, 4), (325, 4), (339, 3))],
    volume_headers: ['"shape": [', '"chunks": [', '"dtype": "', '"byte_order": "big"', '"little"', '"offset": ', '"zarr_format": 2', '"order": "F"', '"compressor": {"id": "gzip"}', '"filters": null',
                     '"fill_value": ', '"Infinity"', '"-Infinity"', '"dimension_separator": "/"', '"<f2"', '"|b1"', "uint64", "float16", "18446744073709551615", "9223372036854775807", "-1", "1e999",
                     b"\x93NUMPY\1\0", "'descr': ", "'fortran_order': True", "'shape': ("],
    store_spec: ["store ", "weight ", "no_decay ", "buffer ", "same ", "filter ", "[1,2]", "[]", "f32 ", "f64 ", "i64 ", "cpu:0 ", "cuda:1 ", "1099511627777",
                 "9223372036854775807", "\n"],
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
