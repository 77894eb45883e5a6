#!/usr/bin/env python3
"""examples/torch_layer.py without torch and without a GPU: its ctypes declarations, over numpy arrays in a simulated device's memory.

    torch_layer_sim.py libmoert.so IMAGE        IMAGE: sm_90a, f16, with bitcode; H=64, I=32 or free
"""
import ctypes
import os
import sys

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "examples"))
sys.dont_write_bytecode = True
import torch_layer as t

E, K, H, I, T = 8, 2, 64, 32, 5


class Versioned:
    """An array whose capsule is of DLPack 1.x."""

    def __init__(self, array):
        self.array = array

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()

    def __dlpack__(self):
        return self.array.__dlpack__(max_version=(1, 0))


def on_device(device, array):
    """A copy in the device's memory, as an array."""
    p = ctypes.c_void_p()
    device.check(device.lib.moe_alloc(device.handle, array.nbytes, ctypes.byref(p)))
    device.check(device.lib.moe_upload(device.handle, p, array.ctypes.data, array.nbytes))
    memory = (ctypes.c_char * array.nbytes).from_address(p.value)
    return np.frombuffer(memory, dtype=array.dtype).reshape(array.shape)


def reference(x, logits, gate, up, down):
    p = np.exp(logits - logits.max(1, keepdims=True))
    y = np.zeros(x.shape)
    for n in range(len(x)):
        ids = np.argsort(-p[n], kind="stable")[:K]
        for e in ids:
            a, g, u = x[n].astype(float), gate[e].astype(float), up[e].astype(float)
            h = (g @ a) / (1 + np.exp(-(g @ a))) * (u @ a)
            y[n] += p[n, e] / p[n, ids].sum() * (down[e].astype(float) @ h)
    return y


def refuses(words, function, **arguments):
    try:
        function(**arguments)
    except RuntimeError as e:
        assert str(e) == words, e
        return
    raise AssertionError(words)


def main():
    rng = np.random.default_rng(1)
    device = t.Device(t.load_library(sys.argv[1]), "sim:sm_90a")
    with open(sys.argv[2], "rb") as f:
        image = device.load(f.read())
    values = [rng.normal(size=s) / s[-1]**0.5 for s in ((E, I, H), (E, I, H), (E, H, I))] + [rng.normal(size=(T, H))]
    gate, up, down, x = (on_device(device, v.astype(np.float16)) for v in values)
    logits = on_device(device, rng.normal(size=(T, E)).astype(np.float32))
    y = on_device(device, np.full((T, H), np.nan, np.float16))
    desc = t.Desc(experts=E, topk=K, hidden=H, ffn=I, dtype=t.F16, renorm=1)
    layer = t.Layer(device, image, desc, gate=gate, up=up, down=down)
    space = on_device(device, np.zeros(layer.workspace_bytes(T), np.uint8))
    wrap = Versioned if np.lib.NumpyVersion(np.__version__) >= "2.1.0" else lambda a: a
    for kind in (lambda a: a, wrap):
        y[:] = np.nan
        layer.run(layer.prepare(x=kind(x), y=kind(y), logits=kind(logits), workspace=kind(space)))
        device.check(device.lib.moe_sync(device.handle, None))
        want = reference(x, logits, gate, up, down)
        error = np.linalg.norm(y - want) / np.linalg.norm(want)
        assert error < 1e-3, error
    refuses("y: [5, 64] of f16 expected, [4, 64] of f16 is given", layer.prepare, x=x, y=y[:4], logits=logits)
    refuses("ids: of i64, i32 expected: convert it (PyTorch: .to(torch.int32))", layer.prepare, x=x, y=y,
            ids=np.zeros((T, K), np.int64), weights=logits[:, :K].copy())
    refuses("logits: [5, 8] with strides [16, 1] is not dense in row-major order (PyTorch: .contiguous())", layer.prepare, x=x, y=y,
            logits=np.zeros((T, 2 * E), np.float32)[:, :E])
    layer.free()
    device.check(device.lib.moe_unload(image))
    print(f"relative L2 {error:.1e}")


if __name__ == "__main__":
    main()
