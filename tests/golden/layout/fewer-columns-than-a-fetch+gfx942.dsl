kernel narrow(q: bf16[M, D], k: bf16[N, D], v: bf16[N, C], y: out f32[M, C]) require D <= 32, C <= 16 {
    parallel m in tile(M) {
        let d = range(D)
        let c = range(C)
        var sum: f32[m, c] = 0
        for n in tile(N) {
            sum += dot(bf16(dot(q[m, d], k[n, d])), v[n, c])
        }
        y[m, c] = sum
    }
}

schedule narrow for gfx942 {
    m 64
    n 64
    d 32
    c 16
    warps 2x2
    mma mfma_32x32x8_bf16
}
