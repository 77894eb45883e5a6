kernel k(x: f32[T], y: out f32[T]) {
    for i in 5 { }
    for j in (a + b) { }
    for q in x[3] { }
}
