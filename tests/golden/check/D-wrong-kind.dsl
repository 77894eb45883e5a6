// -D act=12 -D T=bf16
type act = f16
kernel k(x: act[T]) {
}
