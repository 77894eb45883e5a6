kernel k(x: f32[T, Hidden]) require Hiden % 8 == 0, x <= 8, Q <= 3 {
}
