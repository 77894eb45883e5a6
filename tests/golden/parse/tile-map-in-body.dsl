kernel k(x: f32[T], y: out f32[T]) {
    let t: tile_map[N] = 3
    var u: tile_map = 3
}
