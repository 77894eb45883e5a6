// The wait for the kernel launched before stands before the first thing that is not early: behind the weights of the ring, or
// before the grid where its list is not early.
kernel scale(x: f32[N], w: early f32[N], y: out f32[N]) {
    parallel n in tile(N) {
        let v = w[n]
        y[n] = v * x[n]
    }
}

kernel product(x: bf16[M, K], w: early bf16[N, K], y: out bf16[M, N]) require K % 8 == 0, N % 8 == 0, K <= 4096 {
    parallel m in tile(M), n in tile(N) {
        var s: f32[m, n] = 0
        for k in tile(K) {
            s += dot(x[m, k], w[n, k])
        }
        y[m, n] = s
    }
}

kernel listed(x: f32[M], w: early f32[E], tiles: tile_map[N], y: out f32[M]) {
    parallel (e, rows) in tiles {
        y[rows] = w[e] * x[rows]
    }
}

schedule product for sm_90a {
    m 16
    n 64
    k 64
    stages 3
    warps 1x4
    mma m16n8k16_bf16
}
