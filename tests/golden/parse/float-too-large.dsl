kernel k(x: f32[T], y: out f32[T]) {
    let a = 1e308
    let b = 1e309
}
