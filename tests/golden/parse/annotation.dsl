kernel k(x: f32[T], y: out f32[T]) {
    let a = 1 @
    let b = 1 @dist(
    let c = 1 @dist(1.5)
    let d = 1 @dist(a b)
}
