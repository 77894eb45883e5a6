kernel k(x: f32[T], y: out f32[T]) {
    let a = x.y
    x.y = 3
}
