// B independent matrix products with a bias: what a linear layer per head, per expert or per group needs.
//
//   M rows, N columns, K products an element. w holds its rows along K, as torch.nn.Linear keeps its weight.

// c[b, m, n] = a[b, m, :] . w[b, n, :] + bias[b, n]. Products are exact, sums are f32, rounded to bf16 once, when stored.
kernel batched_gemm(a: bf16[B, M, K], w: bf16[B, N, K], bias: bf16[B, N], c: out bf16[B, M, N]) require K % 8 == 0 {
    parallel b in each(B), m in tile(M), n in tile(N) {
        var acc: f32[m, n] = 0
        for k in tile(K) {
            acc += dot(a[b, m, k], w[b, n, k])
        }
        c[b, m, n] = acc + bias[b, n]
    }
}

// Sizes for one architecture; all others take what the analytic model finds.
schedule batched_gemm for sm_90a {
    m 128
    n 128
    k 64
    stages 4
    warps 2x4
}
