#!/usr/bin/env python3
"""A layer of moec in PyTorch, through ctypes alone: nothing is compiled here.

    moec --arch=sm_90a -o moe.moe kernels/moe.dsl          (on a machine that has the compiler)
    python3 torch_layer.py moe.moe --lib=libmoert.so       (on the one with the GPU)

Runs the layer on torch's current stream with tensors passed by DLPack, compares with float32 torch, prints the host's time of a
call, and replays it from a torch.cuda.graph. Class Layer is what an engine would take over.
"""
import argparse
import ctypes
import os
import sys
import time
from ctypes import c_char_p, c_float, c_int, c_int64, c_size_t, c_uint, c_void_p

BF16, F16 = 3, 4  # enum image_elem

# ---- runtime/moert.h, moelayer.h, moedlpack.h


class Sized(ctypes.Structure):
    """A struct whose first member is its size."""

    def __init__(self, **members):
        super().__init__(size=ctypes.sizeof(self), **members)


class Desc(Sized):  # struct moe_layer_desc
    _fields_ = ([("size", c_size_t)] + [(n, c_int) for n in ("experts", "topk", "shared", "hidden", "ffn", "dtype", "activation")] +
                [("alpha", c_float), ("limit", c_float), ("score", c_int), ("renorm", c_int), ("scale", c_float)] +
                [(n, c_int) for n in ("groups", "keep_groups", "group_pairs", "shared_gate")] + [("local", c_int64)])


class Dl(ctypes.Structure):  # struct moe_dl
    _fields_ = [("managed", c_void_p), ("versioned", c_int)]


WEIGHTS = ("gate", "up", "down", "gate_bias", "up_bias", "down_bias", "select_bias", "shared_gate", "expert_map")
TENSORS = ("x", "y", "logits", "ids", "weights", "workspace")


class DlWeights(Sized):  # struct moe_dl_weights
    _fields_ = [("size", c_size_t)] + [(n, Dl) for n in WEIGHTS]


class Weights(Sized):  # struct moe_layer_weights
    _fields_ = [("size", c_size_t)] + [(n, c_void_p) for n in WEIGHTS]


class DlCall(Sized):  # struct moe_dl_call
    _fields_ = [("size", c_size_t)] + [(n, Dl) for n in TENSORS]


class Call(Sized):  # struct moe_layer_call
    _fields_ = ([("size", c_size_t), ("tokens", c_int64)] + [(n, c_void_p) for n in TENSORS] +
                [("workspace_bytes", c_size_t), ("steps", c_uint), ("rows", c_int), ("parts", c_void_p)])


FUNCTIONS = {  # result int, unless said
    "moe_open": [c_char_p, c_void_p, c_char_p, c_size_t],
    "moe_error": [c_void_p, c_char_p, c_size_t],
    "moe_close": [c_void_p],
    "moe_load": [c_void_p, c_char_p, c_size_t, c_void_p],
    "moe_unload": [c_void_p],
    "moe_alloc": [c_void_p, c_size_t, c_void_p],
    "moe_free": [c_void_p, c_void_p],
    "moe_upload": [c_void_p, c_void_p, c_void_p, c_size_t],
    "moe_sync": [c_void_p, c_void_p],
    "moe_layer_create": [c_void_p, c_void_p, c_void_p, c_void_p],
    "moe_layer_free": [c_void_p],
    "moe_layer_workspace": [c_void_p, c_int64],
    "moe_layer_forward": [c_void_p, c_void_p, c_void_p],
    "moe_dl_get_weights": [c_void_p, c_void_p, c_void_p, c_void_p],
    "moe_dl_get_call": [c_void_p, c_void_p, c_void_p],
}
OTHER_RESULTS = {"moe_error": c_char_p, "moe_close": None, "moe_layer_free": None, "moe_layer_workspace": c_size_t}


