kernel k(x: f32[T, 4], q: bf16[T, 64], n: i32, p: f32, y: out f32[T, 4], z: inout i32[T]) {
    parallel t in tile(T) {
        let a: f32[t] = t
        let b: i32 = t
        let c: bf16[t] = x[t, 0]
    }
}
