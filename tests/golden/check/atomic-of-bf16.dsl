kernel k(q: inout bf16[T]) {
    parallel t in tile(T) {
        atomic_add(q[t], 1.0)
    }
}
