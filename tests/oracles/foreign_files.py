"""Files as NumPy and PyTorch really write them, and hostile ones: foreign_files.py FOLDER.

`expected` lists the good files: "file NAME", then for each array "INDEX TYPE SHAPE NAME", its bytes in FOLDER/NAME.INDEX, or "left TEXT" for
what a reader leaves out. `refused` has a line per bad file: its name, a tab, part of the message it must meet."""
import argparse
import collections
import io
import pickle
import struct
import sys
import zipfile

try:
    import numpy as np
    import torch
    import torchvision
except ImportError:
    sys.exit(77)

folder = sys.argv[1]
expected, refused = [], []
rng = np.random.default_rng(3)


def raw(array):
    """Type and bytes as ours become: the wider type where ours lack one."""
    if isinstance(array, torch.Tensor):
        array = array.detach().contiguous()
        if array.dtype == torch.bfloat16:
            return "bf16", array.view(torch.int16).numpy().tobytes()
        array = array.numpy()
    wider = {"float16": np.float32}
    array = array.astype(wider.get(array.dtype.name, array.dtype.newbyteorder("<")))
    return {"float64": "f64", "float32": "f32", "int64": "i64", "int32": "i32", "int16": "i16", "int8": "i8", "uint8": "u8", "bool": "bool"}[array.dtype.name], array.tobytes()


def expect(name, arrays, left=()):
    expected.append(f"file {name}")
    for i, (key, array) in enumerate(arrays.items()):
        kind, data = raw(array)
        expected.append(f"{i} {kind} {','.join(map(str, array.shape)) or '-'} {key}")
        with open(f"{folder}/{name}.{i}", "wb") as f:
            f.write(data)
    expected.extend(f"left {text}" for text in left)


def refuse(name, part, data=None):
    if data is not None:
        with open(f"{folder}/{name}", "wb") as f:
            f.write(data)
    refused.append(f"{name}\t{part}")


def npz():
    halves = np.arange(0x7c01, dtype=np.uint16).view(np.float16)  # every one up to infinity
    arrays = {"f2": np.concatenate([halves, -halves]), "f4": rng.standard_normal((3, 5)).astype("f4"), "f8": rng.standard_normal((2, 3, 4)),
              "i1": np.arange(-128, 128, dtype="i1"), "i2": np.array([-2**15, 2**15 - 1], "i2"), "i4": np.array([[1], [-2]], "i4"),
              "i8": np.array(-2**63, "i8"), "u1": np.arange(256, dtype="u1"), "b1": np.array([True, False, True]),
              "big": np.arange(10, dtype=">f4"), "big8": rng.standard_normal((3, 2)).astype(">f8"), "big2": np.array([1, -300], ">i2"),
              "fortran": np.asfortranarray(rng.standard_normal((4, 3, 2))), "turned": rng.standard_normal((5, 7)).astype("f4").T,
              "both": np.asfortranarray(rng.standard_normal((3, 4)).astype(">f4")), "none": np.zeros((0, 3)), "layer.0/weight": np.ones((1, 1))}
    np.savez(f"{folder}/plain.npz", **arrays)
    np.savez_compressed(f"{folder}/packed.npz", **arrays, zeros=np.zeros(100000))
    expect("plain.npz", arrays)
    expect("packed.npz", {**arrays, "zeros": np.zeros(100000)})
    for version in (2, 3):
        text = io.BytesIO()
        np.lib.format.write_array(text, arrays["f8"], version=(version, 0))
        with zipfile.ZipFile(f"{folder}/version{version}.npz", "w") as z:
            z.writestr("a.npy", text.getvalue())
        expect(f"version{version}.npz", {"a": arrays["f8"]})
    for name, array, part in (("object", np.array([{}, 1], object), "could run code"), ("complex", np.zeros(2, "c8"), '\"<c8\"'),
                              ("text", np.array(["a"]), '"<U1"'), ("u2", np.zeros(2, "u2"), '"<u2"'),
                              ("struct", np.zeros(2, [("a", "f4"), ("b", "i8")]), "is structured"), ("axes", np.zeros([1] * 7), "more than 6 axes")):
        np.savez(f"{folder}/{name}.npz", a=array)
        refuse(f"{name}.npz", part)


def npy(descr="'<f4'", order="False", shape="(2,)", data=bytes(8)):
    header = f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY\1\0" + struct.pack("<H", len(header)) + header + data


