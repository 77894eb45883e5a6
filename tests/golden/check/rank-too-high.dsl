kernel k(x: f32[A, B, C, D], y: out f32[A]) {
    parallel a in tile(A), b in tile(B), c in tile(C), d in tile(D), e in tile(4) {
        let v = x[a, b, c, d] * f32(e)
        y[a] = 1
    }
}
