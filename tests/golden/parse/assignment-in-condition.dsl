kernel k(x: f32[T], y: out f32[T]) {
    if a = 3 { y[0] = 1 }
}
