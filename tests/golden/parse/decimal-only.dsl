kernel k(x: f32[T], y: out f32[T]) {
    let a = 0x10 + 1
}
