kernel k(x: f32[A, B, C, D, E]) {
}
