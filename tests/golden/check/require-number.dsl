kernel k(x: f32[T]) require T % 0 == 0, T <= 0, T <= 3000000000 {
}
