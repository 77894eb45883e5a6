kernel k(x: f32[T], y: out f32[T]) {
    shared a f32[1][2, 4]
    shared a: f32[2, 4]
    shared a: f32[1][2]
    shared a: f32[n][2, 4]
}
