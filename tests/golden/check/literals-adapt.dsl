kernel k(x: bf16[T], n: i32, p: f32, y: out f32[T]) {
    parallel t in tile(T) {
        let a = x[t] * 2
        let b = select(t < 3, x[t], 0)
        let c = n * 2 + t
        let d = p + 1
        let e = 1 + 2.5
        let f = max(x[t], -inf)
        y[t] = a + f32(b) + f32(c) + d + e + f + 1e-20
    }
}
