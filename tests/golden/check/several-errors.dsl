kernel k(x: f32[T], y: out f32[T]) {
    parallel t in tile(T) {
        let a = missing + 1
        let b = a * 2
        y[t] = b
        let c = a + missing
        let d = silu(x)
        y[t] = d + n
    }
}
kernel l(x: f32[S]) {
    let e = range(S)
    let f = e + x[e]
}
