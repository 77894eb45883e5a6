kernel k(x: f32[T], y: out f32[T]) {
    at a = tile(H) { }
    at a = 3 { }
    at a in tile(H), 3 { }
}
