kernel k(x: f32[T], y: out f32[T]) {
    let a = (b + c
    let d = 3
}
