kernel folded(x: f32[N], s: i32, y: out f32[N], z: out i32[N]) {
    parallel n in tile(N) {
        let unused = x[n] * 3.0
        let twice = x[n] + x[n]
        let again = x[n] + x[n]
        y[n] = (twice * 1.0 + again * 1.0) * (2.0 * 0.5) + 0.0
        let zero = (s - s) * 7 + n * 0
        if 3 > 2 {
            z[n] = n * 1 + zero + (5 - 2 * 2) + (8 >> 1)
        } else {
            z[n] = 0 - 1
        }
    }
}
