"""The reference implementation's verdict on our files: safetensors_oracle.py FOLDER.

ours.safetensors is read and written again as theirs.safetensors, which must equal it byte for byte; made.safetensors is written for
us to read; `verdicts` gets a line "name yes|no" for every FOLDER/case_*: does the reference accept it?"""
import glob
import os
import sys

try:
    import numpy as np
    from safetensors import TensorSpec, deserialize, serialize  # 0.8 or newer
    from safetensors.numpy import save_file
except ImportError:
    sys.exit(77)

folder = sys.argv[1]
names = {"F64": "float64", "F32": "float32", "BF16": "bfloat16", "I64": "int64", "I32": "int32", "I16": "int16", "I8": "int8", "U8": "uint8", "BOOL": "bool"}


def read(path):
    with open(path, "rb") as f:
        return deserialize(f.read())


arrays = []  # kept alive for serialize
specs = {}
for name, about in read(os.path.join(folder, "ours.safetensors")):
    array = np.frombuffer(bytes(about["data"]) or b"\0", np.uint8)
    arrays.append(array)
    specs[name] = TensorSpec(dtype=names[about["dtype"]], shape=about["shape"], data_ptr=array.ctypes.data,
                             data_len=len(about["data"]))
with open(os.path.join(folder, "theirs.safetensors"), "wb") as f:
    f.write(bytes(serialize(specs, metadata={"format": "pt"})))

rng = np.random.default_rng(1)
save_file({"half": np.arange(65536, dtype=np.uint16).view(np.float16), "conv": rng.standard_normal((4, 3, 2, 2)).astype(np.float32),
           "count": np.array(7, np.int64), "none": np.zeros((0, 3), np.float64)}, os.path.join(folder, "made.safetensors"),
          metadata={"by": "the reference"})
with open(os.path.join(folder, "made.half"), "wb") as f:
    f.write(np.arange(65536, dtype=np.uint16).view(np.float16).astype(np.float32).tobytes())

with open(os.path.join(folder, "verdicts"), "w") as f:
    for path in sorted(glob.glob(os.path.join(folder, "case_*"))):
        try:
            read(path)
            verdict = "yes"
        except Exception:  # whatever it raises is a refusal
            verdict = "no"
        f.write("%s %s\n" % (os.path.basename(path)[5:], verdict))
