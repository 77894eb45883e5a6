kernel k(x: f32[T], y: out f32[T]) {
    let a = x[b, c
    let d = x[1 2]
}
