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

schedule gemm.small for sm_80, sm_90a {
    m 16
    n 64
    k 64
    stages 4
    warps 1x2
}
schedule gemm.large for sm_80 {
    m 128
    n 128
    k 32
    stages 3
    warps 2x4
    group 8
}
