kernel k(x: f32[T, 4], q: bf16[T, 64], n: i32, p: f32, y: out f32[T, 4], z: inout i32[T]) {
    parallel t in tile(T) {
        let a = max(1)
        let b = min(1, 2, 3)
        let c = silu()
        let d = select(t < 3, 1)
    }
}
