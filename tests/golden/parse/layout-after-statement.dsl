kernel k(x: f32[T], y: out f32[T]) {
    let a = 1
    layout main { t: r0; }
}
