kernel k(x: f32[T, 4], q: bf16[T, 64], n: i32, p: f32, y: out f32[T, 4], z: inout i32[T]) {
    parallel t in tile(T) {
        let e = range(4)
        let a = take(x[t, e], 1.5, e)
        let b = take(x[t, e], p, e)
        let c = take(x[t, 0], 1, e)
    }
}
