"""Compares our readers with the reference libraries on random files.

    readers.py READ_FILES [--python PYTHON] [--count N] [--seed S] [--only I] [READER ...]

READ_FILES is the program tests/read_files.cpp. READER: zarr, tiff, npy, safetensors, pt, pictures, tar, tokenizers.
A reader is left out if its library is missing. Each file is a function of the reader's name, the seed and the file's
number, so `--only I` repeats one of them and keeps it. A generator says for each file whether our reader must read it (then every
value is compared with the library's) or must refuse it with status 65 (then the message must match an expression).
All else is a difference: the script prints it and exits with 1.
"""
import argparse
import contextlib
import datetime
import importlib
import io
import json
import os
import random
import re
import shutil
import struct
import subprocess
import sys
import tarfile
import tempfile
import time
import unicodedata
import zipfile
import zlib

try:
    import numpy as np
except ImportError:
    np = None

NUMBERS = ["uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64", "float16", "float32", "float64"]
OURS = {"f32": "float32", "f64": "float64", "i8": "int8", "i16": "int16", "i32": "int32", "i64": "int64", "u8": "uint8",
        "bool": "bool", "boolean": "bool"}


class Difference(Exception):
    pass


def want(good, *what):
    if not good:
        raise Difference(" ".join(map(str, what)))


