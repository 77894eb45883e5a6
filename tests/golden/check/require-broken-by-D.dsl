// -D H=12 -D T=100
kernel k(x: f32[T, H]) require H % 8 == 0, T <= 64 {
}
