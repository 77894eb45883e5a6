kernel k(x: f32[T]) {
}
kernel k(y: f32[T]) {
}
