kernel k(n: i32, x: f32[n]) {
}
