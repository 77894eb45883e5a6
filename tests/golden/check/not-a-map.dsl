kernel k(x: f32[T], y: out f32[T]) {
    parallel (e, rows) in x, a in T, (b, c) in tile(T) { y[a] = 1 }
}
