kernel k(x: f32[T], y: out f32[T]) {
    let for = 3
    var in: f32 = 1
    y[if] = 2
}
