kernel k(x: f32[T], y: out f32[T]) {
    parallel (e) in tiles { }
    parallel (e, ) in tiles { }
}
