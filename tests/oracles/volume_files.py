"""Volumes as NumPy, tifffile and zarr write them, and damaged ones: volume_files.py FOLDER ROUNDS.

First compares the files that `written` names ("FILE TYPE") with FILE.want.npy. Then `expected` gets a line per good file, "FILE TYPE EXTENT ...", whose
values lie in FILE.want.npy, and `refused` one per bad file: its name, a tab, part of the message."""
import json
import os
import random
import sys

try:
    import numpy as np
    import tifffile
    import zarr
except ImportError:
    sys.exit(77)

folder, rounds = sys.argv[1], int(sys.argv[2])
rng = np.random.default_rng(7)
dice = random.Random(7)
TYPES = ["uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64", "float16", "float32", "float64", "bool"]
expected, refused = [], []


def path(name):
    return os.path.join(folder, name)


for line in open(path("written")):
    name, kind = line.split()
    want = np.load(path(name + ".want.npy"))
    if name.endswith(".npy"):
        ours = np.load(path(name))
    else:
        about = json.load(open(path(name + ".json")))
        assert about["byte_order"] == "little", about
        ours = np.fromfile(path(name), dtype=np.dtype(about["dtype"]).newbyteorder("<")).reshape(about["shape"])
    assert ours.dtype == np.dtype(kind) and ours.shape == want.shape, (name, ours.dtype, ours.shape, want.shape)
    assert np.array_equal(ours.astype(np.float64), want), name


def numbers(shape, kind):
    if kind == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    if kind.startswith("float"):
        return rng.standard_normal(shape).astype(kind)
    about = np.iinfo(kind)
    return rng.integers(max(about.min, -2**53), min(about.max, 2**53), shape, dtype=kind, endpoint=True)


def shape_of(axes, most):
    return tuple(int(n) for n in rng.integers(1, most, axes, endpoint=True))


def expect(name, array, axes=None):
    """axes: of the file, where it has others than the array."""
    expected.append(" ".join(map(str, [name, array.dtype.name, *(axes or array.shape)])))
    np.save(path(name + ".want.npy"), np.ascontiguousarray(array.astype(np.float64)))


def order_of(array):
    """Fortran's or C's order, either byte order."""
    array = array.astype(array.dtype.newbyteorder(dice.choice("<>")))
    return np.asfortranarray(array) if dice.random() < 0.5 else array