def zipped(method=zipfile.ZIP_STORED, **entries):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as z:
        for name, data in entries.items():
            z.writestr(name.replace("__", "/"), data)
    return out.getvalue()


def bad_npz():
    def one(data, **options):
        return zipped(**{"a.npy": data}, **options)
    refuse("short.npz", "declares 12 bytes of elements, it holds 8", one(npy(shape="(3,)")))
    refuse("long.npz", "declares 4 bytes of elements, it holds 8", one(npy(shape="(1,)")))
    refuse("huge.npz", "impossible shape", one(npy(shape="(9223372036854775807, 9223372036854775807, 0)")))
    refuse("overflow.npz", "no 64-bit number", one(npy(shape="(92233720368547758070,)")))
    refuse("negative.npz", "impossible shape", one(npy(shape="(-2, -1)")))
    refuse("order.npz", "array \"a\" is damaged: \"{'descr'", one(npy(order="os.system('x')")))
    refuse("twice.npz", "is damaged", one(npy(order="False, 'fortran_order': True")))
    refuse("key.npz", "is damaged", one(npy(order="False, 'evil': 'x'")))
    refuse("magic.npz", "no .npy array", one(b"hello, world"))
    refuse("header.npz", "cut off in its header", one(npy()[:20]))
    refuse("other.npz", "no .npy array", zipped(**{"a.txt": b"x"}))
    refuse("empty.npz", "no whole ZIP", b"")
    refuse("name.npz", "\"?]0;x?.npy.txt\"", zipped(**{"\x1b]0;x\x07.npy.txt": npy()}))
    bomb = one(npy(shape="(25000000,)", data=bytes(100000000)), method=zipfile.ZIP_DEFLATED)
    refuse("bomb.npz", "over the", bomb)
    good = one(npy())
    at = good.index(b"PK\1\2")
    refuse("crc.npz", "checksum is wrong", good.replace(bytes(8) + b"PK\1\2", b"\1" * 8 + b"PK\1\2"))
    refuse("encrypted.npz", "is encrypted", good[:at + 8] + b"\1" + good[at + 9:])
    refuse("method.npz", "packed by method 12", good[:at + 10] + b"\x0c" + good[at + 11:])
    refuse("elsewhere.npz", "is not at offset", good[:at + 42] + struct.pack("<I", 3) + good[at + 46:])
    refuse("beyond.npz", "overlaps", good[:at + 42] + struct.pack("<I", 2**31) + good[at + 46:])
    refuse("renamed.npz", "is called", good[:at + 46] + b"b" + good[at + 47:])
    refuse("longer.npz", "cannot hold", good[:at + 24] + struct.pack("<I", 2**31) + good[at + 28:])
    entry, end = good[at:-22], bytearray(good[-22:])
    struct.pack_into("<HHI", end, 8, 2, 2, 2 * len(entry))
    refuse("overlap.npz", "overlaps", good[:at] + entry + entry + bytes(end))
    refuse("comment.npz", "no whole ZIP", good + b"x")


