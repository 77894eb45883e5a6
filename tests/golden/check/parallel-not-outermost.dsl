kernel k(y: out f32[T]) {
    let n = T * 2
    y[0] = 1
    parallel t in tile(n) { y[t] = 1 }
}
