kernel k(y: out f32[A]) {
    parallel a in tile(A), b in tile(4), c in tile(4), d in tile(4), e in tile(4) {
        var g: f32[a, b, c, d, e] = 0
        y[a] = 1
    }
}