class Reader:
    """The program, which answers one request after the other."""

    def __init__(self, program):
        self.process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def ask(self, *request):
        """status, and (about, arrays by name, bytes) or the message."""
        self.process.stdin.write("\t".join(request).encode() + b"\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        want(line, "the program ended with", self.process.poll())
        status, size = map(int, line.split())
        answer = self.process.stdout.read(size)
        if status:
            return status, answer.decode("utf-8", "replace")
        head, rest = answer.split(b"\n", 1)
        about, arrays, at = json.loads(head), [], 0
        for each in about.get("arrays", []):
            raw = each["dtype"] == "bf16"
            kind = np.dtype("uint16" if raw else OURS[each["dtype"]])
            count = int(np.prod(each["shape"], dtype=np.int64))
            array = np.frombuffer(rest, kind, count, at).reshape(each["shape"])
            at += count * kind.itemsize
            arrays.append((each["name"], widened(array) if raw else array))
        return 0, (about, arrays, rest)


class Case:
    """A file: what to ask, and what must come: same(about, arrays, rest) compares, or the message matches `refused`.
    strict: we may refuse the file by a message that matches, though the library reads it."""

    def __init__(self, *request, same=None, refused=None, strict=None):
        self.request, self.same, self.refused, self.strict = request, same, refused, strict

    def check(self, reader):
        """Whether our reader read the file. Raises Difference."""
        status, answer = reader.ask(*self.request)
        if self.refused:
            want(status, "read, but is to be refused by:", self.refused)
            want(status == 65 and "\n" not in answer and len(answer) < 1000, "status", status, answer)
            want(re.search(self.refused, answer), "refused by:", answer, "instead of:", self.refused)
            return False
        if status == 65 and self.strict and re.search(self.strict, answer):
            return False
        want(status == 0, "refused with", status, answer)
        self.same(*answer)
        return True


def widened(halves):
    """bf16, whose bits are these, as f32."""
    return (np.atleast_1d(halves).astype(np.uint32) << 16).view(np.float32).reshape(halves.shape)


def same_values(name, ours, theirs):
    """Every number is the same, NaN and the sign of 0 too; ours may be of a wider type."""
    want(ours.shape == theirs.shape, name, "is", ours.shape, "instead of", theirs.shape)
    if ours.dtype.kind == "f":
        with np.errstate(invalid="ignore"):  # of signalling NaNs
            theirs = theirs.astype(ours.dtype)
            good = np.array_equal(ours, theirs, equal_nan=True)
        nan = np.isnan(ours)
        good = good and np.array_equal(np.signbit(ours)[~nan], np.signbit(theirs)[~nan])
    else:
        good = np.array_equal(ours, theirs) if theirs.dtype.kind == "b" else all(
            int(a) == int(b) for a, b in zip(ours.ravel().tolist(), theirs.ravel().tolist()))
    want(good, name, "has other values:", ours.dtype, theirs.dtype, ours.ravel()[:8], theirs.ravel()[:8])


def numbers(rng, shape, kind):
    """All bit patterns, among them NaN, infinities, subnormal numbers; or small integers."""
    if kind == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    kind = np.dtype(kind)
    count = int(np.prod(shape, dtype=np.int64))
    if rng.random() < 0.3:
        return rng.integers(0, 5, shape).astype(kind)
    return np.frombuffer(rng.bytes(count * kind.itemsize), kind).reshape(shape)


def sides(dice, axes, most):
    return tuple(dice.randint(1, most) for _ in range(axes))


def volume(theirs, kind):
    """What must come of a volume."""
    def same(about, arrays, _):
        want(about["type"] == kind, "type", about["type"], "instead of", kind)
        want(about["shape"] == list(theirs.shape), "shape", about["shape"], "instead of", theirs.shape)
        whole = theirs.reshape({2: (1, *theirs.shape, 1), 3: (*theirs.shape, 1)}.get(theirs.ndim, theirs.shape))
        same_values("the volume", arrays[0][1], whole)
        box = tuple(slice(n // 4, n // 4 + (n - n // 4 + 1) // 2) for n in whole.shape)
        same_values("a part", arrays[1][1], whole[box])
    return same


# Zarr v2, by zarr (2.18 or 3).


def zarr_file(dice, rng, path):
    import numcodecs
    import zarr
    axes = dice.choice([1, 2, 2, 3, 3, 3, 4, 4, 5])
    kind = dice.choice(NUMBERS + ["bool"] + ["complex64", "datetime64[s]", "S3"] * (dice.random() < 0.2))
    shape = sides(dice, axes, {1: 200, 2: 40, 3: 14}.get(axes, 7))
    refused = "two to four extents" if axes in (1, 5) else None
    if dice.random() < 0.02:
        shape, refused = (0, *shape[1:]), r"\"shape\" is no number of 1 or more|two to four extents"
    chunks = tuple(dice.randint(1, max(n, 1) + 3) for n in shape)
    compressor = dice.choice([None, numcodecs.Zlib(dice.randint(0, 9)), numcodecs.GZip(dice.randint(0, 9)),
                              numcodecs.Zstd(dice.randint(-3, 9))] +
                             [numcodecs.Blosc(name, dice.randint(0, 9), dice.randint(-1, 2), dice.choice([0, 0, 16, 256]))
                              for name in ("lz4", "lz4hc", "blosclz", "zlib", "zstd")] +
                             [numcodecs.LZ4(), numcodecs.BZ2(), numcodecs.LZMA()] * (dice.random() < 0.1))
    filters = [numcodecs.Delta(kind)] if kind in NUMBERS[:8] and dice.random() < 0.03 else dice.choice([None, None, []])
    options = dict(order=dice.choice("CF"), dimension_separator=dice.choice("./"))
    fill = 0
    if kind in NUMBERS + ["bool"]:
        fill = dice.choice([0, 1, None, numbers(rng, (1,), kind)[0].item()])
        if kind.startswith("float") and dice.random() < 0.3:
            fill = dice.choice([float("nan"), float("inf"), -float("inf"), -0.0, 0.1])
    if kind in ("complex64", "datetime64[s]", "S3"):
        refused, fill = '"dtype" is|two to four|no number of 1 or more', None
        array = rng.integers(0, 100, shape).astype("int64").astype(kind)
    else:
        array = numbers(rng, shape, kind)
    if compressor is not None and compressor.codec_id in ("lz4", "bz2", "lzma"):
        refused = refused or 'compressor .* is not read|"filters" are not read'
    if filters and not refused:
        refused = '"filters" are not read'
    dtype = np.dtype(kind) if kind == "S3" else np.dtype(kind).newbyteorder(dice.choice("<>"))
    if zarr.__version__ >= "3":
        if kind in ("datetime64[s]", "S3", "complex64") or filters:
            return None  # zarr 3 wants other arguments for these
        options["zarr_format"] = 2
        options["config"] = {"write_empty_chunks": dice.random() < 0.5}
        fill = 0 if fill is None else fill
        options["order"] = options.pop("order")
    else:
        options["write_empty_chunks"] = dice.random() < 0.5
    store = zarr.create(shape=shape, chunks=chunks, dtype=dtype, compressor=compressor, filters=filters,
                        fill_value=fill, store=path, overwrite=True, **options)
    if fill is not None and dice.random() < 0.4:  # chunks that are not written have the fill value
        for _ in range(dice.randint(0, 3)):
            box = tuple(slice(*sorted((dice.randint(0, n), dice.randint(0, n)))) for n in shape)
            store[box] = array[box]
    else:
        store[...] = array
    if dice.random() < 0.3:
        store.attrs["units"] = "µm"
    if dice.random() < 0.1 and not refused:  # some other file in the folder
        with open(os.path.join(path, ".DS_Store"), "w") as file:
            file.write("x")
    theirs = np.asarray(zarr.open(path, mode="r")[...])
    return Case("volume", path, same=volume(theirs, kind), refused=refused)


# TIFF, by tifffile.


def tiff_file(dice, rng, path):
    import tifffile
    path += ".tif"
    kind = dice.choice(NUMBERS + NUMBERS[:4])
    channels = dice.choice([1, 1, 1, 1, 3, 4, 2])
    pages = dice.choice([1, 1, 2, 3, 7])
    height, width = sides(dice, 2, 70)
    refused = None
    options = {"metadata": None, "photometric": "rgb" if channels in (3, 4) else "minisblack"}
    if channels in (2, 4):
        options["extrasamples"] = [dice.choice(["unassalpha", "assocalpha", "unspecified"])]
    if channels == 1 and dice.random() < 0.1:
        options["photometric"] = "miniswhite"
    if channels > 1:
        options["planarconfig"] = "contig"
    if dice.random() < 0.5:
        options["tile"] = (16 * dice.randint(1, 3), 16 * dice.randint(1, 3))
    else:
        options["rowsperstrip"] = dice.randint(1, height)
    options["compression"] = dice.choice([None, None, "zlib", "zlib", "lzw", "packbits", "lzma", "zstd"])
    if options["compression"] in ("zlib", "lzw", "lzma", "zstd") and dice.random() < 0.5:
        options["predictor"] = "floatingpoint" if kind.startswith("float") else "horizontal"
    shape = (pages, height, width, channels) if channels > 1 else (pages, height, width)
    array = numbers(rng, shape, kind)
    file = dict(bigtiff=dice.random() < 0.3, byteorder=dice.choice("<>"))
    way = dice.choice(["plain"] * 8 + ["shaped", "imagej", "ome", "pyramid", "planar", "palette", "bool", "complex",
                                       "volumetric", "odd bits", "jpeg", "mixed", "tags", "truncated"])
    if way == "planar" and channels > 1:
        array, options["planarconfig"] = np.moveaxis(array, -1, 1), "separate"
        refused = "channels as separate planes"
    elif way == "palette":
        array, kind = numbers(rng, (pages, height, width), "uint8"), "uint8"
        for key in ("extrasamples", "planarconfig", "predictor"):
            options.pop(key, None)
        options.update(photometric="palette", colormap=np.zeros((3, 256), np.uint16))
        refused = "photometric interpretation 3"
    elif way in ("bool", "complex"):
        kind = {"bool": "bool", "complex": "complex64"}[way]
        array = rng.integers(0, 2, array.shape).astype(kind)
        options.pop("predictor", None)
        if way == "bool":
            options["compression"] = None
        refused = "samples of (1|64) bits"
    elif way == "odd bits" and channels == 1:
        kind, bits = "uint16", dice.choice([9, 10, 12, 14])
        array = rng.integers(0, 2**bits, array.shape).astype(kind)
        options.update(bitspersample=bits, compression=None)
        options.pop("predictor", None)
        refused = "samples of %d bits" % bits
    elif way == "jpeg" and channels in (1, 3):
        kind, array = "uint8", rng.integers(0, 256, array.shape).astype("uint8")
        options["compression"] = "jpeg"
        options.pop("predictor", None)
        options.pop("rowsperstrip", None)
        refused = None if channels == 1 else "photometric interpretation 6"
    with tifffile.TiffWriter(path, **file) as out:
        if way == "shaped":  # one write of several axes, with tifffile's description
            options["metadata"] = {}
            out.write(array.reshape((1, *array.shape)), contiguous=dice.random() < 0.5, **options)
        elif way == "volumetric" and channels == 1:  # tiles of several pages
            options.update(tile=(16, 16, 16), volumetric=True)
            options.pop("rowsperstrip", None)
            out.write(array, **options)
            refused = "slices in 3-D tiles"
        elif way == "pyramid":  # pages of less resolution are passed over
            for page in array:
                out.write(page, subifds=1 if dice.random() < 0.3 else None, **options)
                if out._subifds:  # the page below it
                    out.write(page[::2, ::2], subfiletype=1, **options)
                elif dice.random() < 0.5:
                    out.write(page[::2, ::2], subfiletype=1, **options)
        elif way == "mixed" and pages > 1:
            for page in array[:-1]:
                out.write(page, contiguous=False, **options)
            out.write(array[-1][:, :1].repeat(width + 1, axis=1), contiguous=False, **options)
            refused = "a volume's are alike"
        else:
            if way == "tags":
                options.update(resolution=(72, 72), software="x", datetime=True, description="x\nimages=3",
                               extratags=[(65000, "s", 0, "private", False)])
            for page in array:
                out.write(page, contiguous=False, **options)
    if way in ("imagej", "ome", "truncated") and channels in (1, 3):
        plain = {"imagej": kind in ("uint8", "uint16", "float32"), "truncated": channels == 1,
                 "ome": kind not in ("uint64", "int64", "float16")}[way]
        if plain and way == "imagej":
            kind = "uint8" if channels == 3 else kind
            array = numbers(rng, array.shape, kind)
            tifffile.imwrite(path, array, imagej=True)
        elif plain and way == "ome":
            tifffile.imwrite(path, array, ome=True, photometric=options["photometric"], **file)
        elif plain:
            tifffile.imwrite(path, array, truncate=True, photometric="minisblack", **file)
    values = None
    if not refused:
        with tifffile.TiffFile(path) as theirs:
            pages = [page for page in theirs.pages if not page.is_reduced]
            values = theirs.asarray() if way == "truncated" and channels == 1 else np.stack([page.asarray() for page in pages])
            page = pages[0]  # not always height x width: tifffile takes a last axis of 1 for the channels of one page
            sides_of = (page.imagelength, page.imagewidth, page.samplesperpixel)
        values = values.reshape((-1, *(sides_of if sides_of[2] > 1 else sides_of[:2])))
        values = values[0] if len(values) == 1 and sides_of[2] == 1 else values
    return Case("volume", path, same=None if refused else volume(values, kind), refused=refused)


# .npy and .npz, by NumPy.


def array_of_any_kind(dice, rng):
    """An array, and the reason why its kind is refused."""
    shape = sides(dice, dice.choice([0, 1, 1, 2, 2, 3, 4, 5, 6, 6, 7]), 5)
    if dice.random() < 0.05 and shape:
        shape = (*shape[1:], 0)
    refused = "axes" if len(shape) > 6 else None
    if dice.random() < 0.06:
        kind = dice.choice(["complex64", "complex128", "S5", "U3", "datetime64[s]", "longdouble", "O", "V4", "i4,f4"])
        array = np.zeros(shape, kind)
        if kind == "O":
            array[...] = 1
        return array, "axes|element|type|read|pickle|object"
    array = numbers(rng, shape, dice.choice(NUMBERS + ["bool"]))
    if array.dtype in (np.uint16, np.uint32, np.uint64):
        refused = "has elements of type|axes"  # which are left to volumes
    if dice.random() < 0.5:
        array = array.astype(array.dtype.newbyteorder(dice.choice("<>")))
    if dice.random() < 0.4:
        array = np.asfortranarray(array)
    return array, refused


def npy_file(dice, rng, path):
    if dice.random() < 0.5:
        array, refused = array_of_any_kind(dice, rng)
        path += ".npy"
        with open(path, "wb") as file:
            np.lib.format.write_array(file, array, dice.choice([None, (1, 0), (2, 0), (3, 0)]))
        return Case("npy", path, same=lambda about, arrays, _: same_values("the array", arrays[0][1], array), refused=refused)
    path += ".npz"
    names = ["a", "b.weight", "arr_0", "layer/1/w", "Grüße", "日本", "x" * 200, "with space", "b", "q.npy", "-", "..", "é"]
    arrays, reasons = {}, []
    for name in dice.sample(names, dice.randint(1, 5)):
        arrays[name], reason = array_of_any_kind(dice, rng)
        if reason:
            if dice.random() < 0.7:
                del arrays[name]
            else:
                reasons.append(reason)
    if not arrays:
        arrays["a"] = np.arange(3)
    way = dice.choice(["savez", "compressed", "zip64", "streamed", "levels"])
    if way in ("savez", "compressed"):
        (np.savez if way == "savez" else np.savez_compressed)(path, **arrays)
    else:
        # Python's zipfile writes sizes behind an entry's data if it cannot seek.
        class Stream(io.RawIOBase):
            def __init__(self):
                self.file = open(path, "wb")

            def writable(self):
                return True

            def write(self, data):
                return self.file.write(data)
        target = Stream() if way == "streamed" else open(path, "wb")
        with zipfile.ZipFile(target, "w", dice.choice([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])) as out:
            for name, array in arrays.items():
                with out.open(name + ".npy", "w", force_zip64=way == "zip64") as entry:
                    np.lib.format.write_array(entry, array)
        (target.file if way == "streamed" else target).close()

    def same(about, ours, _):
        want([name for name, _ in ours] == list(arrays), "names", [name for name, _ in ours], "instead of", list(arrays))
        for name, array in ours:
            same_values(name, array, arrays[name])
    return Case("weights", path, same=same, refused="|".join(reasons) or None)


# safetensors, by safetensors. Its own reader decides which damaged headers are refused.

SAFE = {"F64": "float64", "F32": "float32", "F16": "float16", "I64": "int64", "I32": "int32", "I16": "int16", "I8": "int8",
        "U64": "uint64", "U32": "uint32", "U16": "uint16", "U8": "uint8", "BOOL": "bool", "BF16": "uint16"}
# The format's description has neither other fields nor null, which the library passes over.
STRICT = "has an unknown field|is null, not"


def safetensors_file(dice, rng, path):
    import safetensors
    path += ".safetensors"
    tensors = {}
    names = ["w", "b", "layers.0.weight", "Grüße", "日本", "a\"b", "a\\b", "a\nb", "\u0000", "😀", "", "x" * 300, "é", "e\u0301"]
    for name in dice.sample(names, dice.randint(0, 5)):
        code = dice.choice(list(SAFE))
        shape = sides(dice, dice.choice([0, 1, 2, 2, 3, 4, 6]), 5)
        if dice.random() < 0.05 and shape:
            shape = (*shape[1:], 0)
        tensors[name] = (code, numbers(rng, shape, SAFE[code]))
    metadata = dice.choice([None, {}, {"format": "pt"}, {"é": "\n\"", "": ""}])
    head, body = {} if metadata is None else {"__metadata__": metadata}, b""
    for name, (code, array) in tensors.items():
        raw = array.tobytes()
        head[name] = {"dtype": code, "shape": list(array.shape), "data_offsets": [len(body), len(body) + len(raw)]}
        body += raw
    head = json.dumps(head, ensure_ascii=dice.random() < 0.5).encode()
    head += b" " * dice.choice([0, -len(head) % 8])
    data = len(head).to_bytes(8, "little") + head + body
    refused = None
    if dice.random() < 0.6:  # another header, or bytes of it changed
        data = bytearray(data)
        size = int.from_bytes(data[:8], "little")
        way = dice.choice(["byte", "byte", "byte", "cut", "longer", "length", "word", "spaces", "swap"])
        if way == "byte":
            for _ in range(dice.randint(1, 2)):
                data[dice.randrange(8, 8 + size)] = dice.choice([dice.randrange(256), *b'{}[]",:0123456789 \\u'])
        elif way == "cut":
            data = data[:dice.randrange(len(data) + 1)]
        elif way == "longer":
            data += bytes(dice.randint(1, 9))
        elif way == "length":
            data[:8] = dice.choice([0, 1, size - 1, size + 1, size + 8, 2**63, 2**64 - 1, 10**8, 10**8 + 1]).to_bytes(8, "little")
        else:
            head = data[8:8 + size].decode()
            other = dice.choice([("[", "[1,"), ("]", ",0]"), ("F32", "F8_E5M2"), ("F32", "f32"), ("\"dtype\"", "\"dtype\":\"F32\",\"dtype\""),
                                 ("{", "{\"__metadata__\":{\"a\":1},"), ("{", "{ "), (":", " :\t"), (",", ",\n"), ("0", "-0"), ("0", "0.0"),
                                 ("0", "00"), ("0", "1e0"), ("\"shape\"", "\"more\":null,\"shape\""), ("{", "\ufeff{"),
                                 ("{", "{\"__metadata__\":null,"), ("{", "{\"__metadata__\":{\"a\":null},"),
                                 ("{", "{\"z\":{\"dtype\":\"I8\",\"shape\":[],\"data_offsets\":[0,0]},"),
                                 ("{", "{\"z\":{\"dtype\":\"I8\",\"shape\":[0],\"data_offsets\":[0,0]},")])
            at = dice.choice([m.start() for m in re.finditer(re.escape(other[0]), head)] or [0])
            head = (head[:at] + head[at:].replace(*other, 1) + " " * dice.choice([0, 0, 1, 8])).encode()
            data = len(head).to_bytes(8, "little") + head + bytes(data[8 + size:])
        data = bytes(data)
    with open(path, "wb") as file:
        file.write(data)
    try:
        theirs = {name: value for name, value in safetensors.deserialize(data)}
    except Exception as error:
        return Case("weights", path, refused="safetensors|header|tensor")

    def same(_, ours, rest):
        want({name for name, _ in ours} == set(theirs), "names", [name for name, _ in ours], "instead of", list(theirs))
        for name, array in ours:
            value = theirs[name]
            kind = value["dtype"]
            raw = np.frombuffer(value["data"], SAFE[kind]).reshape(value["shape"])
            same_values(name, array, widened(raw) if kind == "BF16" else raw)
    for value in theirs.values():
        if value["dtype"] not in SAFE or len(value["shape"]) > 6:
            refused = refused or "axes|type|" + STRICT
        elif value["dtype"] == "U64" and (np.frombuffer(value["data"], "uint64") >= 2**63).any():
            refused = refused or "2\\^63|" + STRICT
    return Case("weights", path, same=same, refused=refused, strict=STRICT)


# .pt, by PyTorch.


def pt_file(dice, rng, path):
    import torch
    path += dice.choice([".pt", ".pth", ".bin"])
    kinds = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16, torch.int8,
             torch.uint8, torch.bool]

    def tensor():
        shape = list(sides(dice, dice.choice([0, 1, 2, 2, 3, 4, 5, 6]), 5))
        if dice.random() < 0.05 and shape:
            shape[0] = 0
        x = torch.from_numpy(rng.integers(-100, 100, shape)).to(dice.choice(kinds)) if dice.random() < 0.5 else \
            torch.from_numpy(np.array(rng.standard_normal(shape))).to(dice.choice(kinds[:4]))
        for _ in range(dice.randint(0, 2)):
            if x.dim() > 1 and dice.random() < 0.4:
                a, b = dice.sample(range(x.dim()), 2)
                x = x.transpose(a, b)
            elif x.dim() > 0 and x.shape[0] > 1 and dice.random() < 0.5:
                x = x[dice.randint(0, 1)::dice.randint(1, 2)]
            elif x.dim() == 4 and dice.random() < 0.5:
                x = x.to(memory_format=torch.channels_last)
            elif x.dim() > 0 and x.shape[0] == 1:
                x = x.expand(dice.randint(1, 4), *x.shape[1:])
        if x.dtype.is_floating_point and dice.random() < 0.2:
            x = dice.choice([torch.nn.Parameter(x.clone()), x.clone().requires_grad_()])
        return x
    tensors = {name: tensor() for name in dice.sample(["a", "b.weight", "é", "日本", "layers.0", "", "x y", "q" * 200], dice.randint(1, 6))}
    if dice.random() < 0.3:  # two of one storage
        first = next(iter(tensors.values()))
        tensors["tied"], tensors["tied.part"] = first, first.reshape(-1)[: max(1, first.numel() // 2)] if first.is_contiguous() else first
    import collections
    saved = dice.choice([dict, collections.OrderedDict])(tensors)
    if dice.random() < 0.2:
        saved = collections.OrderedDict(saved)
        saved._metadata = collections.OrderedDict([("", {"version": 1})])
    refused, left_out = None, 0
    way = dice.choice(["flat"] * 5 + ["nested", "extra", "bad", "legacy"])
    if way == "nested":
        saved = {"epoch": 3, dice.choice(["state_dict", "model_state_dict", "model"]): saved, "lr": [0.1], "args": {"x": (1, None, "é")}}
        left_out = 3
    elif way == "extra":
        saved = {**saved, "note": "x", "more": [1, 2.5, True, None, 2**40, -2**70 if dice.random() < 0.1 else 5]}
        left_out = 2
        if -2**70 in saved["more"]:
            refused = "a number of"
    elif way == "bad":
        name, thing, refused = dice.choice([("c", torch.zeros(2, dtype=torch.complex64), "complex numbers"), ("s", torch.eye(3).to_sparse(), "sparse"),
                                            ("m", torch.nn.Linear(2, 2), "names"), ("r", re.compile("x"), "names"), ("set", {1}, "set|opcode 0x8f"),
                                            ("seven", torch.zeros([1] * 7), "7 axes"),
                                            ("q", torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8), "qtensor")])
        saved = {**saved, name: thing}
    elif way == "legacy":
        refused = "before PyTorch 1.6"
    torch.save(saved, path, pickle_protocol=dice.choice([2, 2, 2, 3, 4]), _use_new_zipfile_serialization=way != "legacy")

    def same(about, ours, _):
        want([name for name, _ in ours] == list(tensors), "names", [name for name, _ in ours], "instead of", list(tensors))
        want(len(about["left_out"]) == left_out, "left out", about["left_out"])
        for name, array in ours:
            theirs = tensors[name].detach()
            same_values(name, array, (theirs.float() if theirs.dtype == torch.bfloat16 else theirs).numpy())
    return Case("weights", path, same=same, refused=refused)


# JPEG and PNG, by Pillow.


def png_by_hand(dice, rng, path):
    """A PNG of any legal kind, which Pillow does not write: interlaced, 1 to 16 bits, with transparency, filters."""
    colour = dice.choice([0, 0, 2, 3, 4, 6])
    bits = dice.choice({0: [1, 2, 4, 8, 16], 2: [8, 8, 16], 3: [1, 2, 4, 8], 4: [8, 16], 6: [8, 16]}[colour])
    samples = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}[colour]
    width, height = sides(dice, 2, dice.choice([3, 20, 60]))
    interlaced = dice.random() < 0.5
    passes = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)] if interlaced else [(0, 0, 1, 1)]
    rows = bytearray()
    entries = dice.randint(1, 2**bits) if colour == 3 else 0
    for left, top, step_x, step_y in passes:
        across, down = (width - left + step_x - 1) // step_x, (height - top + step_y - 1) // step_y
        if across <= 0 or down <= 0:
            continue
        size = (across * samples * bits + 7) // 8
        for _ in range(down):
            if colour == 3:  # only entries that there are
                pixels = rng.integers(0, entries, across)
                packed = np.packbits(((pixels[:, None] >> np.arange(bits - 1, -1, -1)) & 1).astype(np.uint8).ravel()).tobytes()
                rows += b"\0" + packed
            else:
                rows += bytes([dice.randint(0, 4)]) + rng.bytes(size)
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    packed = zlib.compress(bytes(rows), dice.randint(0, 9))
    cut = dice.randint(0, len(packed))
    parts = [chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, bits, colour, 0, 0, interlaced))]
    if dice.random() < 0.3:
        parts.append(chunk(b"gAMA", struct.pack(">I", dice.choice([45455, 100000, 1]))))
    if colour == 3:
        parts.append(chunk(b"PLTE", rng.bytes(3 * entries)))
    if dice.random() < 0.4 and colour in (0, 2, 3):
        parts.append(chunk(b"tRNS", rng.bytes(dice.randint(1, entries)) if colour == 3 else
                           b"".join(struct.pack(">H", dice.randrange(2**bits)) for _ in range(samples))))
    if dice.random() < 0.2:
        parts.append(chunk(b"bKGD", b"\0" if colour == 3 else bytes(2 * (1 if colour in (0, 4) else 3))))
    if dice.random() < 0.2:
        parts.append(chunk(b"teXt", b"Comment\0x"))
    parts += [chunk(b"IDAT", packed[:cut]), chunk(b"IDAT", packed[cut:]), chunk(b"IEND", b"")]
    with open(path, "wb") as file:
        file.write(b"\x89PNG\r\n\x1a\n" + b"".join(parts))
    return "16-bit" if bits == 16 else None


