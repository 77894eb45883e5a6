kernel k(x: f32[T], y: out f32[T]) {
    let a = 5a + 1
    let b = 1.5f
}
