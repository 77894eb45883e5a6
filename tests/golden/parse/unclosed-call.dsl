kernel k(x: f32[T], y: out f32[T]) {
    let a = dot(b, c
    let d = (1, 2)
}
