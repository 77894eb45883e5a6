type act = bf16

kernel gemm(a: act[M, K], b: act[N, K], c: out act[M, N]) require K % 8 == 0, N % 8 == 0 {
    parallel m in tile(M), n in tile(N) {
        var s: f32[m, n] = 0
        for k in tile(K) {
            s += dot(a[m, k], b[n, k])
        }
        c[m, n] = s
    }
}

schedule gemm for sm_80 {
    m 256
    n 16
    k 32
    stages 2
    warps 16x1
}
