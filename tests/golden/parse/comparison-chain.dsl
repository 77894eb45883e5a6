kernel k(x: f32[T], y: out f32[T]) {
    let a = b < c < d
    let e = (b < c) == d
    let f = b == c != d
}
