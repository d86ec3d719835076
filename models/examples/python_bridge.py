"""Trains a Trireme model from Python: PyTorch's tensors go in, Trireme's weights are seen, both by DLPack and without a copy.

Usage: python_bridge.py LIBRARY        LIBRARY: what python_bridge.cpp became (libpython_bridge.so)
Ends with 77 where there is no PyTorch.
"""
import ctypes
import sys

try:
    import numpy as np
    import torch
    from torch.utils.dlpack import from_dlpack, to_dlpack
except ImportError:
    print("SKIPPED: needs torch")
    sys.exit(77)

lib = ctypes.CDLL(sys.argv[1])
lib.trireme_new.restype = lib.trireme_weight.restype = ctypes.c_void_p
lib.trireme_weight.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
lib.trireme_step.restype = ctypes.c_double
lib.trireme_step.argtypes = [ctypes.c_void_p] * 3
lib.trireme_delete.argtypes = [ctypes.c_void_p]
lib.trireme_error.restype = ctypes.c_char_p

api = ctypes.pythonapi
api.PyCapsule_New.restype = ctypes.py_object
api.PyCapsule_New.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
api.PyCapsule_GetPointer.restype = ctypes.c_void_p
api.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
api.PyCapsule_SetName.argtypes = [ctypes.py_object, ctypes.c_char_p]


def seen(managed):
    """A tensor of PyTorch's over Trireme's memory."""
    assert managed, lib.trireme_error().decode()
    return from_dlpack(api.PyCapsule_New(managed, b"dltensor", None))


def given(tensor):
    """A managed tensor that the library takes over."""
    capsule = to_dlpack(tensor.contiguous())
    managed = api.PyCapsule_GetPointer(capsule, b"dltensor")
    api.PyCapsule_SetName(capsule, b"used_dltensor")
    return managed


model = lib.trireme_new()
names = ["0.weight", "0.bias", "2.weight", "2.bias"]
weights = [seen(lib.trireme_weight(model, name.encode())) for name in names]
assert not lib.trireme_weight(model, b"3.weight") and b"no weight '3.weight'" in lib.trireme_error()

# The same training by PyTorch, from the same weights.
net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 3))
net.load_state_dict({name: w.clone() for name, w in zip(names, weights)})
sgd = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
torch.manual_seed(1)
for step in range(50):
    x = torch.randn(32, 8)
    y = (x[:, :3] + 0.1 * torch.randn(32, 3)).argmax(1)
    loss = lib.trireme_step(model, given(x), given(y))
    sgd.zero_grad()
    expected = torch.nn.functional.cross_entropy(net(x), y)
    expected.backward()
    sgd.step()
    assert abs(loss - expected.item()) < 1e-4, (step, loss, expected.item(), lib.trireme_error())
for name, ours, theirs in zip(names, weights, net.state_dict().values()):  # seen in place, after 50 steps
    assert torch.allclose(ours, theirs, atol=1e-4), name
print(f"loss {loss:.4f}, PyTorch's {expected.item():.4f}; the weights that Python sees are the model's")

weights[1].zero_()  # and what Python writes, the model has
assert (seen(lib.trireme_weight(model, b"0.bias")) == 0).all()
array = np.from_dlpack(weights[0]) if hasattr(np, "from_dlpack") else weights[0].numpy()
assert array.shape == (16, 8) and array.ctypes.data == weights[0].data_ptr()
# Strides are copied into order; wrong operands are told.
transposed = torch.randn(8, 32)
assert lib.trireme_step(model, given(transposed.t()), given(torch.zeros(32, dtype=torch.int64))) > 0
assert lib.trireme_step(model, given(torch.randn(4, 7)), given(torch.zeros(4, dtype=torch.int64))) == -1
assert b"does not fit the weight" in lib.trireme_error(), lib.trireme_error()
del array, weights
lib.trireme_delete(model)
