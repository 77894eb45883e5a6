kernel k(x: bf16[T, 64], f: f32[T, 64], y: out bf16[T, 64]) {
    parallel t in tile(T) {
        shared a: bf16[2][16, 64]
        let j = range(64)
        copy(x[0], x[t, j])
        copy(a[0], 3)
        copy(a[0], f[t, j])
        copy(a[0], y[t, j])
        copy(a[0], x[t, 0])
        copy(a, x[t, j])
        copy(a[1.5], x[t, j])
        copy(a[0])
        put(a[0], 1.0)
        put(a[0], f[t, j])
        wait(a)
        wait(-1)
        wait(100)
        commit(3)
        barrier(1)
    }
}
