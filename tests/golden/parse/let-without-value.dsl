kernel k(x: f32[T], y: out f32[T]) {
    let a
    let b: f32[t]
    let = 3
}
