kernel k(x: f32[T], y: out f32[T]) {
    for i = 0 { }
    for i of tile(3) { }
    parallel a, b in tile(3) { }
}