for k in range(rounds):
    for kind in TYPES:
        array = numbers(shape_of(dice.randint(2, 4), 9), kind)
        np.save(path(f"{kind}{k}.npy"), order_of(array))
        expect(f"{kind}{k}.npy", array)
        if k == 0:   # as NumPy takes it, too
            array = array.reshape(-1, 1, 1)
            head = "{'shape': (%dL, 1L, 1L,),\t'descr' :'%s',\n 'fortran_order': False,\n}\n" % (len(array), array.dtype.str)
            with open(path(f"{kind}.odd.npy"), "wb") as file:
                file.write(b"\x93NUMPY\1\0" + len(head).to_bytes(2, "little") + head.encode() + array.tobytes())
            expect(f"{kind}.odd.npy", array)

        array = numbers(shape_of(dice.randint(2, 4), 12), kind)
        compressor = dice.choice([None, {"id": "zlib", "level": 1}, {"id": "gzip", "level": 5}, {"id": "zstd", "level": 2},
                                  *({"id": "blosc", "cname": c, "shuffle": dice.randint(0, 2)} for c in ("lz4", "lz4hc", "blosclz", "zlib", "zstd"))])
        chunks = tuple(dice.randint(1, n + 2) for n in array.shape)
        from numcodecs import get_codec
        store = zarr.create_array(path(f"{kind}{k}.zarr"), shape=array.shape, chunks=chunks, zarr_format=2, order=dice.choice("CF"),
                                  dtype=array.dtype.newbyteorder(dice.choice("<>")), compressors=compressor and get_codec(compressor), filters=None,
                                  fill_value=dice.choice([0, 1]), chunk_key_encoding={"name": "v2", "separator": dice.choice("./")})
        if dice.random() < 0.3:   # a part alone is written: the rest is what the array is filled with
            store[:max(1, array.shape[0] // 2)] = array[:max(1, array.shape[0] // 2)]
            array = np.asarray(store[...]).astype(kind)
        else:
            store[...] = array
        expect(f"{kind}{k}.zarr", array)

        if kind == "bool":
            continue
        depth, height, width = (dice.randint(1, 70) if i else dice.randint(1, 4) for i in range(3))
        channels = dice.choice([1, 1, 3])
        array = numbers((depth, height, width, channels), kind)
        options = {"byteorder": dice.choice("<>"), "bigtiff": dice.random() < 0.3, "photometric": "rgb" if channels == 3 else "minisblack",
                   "compression": dice.choice([None, None, "zlib"]), "metadata": None}
        options.update({"tile": (dice.choice([16, 32]), dice.choice([16, 48]))} if dice.random() < 0.5 else {"rowsperstrip": dice.randint(1, height)})
        if options["compression"] and kind in ("uint8", "int8", "uint16", "int16", "uint32", "int32") and dice.random() < 0.5:
            options["predictor"] = True
        with tifffile.TiffWriter(path(f"{kind}{k}.tif"), byteorder=options.pop("byteorder"), bigtiff=options.pop("bigtiff")) as file:
            for page in array:
                file.write(page if channels == 3 else page[..., 0], planarconfig="contig" if channels == 3 else None, contiguous=False, **options)
        expect(f"{kind}{k}.tif", array, array.shape if channels == 3 else (height, width) if depth == 1 else (depth, height, width))


def refuse(name, message):
    refused.append(name + "\t" + message)


def cut(name, source, size, message):
    whole = open(path(source), "rb").read()
    open(path(name), "wb").write(whole[:size] if size > 0 else whole[:len(whole) + size])
    refuse(name, message)


plain = numbers((3, 40, 50), "uint16")
tifffile.imwrite(path("plain.tif"), plain, photometric="minisblack", metadata=None)
expect("plain.tif", plain)
for truncated, about in [(b">", "ImageJ=1.53t\nimages=3\nslices=3\n"), (b"<", None)]:  # slices without pages of their own
    name = "stack.tif" if about else "truncated.tif"
    tifffile.imwrite(path(name), plain, byteorder=truncated.decode(), photometric="minisblack", truncate=True, description=about, rowsperstrip=7,
                     **({"metadata": None} if about else {}))
    with open(path(name), "ab") as file:
        file.write(b"more")
    expect(name, plain)
cut("stack.short.tif", "stack.tif", -600, "uint16 of [3, 40, 50] are 12000 bytes, the file holds 1")
tifffile.imwrite(path("stack.zlib.tif"), plain[0], description="ImageJ=1.53t\nimages=3\n", compression="zlib", metadata=None)
refuse("stack.zlib.tif", "description says 3 slices, but it has one page, compressed")
cut("short.tif", "plain.tif", 4000, "page 0 ends at byte")
cut("header.tif", "plain.tif", 12, "no TIFF")
with tifffile.TiffFile(path("plain.tif")) as file:   # its last page is followed by its first
    last, first = file.pages[-1], file.pages[0].offset
whole = bytearray(open(path("plain.tif"), "rb").read())
link = last.offset + 2 + 12 * len(last.tags)
assert whole[link:link + 4] == bytes(4)
whole[link:link + 4] = first.to_bytes(4, "little")
open(path("loop.tif"), "wb").write(whole)
refuse("loop.tif", "the page after page 2 cannot be read: the page directories form a loop")
for axes, sizes in [("ZCYX", (3, 2)), ("TZYX", (2, 3)), ("TCYX", (3, 2)), ("TZCYX", (2, 2, 2)), ("CZYX", (2, 3))]:
    array = numbers((*sizes, 6, 5), "uint8")
    by = " x ".join(map(str, sizes))   # two axes of pages; a volume has one
    for kind in "imagej", "ome", "shaped", "whole":
        if kind == "imagej" and axes == "CZYX":
            continue   # which ImageJ does not write
        tifffile.imwrite(path(f"{axes}.{kind}.tif"), array, imagej=kind == "imagej", ome=kind == "ome", truncate=kind == "whole", photometric="minisblack",
                         metadata={} if kind in ("shaped", "whole") else {"axes": axes})
        refuse(f"{axes}.{kind}.tif", f"as {by}," if axes != "CZYX" or kind != "ome" else "as 3 x 2,")
for axes in "ZYX", "TYX", "CYX":   # one axis of pages, whatever it is called
    for kind in "imagej", "ome":
        tifffile.imwrite(path(f"{axes}.{kind}.tif"), plain, imagej=kind == "imagej", ome=kind == "ome", photometric="minisblack", metadata={"axes": axes})
        expect(f"{axes}.{kind}.tif", plain)
rgb = numbers((2, 9, 8, 3), "uint8")
for kind in "imagej", "ome", "shaped":
    tifffile.imwrite(path(f"rgb.{kind}.tif"), rgb, imagej=kind == "imagej", ome=kind == "ome", photometric="rgb", metadata={} if kind == "shaped" else {"axes": "ZYXS"})
    expect(f"rgb.{kind}.tif", rgb)
with tifffile.TiffWriter(path("mask.tif")) as file:   # of page 0, in one bit
    file.write(plain[0], photometric="minisblack", metadata=None), file.write(plain[0] > 9, subfiletype=4, metadata=None)
expect("mask.tif", plain[0])
with tifffile.TiffWriter(path("sizes.tif")) as file:
    file.write(np.zeros((8, 8), np.uint8), metadata=None), file.write(np.zeros((8, 9), np.uint8), metadata=None)
refuse("sizes.tif", "page 1 is 8 x 9 of 1 channels of 8 bits, page 0 8 x 8")
tifffile.imwrite(path("planes.tif"), np.zeros((3, 8, 8), np.uint8), photometric="rgb", planarconfig="separate", metadata=None)
refuse("planes.tif", "stores its 3 channels as separate planes")
tifffile.imwrite(path("palette.tif"), np.zeros((8, 8), np.uint8), photometric="palette", colormap=np.zeros((3, 256), np.uint16), metadata=None)
refuse("palette.tif", "photometric interpretation 3")
tifffile.imwrite(path("complex.tif"), np.zeros((8, 8), np.complex64), metadata=None)
refuse("complex.tif", "samples of 64 bits in format 6")
for slices in 1, 5:
    tifffile.imwrite(path(f"deep{slices}.tif"), np.zeros((slices, 32, 32), np.uint8), photometric="minisblack", volumetric=True, tile=(16, 16, 16), metadata=None)
    refuse(f"deep{slices}.tif", f"page 0 holds {slices} slices in 3-D tiles of 16")
tifffile.imwrite(path("bits.tif"), np.zeros((8, 8), bool), metadata=None)
refuse("bits.tif", "samples of 1 bits")
tifffile.imwrite(path("damaged.tif"), numbers((64, 64), "uint8"), compression="zlib", metadata=None)
whole = bytearray(open(path("damaged.tif"), "rb").read())
with tifffile.TiffFile(path("damaged.tif")) as file:
    at = file.pages[0].dataoffsets[0]
whole[at:at + 40] = bytes(40)
open(path("damaged.tif"), "wb").write(whole)
refuse("damaged.tif", "strip 0 of page 0 cannot be unpacked")


def array_of(name, **changes):
    os.makedirs(path(name))
    about = {"zarr_format": 2, "shape": [4, 4], "chunks": [2, 4], "dtype": "<u2", "compressor": None, "fill_value": 0, "order": "C", "filters": None}
    about.update(changes)
    open(path(name + "/.zarray"), "w").write(json.dumps(about))


for name, changes, message in [
        ("lzma.zarr", {"compressor": {"id": "lzma"}}, 'compressor "lzma" is not read: write'), ("format.zarr", {"zarr_format": 3}, "is not 2"),
        ("filters.zarr", {"filters": [{"id": "delta"}]}, '"filters" are not read'), ("shape.zarr", {"shape": [4, -4]}, 'an extent of "shape"'),
        ("huge.zarr", {"shape": [2**62, 4]}, "impossible shape"), ("chunk.zarr", {"chunks": [2**40, 4]}, "more than 2^30 bytes"),
        ("none.zarr", {"chunks": [0, 4]}, 'an extent of "chunks"'), ("axes.zarr", {"chunks": [4]}, '"chunks" is no list'),
        ("more.zarr", {"chunks": [1, 2, 2]}, "chunks of [1, 2, 2] of an array of [4, 4]"), ("type.zarr", {"dtype": "<c8"}, '"dtype" is "<c8"'),
        ("text.zarr", {"dtype": [["a", "<u2"]]}, '"dtype" is ""'), ("order.zarr", {"order": "A"}, '"order" is neither'),
        ("fill.zarr", {"fill_value": 70000}, '"fill_value" is no uint16'), ("words.zarr", {"fill_value": "NaN"}, '"fill_value" is no uint16'),
        ("separator.zarr", {"dimension_separator": "../"}, '"dimension_separator" is neither')]:
    array_of(name, **changes)
    refuse(name, message)
array_of("lost.zarr")   # a chunk that is there, but elsewhere
os.symlink("nowhere", path("lost.zarr/1.0"))
refuse("lost.zarr", "cannot open")
array_of("loop.zarr")
os.symlink("0.0", path("loop.zarr/0.0"))
refuse("loop.zarr", "cannot open")
array_of("lengths.zarr")
open(path("lengths.zarr/0.0"), "wb").write(bytes(15))
refuse("lengths.zarr", "a chunk of [2, 4] has 16 bytes, the file 15")
array_of("zipped.zarr", compressor={"id": "zlib", "level": 1})
open(path("zipped.zarr/1.0"), "wb").write(b"nonsense")
refuse("zipped.zarr", "truncated or damaged")
from numcodecs import Blosc, Zstd
for k, codec in enumerate([Blosc("lz4"), Zstd()]):
    about = {"compressor": codec.get_config(), "chunks": [40, 100], "shape": [40, 100]}
    good = codec.encode(numbers((40, 100), "uint16").tobytes())
    for what, bad in [("cut", good[:-5]), ("less", codec.encode(bytes(7998))), ("more", codec.encode(bytes(8002))), ("none", b""), ("text", b"nonsense, and more of it")]:
        array_of(f"{what}{k}.zarr", **about)
        open(path(f"{what}{k}.zarr/0.0"), "wb").write(bad)
        refuse(f"{what}{k}.zarr", "truncated or damaged")
array_of("giant.zarr", compressor={"id": "zlib", "level": 1})
open(path("giant.zarr/0.0"), "wb").truncate(2**20)
refuse("giant.zarr", "1048576 bytes cannot be a chunk of [2, 4]")
array_of("bomb.zarr", compressor={"id": "zlib", "level": 1}, shape=[1024, 1024], chunks=[1024, 1024])
open(path("bomb.zarr/0.0"), "wb").write(b"x\x9c")
refuse("bomb.zarr", "2 bytes cannot be a chunk of [1024, 1024]")

open(path("expected"), "w").write("\n".join(expected) + "\n")
open(path("refused"), "w").write("\n".join(refused) + "\n")
