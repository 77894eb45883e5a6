kernel k(x: f32[T], y: out f32[T]) {
    f(x) = 3
    f(x) += 3
}
