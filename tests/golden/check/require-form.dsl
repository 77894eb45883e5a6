kernel k(x: f32[T, H]) require T < 8, H % 8 == 1, T >= 3, 8 <= T, H % T == 0 {
}
