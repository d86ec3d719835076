"""A packed file as the reference implementation of safetensors reads it: packed_oracle.py FOLDER.

From FOLDER/all.pack to labels.npy and pixels.npy (f64), and `metadata`, a line "key value" each, by key."""
import sys

try:
    import numpy as np
    from safetensors import safe_open
except ImportError:
    sys.exit(77)

folder = sys.argv[1]
with safe_open(f"{folder}/all.pack", "np") as file:
    assert sorted(file.keys()) == ["labels", "pixels"]
    labels, pixels = file.get_tensor("labels"), file.get_tensor("pixels")
    assert (labels.dtype, pixels.dtype) == (np.int64, np.uint8)
    np.save(f"{folder}/labels.npy", labels.astype(np.float64))
    np.save(f"{folder}/pixels.npy", pixels.astype(np.float64))
    with open(f"{folder}/metadata", "w") as out:
        out.writelines(f"{key} {value}\n" for key, value in sorted(file.metadata().items()))