def picture_file(dice, rng, path):
    from PIL import Image, ImageFile
    ImageFile.MAXBLOCK = 1 << 20  # for small pictures with much about them
    width, height = sides(dice, 2, dice.choice([1, 9, 33, 100]))
    grey = dice.random() < 0.3
    refused = None
    way = dice.choice(["jpeg"] * 5 + ["png"] * 3 + ["png by hand"] * 4 + ["other"])

    def pixels(channels):
        if dice.random() < 0.5:  # smooth, with the wrap at 256 as an edge
            y, x = np.mgrid[:height, :width]
            values = np.stack([(y * dice.randint(1, 9) + x * dice.randint(1, 9) + 40 * c) % 256 for c in range(channels)], -1)
        else:
            values = rng.integers(0, 256, (height, width, channels))
        values = values.astype(np.uint8)
        return values[..., 0] if channels == 1 else values
    if way == "jpeg":
        path += ".jpg"
        mode = dice.choice(["L", "RGB", "RGB", "RGB", "CMYK"])
        image = Image.fromarray(pixels({"L": 1, "RGB": 3, "CMYK": 4}[mode]), mode)
        options = dict(quality=dice.randint(1, 100), progressive=dice.random() < 0.3, optimize=dice.random() < 0.3)
        if mode == "RGB":
            options["subsampling"] = dice.choice([0, 1, 2, -1])
            if dice.random() < 0.15:
                options.update(keep_rgb=True, subsampling=0)
        if dice.random() < 0.3:
            exif = Image.Exif()
            exif[0x112] = dice.randint(1, 8)
            exif[0x10E] = "x" * dice.choice([1, 60000])
            options["exif"] = exif
        if dice.random() < 0.2:
            options["restart_marker_blocks"] = dice.randint(1, 5)
        if dice.random() < 0.2:
            options["comment"] = b"c" * 70
        if dice.random() < 0.2:
            options["icc_profile"] = rng.bytes(dice.choice([10, 70000]))
        if dice.random() < 0.2:
            options["dpi"] = (300, 300)
        image.save(path, **options)
        refused = "CMYK" if mode == "CMYK" else None
    elif way == "png":
        path += ".png"
        mode = dice.choice(["1", "L", "LA", "P", "RGB", "RGBA", "I;16"])
        image = Image.fromarray(pixels(4), "RGBA")
        options = dict(optimize=dice.random() < 0.2, compress_level=dice.randint(0, 9))
        if mode == "P":
            image = image.convert("RGB").quantize(dice.choice([2, 3, 4, 16, 17, 256]))
            options["bits"] = dice.choice([8, 8, 4]) if len(image.getcolors() or range(256)) <= 16 else 8
            if dice.random() < 0.4:
                options["transparency"] = dice.choice([0, bytes([0, 128])])
        elif mode == "I;16":
            image = Image.fromarray(rng.integers(0, 65536, (height, width)).astype(np.uint16))
            refused = "16-bit"
        else:
            image = image.convert(mode)
            if mode in ("L", "RGB") and dice.random() < 0.3:
                options["transparency"] = dice.randrange(256) if mode == "L" else (1, 2, 3)
        if dice.random() < 0.1 and not refused and mode not in ("P", "1"):
            options.update(save_all=True, append_images=[image.rotate(180)])  # an animation: its first picture
        image.save(path, **options)
    elif way == "png by hand":
        path += ".png"
        refused = png_by_hand(dice, rng, path)
    else:
        path += dice.choice([".png", ".jpg"])
        Image.fromarray(pixels(3)).save(path, dice.choice(["GIF", "BMP", "WEBP", "TIFF", "PPM"]))
        refused = "neither PNG nor JPEG"
    image = Image.open(path)
    if grey and image.format == "JPEG":
        # Grey of a JPEG is its luma, as libjpeg gives it and draft() asks for it; from RGB it would be rounded twice.
        image.draft("L", image.size)
    theirs = None
    if not refused:
        theirs = np.asarray(image.convert("L" if grey else "RGB")).reshape(image.height, image.width, 1 if grey else 3)
    return Case("grey" if grey else "rgb", path, same=lambda _, ours, rest: same_values("the image", ours[0][1], theirs), refused=refused)


