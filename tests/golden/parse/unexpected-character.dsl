kernel k(x: f32[T], y: out f32[T]) {
    let a = $b
    let c = a ? 1 : 2
}
