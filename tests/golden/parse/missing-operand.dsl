kernel k(x: f32[T], y: out f32[T]) {
    let a = b * + 2
    let c = -
    let d = b -
}