# tar and shards, by Python's tarfile, GNU tar and webdataset.


def tar_file(dice, rng, path):
    path += ".tar"
    refused = None
    samples = dice.random() < 0.6
    extra = dice.choice([None] * 8 + ["link", "hard link", "fifo", "device", "twice", "absolute", "up", "sparse", "global"])
    names = []
    for i in range(dice.randint(0 if extra != "global" else 1, 6)):
        key = dice.choice(["%06d" % i, "dir/%d" % i, "a.b/%d" % i, "é%d" % i, "x" * 120 + "/%d" % i, "y" * 180 + str(i), "./d/%d" % i, "日本/%d" % i,
                           "with space/%d" % i, "l" * 300 + "/%d" % i])
        if samples:
            kinds = [dice.choice(["jpg", "jpeg", "png", "JPG", "input.jpg"]), "cls"] + dice.sample(["json", "txt", "seg.png"], dice.randint(0, 2))
            dice.shuffle(kinds)
            names += [(key + "." + kind, i) for kind in kinds]
        else:
            names.append((key + dice.choice([".jpg", "", ".bin", ".tar.gz"]), i))
    way = dice.choice(["ustar", "gnu", "pax", "pax"])
    if way == "ustar":
        names = [n for n in names if len(n[0].encode()) < 100 and n[0].isascii()]
    format = {"ustar": tarfile.USTAR_FORMAT, "gnu": tarfile.GNU_FORMAT, "pax": tarfile.PAX_FORMAT}[way]
    labels = {}
    with tarfile.open(path, "w", format=format, pax_headers={"comment": "é"} if extra == "global" else {}) as tar:
        def add(name, data=b"", **fields):
            info = tarfile.TarInfo(name)
            info.size = len(data)
            info.mtime = dice.choice([0, 1.5 if way == "pax" else 1, 1700000000])
            if way == "pax" and dice.random() < 0.2:
                info.pax_headers = {"SCHILY.xattr.user.x": "y\nz", "comment": "a=b"}
            if way != "ustar" and dice.random() < 0.1:
                info.uid = 2**40  # base 256, or a pax record
            info.uname = dice.choice(["", "root", "ü" if way == "pax" else "u"])
            for key, value in fields.items():
                setattr(info, key, value)
            tar.addfile(info, io.BytesIO(data))
        if dice.random() < 0.3:
            add("dir", type=tarfile.DIRTYPE)
        for name, i in names:
            ending = name[name.rfind("/") + 1:].split(".", 1)[-1]
            label = 7 * i % 10
            data = rng.bytes(dice.choice([0, 1, 511, 512, 513, 3000]))
            if samples and ending == "cls":
                data = dice.choice(["%d", " %d\n", "%d\r\n", "%03d"]) % label
                data = data.encode()
            elif samples and ending == "json":
                data = json.dumps(dice.choice([{"label": label}, {"cls": label, "x": [1]}, {"caption": "é"}, [label], label])).encode()
            add(name, data)
        if extra in ("link", "hard link", "fifo", "device"):
            kinds = {"link": tarfile.SYMTYPE, "hard link": tarfile.LNKTYPE, "fifo": tarfile.FIFOTYPE, "device": tarfile.CHRTYPE}
            add("l" * dice.choice([5, 80]), type=kinds[extra], linkname="/etc/passwd" if dice.random() < 0.5 else "t" * (90 if way == "ustar" else 150))
            refused = "a link, which is not followed|no plain file"
        elif extra == "absolute":
            add("/abs/1.jpg"), add("/abs/1.cls", b"1")
            refused = "a name that leads elsewhere"
        elif extra == "up":
            add("a/../../1.jpg")
            refused = "a name that leads elsewhere"
    if extra == "twice" and names:  # tar's later member replaces an earlier one; a sample may not have two images
        with tarfile.open(path, "a", format=format) as tar:
            info = tarfile.TarInfo(names[-1][0])
            tar.addfile(info)
    if extra == "sparse":
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, "hole.jpg"), "wb") as file:
                file.truncate(1 << 20)
                file.seek(1 << 19)
                file.write(b"x" * 4096)
            subprocess.run(["tar", "-S", "-H", "pax" if way == "pax" else "gnu", "-cf", path, "-C", folder, "hole.jpg"], check=True)
        refused = "sparse file, which is not read|no plain file"
    with tarfile.open(path) as tar:
        members = [[info.name, info.offset_data, info.size, 0] for info in tar if info.isfile()]
    if refused and samples:  # whichever comes first
        refused += "|is a sample without"
    if not samples or extra == "sparse":
        # tarfile strips a slash at the end of a name alone; it keeps "./".
        return Case("tar", path, same=lambda about, *_: want(about["members"] == members, about["members"], "instead of", members), refused=refused)
    if extra == "twice" and names and not ending_of(names[-1][0]) in ("cls", "json", "jpg", "jpeg", "png"):
        names.pop()  # members that are neither image nor label are not looked at: there may be two
        return None
    try:
        theirs = [] if refused else grouped(path)
    except Refused as reason:
        refused, theirs = str(reason), None
    return Case("shard", path, same=lambda about, *_: want(about["members"] == theirs, about["members"], "instead of", theirs), refused=refused)


