kernel k(a: bf16, b: bool, c: out i32, d: tile_map) {
}
