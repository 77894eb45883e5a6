kernel k(x: f32[T], x: f32[T], T: i32) {
}
