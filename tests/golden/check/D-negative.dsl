// -D T=-1
kernel k(x: f32[T]) {
}
