"""The expert layer by torch._grouped_mm, timed by the protocol of BENCHMARKS.md, for a ratio in the same run.

Not part of the product: a yardstick, run where PyTorch is installed.
    python3 torch_grouped_mm.py --models mixtral-8x7b,qwen3-30b-a3b --tokens 1,128,2048,8192 --json out.json
Each timed launch is a CUDA-graph replay after writing 256 MB (cold L2); median of 20 after warm-up; data random normal.
"""
import argparse
import json
import statistics

import torch
import torch.nn.functional as F

MODELS = {  # experts, top-k, hidden, ffn
    "mixtral-8x7b": (8, 2, 4096, 14336),
    "qwen3-30b-a3b": (128, 8, 2048, 768),
    "deepseek-v3": (256, 8, 7168, 2048),
    "tiny": (8, 2, 256, 384),
}


def normal(*shape, scale=1.0):
    return torch.empty(*shape, device="cuda", dtype=torch.bfloat16).normal_(0, scale)


def timed(graph, flush):
    for _ in range(3):
        graph.replay()
    times = []
    for _ in range(20):
        flush.zero_()
        a, b = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        a.record()
        graph.replay()
        b.record()
        torch.cuda.synchronize()
        times.append(a.elapsed_time(b))
    return statistics.median(times)


def capture(fn):
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            fn()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        fn()
    return graph


def layer(x, w13, w2, row_token, slot_row, offs, weights, ffn):
    both = torch._grouped_mm(x[row_token], w13.transpose(-2, -1), offs=offs)
    h = F.silu(both[:, :ffn]) * both[:, ffn:]
    d = torch._grouped_mm(h, w2.transpose(-2, -1), offs=offs)
    return (d[slot_row] * weights[:, :, None]).sum(1)


def measure(name, tokens, flush, w13, w2):
    experts, topk, hidden, ffn = MODELS[name]
    x = normal(tokens, hidden)
    logits = torch.randn(tokens, experts, device="cuda")
    weights, ids = torch.topk(torch.softmax(logits, -1), topk)
    weights = (weights / weights.sum(-1, keepdim=True)).to(torch.bfloat16)
    order = torch.argsort(ids.flatten(), stable=True)
    slot_row = torch.empty_like(order)
    slot_row[order] = torch.arange(order.numel(), device="cuda")
    offs = torch.bincount(ids.flatten(), minlength=experts).cumsum(0).to(torch.int32)
    args = (x, w13, w2, order // topk, slot_row.view(tokens, topk), offs, weights, ffn)
    return timed(capture(lambda: layer(*args)), flush)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--models", default="mixtral-8x7b,qwen3-30b-a3b,deepseek-v3")
    p.add_argument("--tokens", default="1,8,128,512,2048,8192")
    p.add_argument("--json")
    a = p.parse_args()
    flush = torch.empty(64 << 20, dtype=torch.float32, device="cuda")
    rows = []
    n = 8192
    u, v = normal(n, n), normal(n, n)
    ms = timed(capture(lambda: u @ v), flush)
    print(f"cuBLAS 8192^3: {2 * n**3 / ms / 1e9:.0f} TFLOP/s")
    del u, v
    for name in a.models.split(","):
        experts, topk, hidden, ffn = MODELS[name]
        w13 = normal(experts, 2 * ffn, hidden, scale=hidden**-0.5)
        w2 = normal(experts, hidden, ffn, scale=ffn**-0.5)
        for tokens in map(int, a.tokens.split(",")):
            try:
                ms = measure(name, tokens, flush, w13, w2)
            except Exception as e:  # a shape the library refuses is a result too
                print(name, tokens, "refused:", str(e)[:100])
                continue
            rows.append({"model": name, "tokens": tokens, "ms": ms})
            print(f"{name:16} T={tokens:<6} {ms:9.4f} ms {6 * tokens * topk * hidden * ffn / ms / 1e9:8.1f} TFLOP/s")
        del w13, w2
    if a.json:
        json.dump(rows, open(a.json, "w"))


if __name__ == "__main__":
    main()
