kernel k(y: out bool[T]) {
}
