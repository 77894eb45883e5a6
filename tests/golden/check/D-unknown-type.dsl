// -D act=f99
type act = f16
kernel k(x: act[T]) {
}