class Refused(Exception):
    pass


def grouped(path):
    """The samples of a shard as webdataset groups them, each image and label."""
    from webdataset import tariterators
    with open(path, "rb") as stream, tarfile.open(path) as tar:
        places = {}
        for info in tar:
            places.setdefault(info.name, []).append((info.offset_data, info.size))
        files = ({**each, "__url__": path} for each in tariterators.tar_file_iterator(stream))
        rows = []
        try:
            for sample in tariterators.group_by_keys(files, lcase=True):
                images = [k for k in sample if k in ("jpg", "jpeg", "png")]
                labels = []
                if "cls" in sample:
                    labels.append(int(sample["cls"]))
                if "json" in sample:
                    about = json.loads(sample["json"])
                    labels += [about[k] for k in ("label", "cls") if isinstance(about, dict) and k in about]
                if not images:
                    raise Refused("without .jpg, .jpeg or .png")
                name = next(n for n in places if n.rsplit(".")[0:0] == [] and key_of(n) == sample["__key__"] and ending_of(n) == images[0])
                rows.append([name, *places[name][0], labels[0]])
        except ValueError as error:
            if "duplicate" not in str(error):
                raise
            raise Refused("a second image of its sample|says label|holds|is no JSON")
    return rows


def key_of(name):
    base = name.rfind("/") + 1
    return name[:base] + name[base:].split(".", 1)[0]


