// -D H=4096 -D act=f16
type act = bf16
kernel k(x: act[T, H], y: out act[T, H]) require H % 8 == 0, T <= 64 {
    parallel t in tile(T), c in tile(H) {
        y[t, c] = x[t, c] * f32(H)
    }
}
