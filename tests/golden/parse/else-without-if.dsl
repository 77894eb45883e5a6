kernel k(x: f32[T], y: out f32[T]) {
    else { y[0] = 1 }
    if a { } else y[0] = 1
}