def load_library(path):
    lib = ctypes.CDLL(path)
    for name, arguments in FUNCTIONS.items():
        function = getattr(lib, name)
        function.argtypes = arguments
        function.restype = OTHER_RESULTS.get(name, c_int)
    return lib


# ---- DLPack capsules

ctypes.pythonapi.PyCapsule_GetName.restype = c_char_p
ctypes.pythonapi.PyCapsule_GetName.argtypes = [ctypes.py_object]
ctypes.pythonapi.PyCapsule_GetPointer.restype = c_void_p
ctypes.pythonapi.PyCapsule_GetPointer.argtypes = [ctypes.py_object, c_char_p]
CPU = 1


def capsule_of(tensor):
    """stream=-1: the producer does not wait, since the layer runs on the stream that made the tensor."""
    tensor = tensor.detach() if hasattr(tensor, "detach") else tensor
    return tensor.__dlpack__() if tensor.__dlpack_device__()[0] == CPU else tensor.__dlpack__(stream=-1)


def dl_of(capsule):
    """Valid as long as the capsule lives. It stays unused: its own destructor calls the tensor's deleter."""
    name = ctypes.pythonapi.PyCapsule_GetName(capsule)
    return Dl(ctypes.pythonapi.PyCapsule_GetPointer(capsule, name), name == b"dltensor_versioned")


def fill(struct, tensors):
    """Sets the members of that name; gives the capsules that the caller must hold meanwhile."""
    capsules = {name: capsule_of(t) for name, t in tensors.items() if t is not None}
    for name, capsule in capsules.items():
        setattr(struct, name, dl_of(capsule))
    return capsules


# ---- the layer


class Device:
    def __init__(self, lib, name):
        why = ctypes.create_string_buffer(512)
        self.lib, self.handle = lib, c_void_p()
        if lib.moe_open(name.encode(), ctypes.byref(self.handle), why, len(why)):
            raise RuntimeError(why.value.decode())

    def check(self, status):
        if status:
            why = ctypes.create_string_buffer(1024)
            raise RuntimeError(self.lib.moe_error(self.handle, why, len(why)).decode())

    def load(self, image):
        handle = c_void_p()
        self.check(self.lib.moe_load(self.handle, image, len(image), ctypes.byref(handle)))
        return handle

    def close(self):
        self.lib.moe_close(self.handle)


class Layer:
    """Over an image of Device.load(). Keeps the weights alive, not what a call gets."""

    def __init__(self, device, image, desc, **weights):
        self.device, self.weights, self.handle = device, weights, c_void_p()
        tensors, pointers = DlWeights(), Weights()
        capsules = fill(tensors, weights)
        lib = device.lib
        device.check(lib.moe_dl_get_weights(device.handle, ctypes.byref(desc), ctypes.byref(tensors), ctypes.byref(pointers)))
        device.check(lib.moe_layer_create(image, ctypes.byref(desc), ctypes.byref(pointers), ctypes.byref(self.handle)))
        del capsules

    def workspace_bytes(self, tokens):
        return self.device.lib.moe_layer_workspace(self.handle, tokens)

    def prepare(self, **tensors):
        """x, y, workspace, and logits or ids and weights: a call that may run many times, while these tensors live."""
        given, call = DlCall(), Call()
        capsules = fill(given, tensors)
        self.device.check(self.device.lib.moe_dl_get_call(self.handle, ctypes.byref(given), ctypes.byref(call)))
        del capsules
        return call

    def run(self, call, stream=None):
        """stream: the driver's handle, torch.cuda.current_stream().cuda_stream."""
        self.device.check(self.device.lib.moe_layer_forward(self.handle, ctypes.byref(call), stream))

    def free(self):
        self.device.lib.moe_layer_free(self.handle)


# ---- the example


