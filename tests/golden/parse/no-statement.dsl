kernel k(x: f32[T], y: out f32[T]) {
    y[0] + 3
    y
    (a) = 3
    3 = a
    @tile(3)
}
