kernel k(x: bf16[T, 64], y: out f32[T, 64]) {
    parallel t in tile(T), c in tile(64) {
        shared a: bf16[2][16, 64]
        shared b: f16[2][16, 64]
        shared d: bf16[2][16, 32]
        var g: f32[t, c] = 0
        let u = mma(g, a[0], b[0])
        let v = mma(g, a[0], d[0])
        let w = mma(g, x[0], a[0])
        let z = mma(1.0, a[0], a[0])
        let s: f32[t] = mma(1.0, a[0], a[0])
        let r = mma(g, a[0])
    }
}