def reference(torch, x, logits, gate, up, down, topk):
    """float32, nothing rounded on the way."""
    p = torch.softmax(logits, 1)
    weights, ids = p.topk(topk, 1)
    weights = weights / weights.sum(1, keepdim=True)
    y = torch.zeros(x.shape, dtype=torch.float32, device=x.device)
    for e in range(gate.shape[0]):
        t, j = (ids == e).nonzero(as_tuple=True)
        if len(t) == 0:
            continue
        a = x[t].float()
        h = torch.nn.functional.silu(a @ gate[e].float().T) * (a @ up[e].float().T)
        y.index_add_(0, t, weights[t, j, None] * (h @ down[e].float().T))
    return y


def host_us(torch, call, n=20, repeats=30):
    """Median time that the host spends in a call; the queue is emptied before it is full."""
    times = []
    for _ in range(repeats):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(n):
            call()
        times.append((time.perf_counter() - start) / n)
    torch.cuda.synchronize()
    return sorted(times)[repeats // 2] * 1e6


def run(torch, layer, weights, tokens, args):
    device = torch.device("cuda", int(args.device.partition(":")[2] or 0))
    x = torch.randn(tokens, args.hidden, device=device, dtype=torch.bfloat16)
    logits = torch.randn(tokens, args.experts, device=device)
    y = torch.full_like(x, float("nan"))
    space = torch.empty(layer.workspace_bytes(tokens), device=device, dtype=torch.uint8)
    want = reference(torch, x, logits, *weights, args.topk)

    def error():
        return ((y.float() - want).norm() / want.norm()).item()

    def current():
        return torch.cuda.current_stream().cuda_stream

    call = layer.prepare(x=x, y=y, logits=logits, workspace=space)
    layer.run(call, current())
    torch.cuda.synchronize()
    plain = error()
    eager = y.clone()
    prepared = host_us(torch, lambda: layer.run(call, current()))
    checked = host_us(torch, lambda: layer.run(layer.prepare(x=x, y=y, logits=logits, workspace=space), current()))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        layer.run(call, current())  # the stream in capture is the current one here
    y.fill_(float("nan"))
    graph.replay()
    torch.cuda.synchronize()
    same = bool((y == eager).all())
    replay = host_us(torch, graph.replay)
    print(f"T={tokens}: relative L2 {plain:.2e} against float32 torch; graph {'equal bit by bit' if same else 'DIFFERS'}; host: "
          f"{prepared:.1f} us a prepared call, {checked:.1f} us with DLPack and its checks, {replay:.1f} us a replay")
    return plain < 4e-3 and same


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    p = argparse.ArgumentParser(description="A layer of moec in PyTorch through ctypes")
    p.add_argument("image")
    p.add_argument("--lib", default=os.path.join(here, "..", "build", "libmoert.so"))
    p.add_argument("--device", default="cuda:0")
    p.add_argument("--tokens", default="1,33,256")
    for name, value in (("experts", 64), ("topk", 8), ("hidden", 2048), ("ffn", 768)):
        p.add_argument("--" + name, type=int, default=value)
    args = p.parse_args()
    import torch
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.manual_seed(1)
    torch.cuda.set_device(int(args.device.partition(":")[2] or 0))

    device = Device(load_library(args.lib), args.device)
    with open(args.image, "rb") as f:
        image = device.load(f.read())
    e, h, i = args.experts, args.hidden, args.ffn
    gate, up, down = (torch.randn(e, a, b, device="cuda", dtype=torch.bfloat16) / b**0.5 for a, b in ((i, h), (i, h), (h, i)))
    desc = Desc(experts=e, topk=args.topk, hidden=h, ffn=i, dtype=BF16, renorm=1)
    layer = Layer(device, image, desc, gate=gate, up=up, down=down)
    try:
        layer.prepare(x=gate[0], y=down[0], logits=up[0])
    except RuntimeError as refused:
        print(f"refused, as it should be: {refused}")
    good = all([run(torch, layer, (gate, up, down), int(t), args) for t in args.tokens.split(",")])
    layer.free()
    device.check(device.lib.moe_unload(image))
    device.close()
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
