kernel k(y: out f32[T]) {
    for i in each(4) {
        parallel t in tile(T) { y[t] = 1 }
    }
}
