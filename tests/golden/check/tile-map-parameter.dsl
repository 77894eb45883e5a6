kernel k(a: tile_map[N, 4], b: out tile_map[N], c: tile_map[N]) {
}