def ending_of(name):
    return (name[name.rfind("/") + 1:].split(".", 1) + [""])[1].lower()


# tokenizer.json, by Hugging Face's tokenizers.

LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
ASSIGNED = [chr(c) for c in range(sys.maxunicode + 1) if unicodedata.category(chr(c)) not in ("Cn", "Cs", "Co")]
SPACES = [c for c in ASSIGNED if c.isspace()] + list("\u200b\u2060\ufeff\u180e") + [" "] * 9 + ["\n"] * 6 + ["\r\n"] * 3
DIGITS = [c for c in ASSIGNED if unicodedata.category(c)[0] == "N"] + list("0123456789") * 30
MARKS = [c for c in ASSIGNED if unicodedata.category(c)[0] == "M"]
CONTRACTIONS = [a + b for a in ("'", "\u2019", " '") for b in "s t re ve m ll d S T Re RE VE M LL Ll D \u017f \u212a sx llama 're".split()]
WORDS = "the Thou king hath ing er na\u00efve \u65e5\u672c\u8a9e \u0440\u0443\u0441 \u0645\u0631\u062d \u1e9e x \U0001f468\u200d\U0001f469 \U0001f1e9\U0001f1ea".split()


def odd_text(dice, tokens):
    kinds = [lambda: dice.choice(ASSIGNED), lambda: dice.choice(SPACES), lambda: dice.choice(DIGITS), lambda: dice.choice(CONTRACTIONS),
             lambda: dice.choice(WORDS), lambda: chr(dice.randrange(128)), lambda: dice.choice(tokens), lambda: dice.choice(SPACES) * dice.randrange(5),
             lambda: dice.choice(WORDS) * dice.randrange(4), lambda: chr(dice.randrange(0x80, 0x250)), lambda: dice.choice(MARKS) * dice.randrange(3),
             lambda: dice.choice("!?.,;:-()[]{}<>|@#$%^&*") * dice.randrange(1, 4), lambda: chr(dice.choice([0xE000, 0xFFFF, 0x378, 0x10FFFF, 0xFFFD]))]
    some = dice.sample(kinds, dice.randrange(1, len(kinds)))
    return "".join(dice.choice(some)() for _ in range(dice.randrange(0, 60)))


