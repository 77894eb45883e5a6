kernel k(x: f32[T, 4], q: bf16[T, 64], n: i32, p: f32, y: out f32[T, 4], z: inout i32[T]) {
    parallel t in tile(T) {
        let a = x[t, 0] & 1
        let b = x[t, 0] << 2
        let c = ~p
        let d = p % 2
    }
}
