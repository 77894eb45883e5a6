kernel k(x: f32[T, 4], q: bf16[T, 64], n: i32, p: f32, y: out f32[T, 4], z: inout i32[T]) {
    parallel t in tile(T) {
        let s = range(16)
        let r = range(8)
        var g: f32[t] = 0
        g += dot(q[t, s], q[r, s])
        let b = dot(g, q[t, s], q[r, s])
    }
}
