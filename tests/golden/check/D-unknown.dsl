// -D Q=12
kernel k(x: f32[T]) {
}
