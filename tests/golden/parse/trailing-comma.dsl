kernel k(x: f32[T], y: out f32[T]) {
    let a = min(b, )
    let c = x[b, ]
}
