kernel k(n: i32[4], y: out f32[T]) {
    parallel t in tile(n[0]), s in tile(0, T % 2) { y[t] = 1 }
}