def torch_files():
    weights = torchvision.models.resnet18().state_dict()
    torch.save(weights, f"{folder}/resnet18.pt")
    expect("resnet18.pt", weights)
    base = torch.randn(6, 8)
    tensors = {"f16": torch.randn(5, 3).half(), "bf16": torch.randn(4).bfloat16(), "f64": torch.randn(2, 3).double(), "i64": torch.tensor(-2**63),
               "i32": torch.tensor([1, -2], dtype=torch.int32), "i16": torch.tensor([-2**15], dtype=torch.int16),
               "i8": torch.tensor([-128, 127], dtype=torch.int8), "u8": torch.arange(256).to(torch.uint8), "bool": torch.tensor([True, False]),
               "base": base, "turned": base.t(), "part": base[1:5:2, 2:7:3], "row": base[3], "wide": base[:, :1].expand(6, 4), "none": torch.zeros(0, 3),
               "nchw": torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last), "half_view": torch.randn(4, 6).half().t()[1:],
               "parameter": torch.nn.Parameter(torch.randn(3, 2).t()), "grad": torch.randn(2, requires_grad=True)}
    torch.save(tensors, f"{folder}/types.pth")
    expect("types.pth", tensors)
    torch.save(tensors, f"{folder}/protocol4.pt", pickle_protocol=4)
    expect("protocol4.pt", tensors)
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    torch.save({"epoch": 3, "lr": 0.5, "state_dict": model.state_dict(), "optimizer": optimizer.state_dict()}, f"{folder}/nested.pt")
    expect("nested.pt", model.state_dict(), ['"epoch" (number)', '"lr" (number)', '"optimizer" (dict)'])
    torch.save({"model": collections.OrderedDict(a=base), "best": base}, f"{folder}/model.bin")
    expect("model.bin", {"a": base}, ['"best" (tensor)'])
    torch.save({"a": base, "note": "x", "sizes": base.size()}, f"{folder}/flat.pt")
    expect("flat.pt", {"a": base}, ['"note" (text)', '"sizes" (tuple)'])
    bad = (("list", [base], "holds a list, not a dict"), ("tensor", base, "holds a tensor, not a dict"), ("nothing", {"a": 1}, "holds no tensor"),
           ("module", model, "names \"torch.nn.modules.linear.Linear\""), ("namespace", {"a": base, "args": argparse.Namespace(x=1)}, "\"argparse.Namespace\""),
           ("scalar", {"a": base, "b": np.float64(3)}, "\"numpy.core.multiarray.scalar\""), ("complex", {"a": torch.zeros(2, dtype=torch.complex64)}, "complex numbers are not read"),
           ("quantized", {"a": torch.quantize_per_tensor(base, 0.1, 0, torch.qint8)}, "_rebuild_qtensor"), ("sparse", {"a": base.to_sparse()}, "\"torch._utils._rebuild_sparse_tensor\""),
           ("axes", {"a": torch.zeros([1] * 7)}, "has 7 axes"), ("numbered", {1: base}, "named by a number"), ("set", {"a": base, "b": {1}}, "\"__builtin__.set\""))
    for name, thing, part in bad:
        torch.save(thing, f"{folder}/{name}.pt")
        refuse(f"{name}.pt", part)
    torch.save(weights, f"{folder}/legacy.pt", _use_new_zipfile_serialization=False)
    refuse("legacy.pt", "before PyTorch 1.6")
    torch.jit.script(model).save(f"{folder}/script.pt")
    refuse("script.pt", "TorchScript")


TENSOR = b"ctorch._utils\n_rebuild_tensor_v2\n"


def number(n):
    return b"J" + struct.pack("<i", n) if -2**31 <= n < 2**31 else b"\x8a\x08" + struct.pack("<q", n)


def text(s):
    return b"X" + struct.pack("<I", len(s)) + s


def numbers(values):
    return b"(" + b"".join(map(number, values)) + b"t"


def storage(key=b"0", elements=4, kind=b"ctorch\nFloatStorage\n"):
    return b"(" + text(b"storage") + kind + text(key) + text(b"cpu") + number(elements) + b"tQ"


def tensor(size=(4,), strides=(1,), offset=0, **options):
    return TENSOR + b"(" + storage(**options) + number(offset) + numbers(size) + numbers(strides) + b"\x89NtR"


