type act = bf16
kernel k(a: acd[T], b: float[T], c: act[T]) {
}
