kernel k(x: f32[T], y: out f32[T]) {
    for i in tile(4), j in tile(5) {
        y[i] = 1
    }
    let a = +
}