def hostile():
    def save(name, part, body, proto=b"\x80\x02", end=b".", **entries):
        refuse(f"{name}.pt", part, zipped(**{"x__data.pkl": proto + body + end, "x__data__0": bytes(16), **entries}))

    def state(value):
        return b"}" + text(b"a") + value + b"s"

    class Attack:
        def __init__(self, function, *words):
            self.call = function, words

        def __reduce__(self):
            return self.call
    import os
    for protocol in range(5):
        attack = pickle.dumps({"a": Attack(os.system, "touch /tmp/owned")}, protocol)
        refuse(f"system{protocol}.pt", "pickle is refused", zipped(**{"x__data.pkl": attack}))
    for name, function in (("eval", eval), ("getattr", getattr), ("import", __import__), ("numpy_load", np.load), ("torch_load", torch.load)):
        attack = pickle.dumps({"a": Attack(function, "1")}, 2)
        refuse(f"{name}.pt", "it names", zipped(**{"x__data.pkl": attack}))
    save("near", 'names "torch.FloatStorage.__init__"', state(b"ctorch\nFloatStorage.__init__\n)R"))
    save("space", "it names", state(b"c\ncollections OrderedDict\n)R"))
    save("dotted", "it names", state(b"ctorch._utils _rebuild_tensor_v2\n\n)R"))
    save("stack_global", '"posix.system"', text(b"posix") + text(b"system") + b"\x93" + text(b"id") + b"\x85R")
    save("inst", "opcode 'i'", b"(" + text(b"id") + b"ios\nsystem\n")
    save("obj", "it names", b"(cos\nsystem\n" + text(b"id") + b"o")
    save("newobj", "opcode 0x81", b"ccollections\nOrderedDict\n)\x81")
    save("extension", "opcode 0x82", b"\x82\x01")
    save("persid", "opcode 'P'", b"P../../etc/passwd\n")
    save("build_tensor", "gives attributes to a tensor", tensor() + b"}b")
    save("build_function", "gives attributes to a function", b"ctorch\nFloatStorage\n}b")
    save("call_storage", 'calls "torch FloatStorage"', b"ctorch\nFloatStorage\n)R")
    save("call_tensor", "calls what is no name", tensor() + b")R")
    save("marks", "nested too deeply", b"(" * 1000000)
    save("tuples", "more than", b")" + b"\x85" * 1000000)
    save("lists", "holds a list", b"]q\0h\0a" + b"h\0h\0a" * 1000)
    save("steps", "steps", b"N0" * 1000000)
    save("memo_gap", "memo 4294967295", b"Nr\xff\xff\xff\xff")
    save("memo_none", "memo 7 of 0", b"h\7")
    save("dicts", "holds no tensor", b"}q\0" + b"".join(b"h\0(h\0h\0uq\0" for _ in range(1000)))
    save("long", "a number of 255 bytes", b"\x8a\xff" + bytes(255))
    save("unicode", "cut off", b"\x8d\xff\xff\xff\xff\xff\xff\xff\x7f")
    save("line", "cut off", b"cos", end=b"")
    save("endless", "cut off", state(tensor()), end=b"")
    save("tail", "bytes follow its end", state(tensor()) + b".cos\nsystem\n")
    save("underflow", "where there is none", b"0")
    save("mark_missing", "a mark is missing", b"Nt")
    save("below_mark", "where there is none", b"}(0")
    save("append_text", "appends to a text", text(b"a") + b"Na")
    save("odd", "no value", b"}(Nu")
    save("protocol", "protocol 1", state(tensor()), proto=b"\x80\x01")
    # What a tensor may claim.
    save("outside", "reaches beyond the 4 elements", state(tensor(size=(5,))))
    save("offset", "reaches beyond", state(tensor(size=(1,), offset=4)))
    save("stride", "reaches beyond", state(tensor(size=(2,), strides=(2**62,))))
    save("overflow", "reaches beyond", state(tensor(size=(5, 5), strides=(2**62, 2**62))))
    save("negative_offset", "negative offset", state(tensor(offset=-1)))
    save("negative_stride", "negative offset or stride", state(tensor(strides=(-1,))))
    save("negative_size", "impossible shape", state(tensor(size=(-4,))))
    save("huge", "impossible shape", state(tensor(size=(2**62, 2**62, 0), strides=(0, 0, 0))))
    save("expanded", "over the", state(tensor(size=(10**9,), strides=(0,))))
    save("strides", "as many strides", state(tensor(size=(2, 2))))
    save("no_storage", "as many strides", state(TENSOR + b"(N" + number(0) + numbers((1,)) * 2 + b"\x89NtR"))
    save("path", "storage \"../../../etc/passwd\" of tensor", state(tensor(key=b"../../../etc/passwd")))
    save("pickle_as_storage", "is missing", state(tensor(key=b"../data.pkl")))
    save("elements", "has 16 bytes, not those of 5 elements", state(tensor(elements=5)))
    save("type", "not those of 4 elements", state(tensor(kind=b"ctorch\nDoubleStorage\n")))
    save("type_name", "storage is not made of", state(tensor(kind=b"ctorch\nSize\n")))
    save("same_name", "two tensors are named", state(tensor()) + text(b"a") + tensor() + b"s")
    save("pickles", "more than one data.pkl", state(tensor()), **{"y__data.pkl": b"\x80\x02}."})
    save("big_endian", "big-endian", state(tensor()), x__byteorder=b"big")
    refuse("no_pickle.pt", "holds no data.pkl", zipped(a=b"x"))
    refuse("text.pt", "no whole ZIP", b"hello")
    with open(f"{folder}/small.pt", "wb") as f:
        f.write(zipped(**{"x__data.pkl": b"\x80\x02" + state(tensor()) + b".", "x__data__0": struct.pack("<4f", 1, 2, 3, 4)}))
    expect("small.pt", {"a": np.array([1, 2, 3, 4], "f4")})


for step in (npz, bad_npz, torch_files, hostile):
    step()
for name, lines in (("expected", expected), ("refused", refused)):
    with open(f"{folder}/{name}", "w") as f:
        f.write("".join(line + "\n" for line in lines))
