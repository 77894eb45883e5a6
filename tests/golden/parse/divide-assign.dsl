kernel k(x: f32[T], y: out f32[T]) {
    a /= 3
    a++
}