def tokenizer_file(dice, rng, path):
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    refused = None
    whole = dice.random() < 0.95
    if not whole:
        alphabet = dice.sample(alphabet, 250)
    tokens, merges = list(alphabet), []
    texts = "".join(WORDS + CONTRACTIONS)
    if dice.random() < 0.7:  # pairs as texts have them
        plain = dict(zip(sorted(pre_tokenizers.ByteLevel.alphabet(), key=ord), range(256)))
        words = [w for w, _ in pre_tokenizers.ByteLevel(add_prefix_space=False).pre_tokenize_str(" ".join(odd_text(dice, ["x"]) + texts for _ in range(4)))]
        splits = [[c for c in w if c in set(alphabet)] for w in words]
        for _ in range(dice.randint(0, 300)):
            word = dice.choice(splits)
            if len(word) < 2:
                continue
            at = dice.randrange(len(word) - 1)
            pair = word[at], word[at + 1]
            word[at:at + 2] = ["".join(pair)]
            if pair not in merges:
                merges.append(pair)
    for _ in range(dice.randint(0, 100)):
        pair = dice.choice(tokens), dice.choice(tokens)
        if pair not in merges:
            merges.append(pair)
    for a, b in merges:
        if a + b not in tokens:
            tokens.append(a + b)
    dice.shuffle(merges)
    if dice.random() < 0.3:
        dice.shuffle(tokens)
    model = models.BPE(vocab={t: i for i, t in enumerate(tokens)}, merges=merges, ignore_merges=dice.random() < 0.3)
    way = dice.choice(["plain"] * 40 + ["wordpiece", "unigram", "wordlevel", "normalizer", "dropout", "byte_fallback", "whitespace", "metaspace",
                                        "digits", "pattern", "unknown", "suffix"])
    if way == "wordpiece":
        model, refused = models.WordPiece({"[UNK]": 0, "a": 1, "##b": 2}, unk_token="[UNK]"), "its model is"
    elif way == "unigram":
        model, refused = models.Unigram([("a", -1.0), ("b", -2.0)]), "its model is"
    elif way == "wordlevel":
        model, refused = models.WordLevel({"a": 0}, unk_token="a"), "its model is"
    elif way == "dropout":
        model.dropout, refused = 0.1, "dropout"
    elif way == "byte_fallback":
        model.byte_fallback, refused = True, "byte_fallback"
    elif way == "suffix":
        model.end_of_word_suffix, refused = "</w>", "suffix"
    elif way == "unknown":
        model.unk_token = tokens[0]
    tokenizer = Tokenizer(model)
    pattern = dice.choice([None, None, None, LLAMA3, LLAMA3, GPT2])
    prefix = pattern is None and dice.random() < 0.3
    words = pre_tokenizers.ByteLevel(add_prefix_space=prefix, use_regex=pattern is None and (prefix or dice.random() < 0.8))
    if pattern:
        words = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated"), words])
    if way in ("whitespace", "metaspace", "digits", "pattern"):
        words = {"whitespace": pre_tokenizers.Whitespace(), "metaspace": pre_tokenizers.Metaspace(),
                 "digits": pre_tokenizers.Sequence([pre_tokenizers.Digits(), words] if not pattern else [pre_tokenizers.Digits(), pre_tokenizers.ByteLevel()]),
                 "pattern": pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(r"\p{N}+"), "isolated"), pre_tokenizers.ByteLevel(use_regex=False, add_prefix_space=False)])}[way]
        refused = refused or "ByteLevel|words are cut by"
    tokenizer.pre_tokenizer = words
    tokenizer.decoder = decoders.ByteLevel()
    if way == "normalizer":
        tokenizer.normalizer, refused = dice.choice([normalizers.NFC(), normalizers.Lowercase()]), "normalizer"
    names = dice.sample(["<|endoftext|>", "<|end", "<s>", "</s>", "|>", "<s><s>", "a b", "the", "\u65e5", "<|x|> ", "e\u0301"], dice.randint(0, 5))
    added = []
    for name in names:
        flags = dict(normalized=dice.random() < 0.4, special=dice.random() < 0.5)
        if dice.random() < 0.03:
            flags[dice.choice(["lstrip", "rstrip", "single_word"])] = True
            refused = refused or "added tokens must be found as they are"
        added.append(AddedToken(name, **flags))
    for each in added:
        (tokenizer.add_special_tokens if each.special else tokenizer.add_tokens)([each])
    if names and way not in ("wordpiece", "unigram", "wordlevel"):
        one = (names[0], tokenizer.token_to_id(names[0]))
        tokenizer.post_processor = dice.choice([
            processors.ByteLevel(), processors.TemplateProcessing(single=names[0] + " $A", special_tokens=[one]) if " " not in names[0] else processors.ByteLevel(),
            processors.RobertaProcessing(one, one), processors.BertProcessing(one, one),
            processors.Sequence([processors.ByteLevel(), processors.BertProcessing(one, one)])])
    path += ".json"
    tokenizer.save(path, pretty=dice.random() < 0.5)
    if dice.random() < 0.3:  # merges as older files have them
        about = json.load(open(path))
        if about["model"].get("merges") and not any(" " in part for pair in about["model"]["merges"] for part in pair):
            about["model"]["merges"] = [" ".join(pair) for pair in about["model"]["merges"]]
            json.dump(about, open(path, "w"), ensure_ascii=dice.random() < 0.5)
    text = odd_text(dice, names + [n[:-1] for n in names] + ["<|", "x"])
    with open(path + ".txt", "w", newline="", encoding="utf-8") as file:
        file.write(text)
    plain = special = None
    if not refused:
        plain, special = tokenizer.encode(text, add_special_tokens=False).ids, tokenizer.encode(text).ids

    def same(about, _, rest):
        want(about["ids"] == plain, "ids of", repr(text), "are", about["ids"], "instead of", plain)
        want(about["with_special"] == special, "with special tokens", about["with_special"], "instead of", special)
        want(prefix or rest == text.encode(), "decoded", rest, "instead of", text.encode())
    # A byte without a token is an error to us; the library passes over it, or takes the unknown token.
    return Case("tokens", path, path + ".txt", same=same, refused=refused, strict=None if whole else "has no token in the vocabulary|expected one of")


