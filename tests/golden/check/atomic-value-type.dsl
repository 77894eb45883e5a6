kernel k(x: f32[T, 4], q: bf16[T, 64], n: i32, p: f32, y: out f32[T, 4], z: inout i32[T]) {
    parallel t in tile(T) {
        atomic_add(z[t], 1.0)
        atomic_add(z[t], x[t, 0])
    }
}