READERS = {
    "zarr": (zarr_file, ["zarr", "numcodecs"]), "tiff": (tiff_file, ["tifffile", "imagecodecs"]), "npy": (npy_file, []),
    "safetensors": (safetensors_file, ["safetensors"]), "pt": (pt_file, ["torch"]), "pictures": (picture_file, ["PIL"]),
    "tar": (tar_file, ["webdataset"]), "tokenizers": (tokenizer_file, ["tokenizers"]),
}


def run(name, options):
    """Prints one line about a reader. Whether there was no difference; None where a library is missing."""
    make, libraries = READERS[name]
    versions = []
    try:
        for library in libraries or ["numpy"]:
            versions.append(library + " " + getattr(importlib.import_module(library), "__version__", ""))
    except ImportError as error:
        print("readers: %s is left out: %s" % (name, error))
        return None
    start, read, refused, left_out, differ = time.monotonic(), 0, 0, 0, 0
    program = Reader(options.program)
    with contextlib.ExitStack() as stack:
        folder = tempfile.mkdtemp()
        if options.only is None:
            stack.callback(shutil.rmtree, folder)
        for number in [options.only] if options.only is not None else range(options.count):
            dice = random.Random("%s %d %d" % (name, options.seed, number))
            rng = np.random.default_rng(dice.randrange(2**62))
            path = os.path.join(folder, "%d" % number)
            case = make(dice, rng, path)
            if case is None:
                left_out += 1
                continue
            try:
                if case.check(program):
                    read += 1
                else:
                    refused += 1
            except Difference as difference:
                differ += 1
                print("readers: %s %d: %s" % (name, number, difference))
                if program.process.poll() is not None:
                    program = Reader(options.program)
            if options.only is not None:
                print("readers: %s is to be %s" % (case.request, "refused" if case.refused else "read"))
            elif os.path.isdir(path):
                shutil.rmtree(path)
            else:
                os.remove(case.request[1])
    program.process.stdin.close()
    print("%s readers %s: seed %d, %d files read alike, %d refused as they must be, %d different (%s, %.0f s)" % (
        datetime.date.today(), name, options.seed, read, refused, differ, ", ".join(versions), time.monotonic() - start))
    return differ == 0


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--python")
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", type=int)
    parser.add_argument("readers", nargs="*")
    options = parser.parse_intermixed_args()
    if options.python and os.path.exists(options.python) and not sys.executable.startswith(os.path.dirname(options.python)):
        os.execv(options.python, [options.python, *(w for w in sys.argv if w not in ("--python", options.python))])
    results = [run(name, options) for name in options.readers or READERS]
    if False in results:
        sys.exit(1)
    if True not in results:
        print("SKIPPED: needs the packages of tests/oracles/requirements.txt (tools/setup --oracles installs them)")
        sys.exit(77)


main()
