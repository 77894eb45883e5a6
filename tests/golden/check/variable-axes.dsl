kernel k(x: f32[T, 4], q: bf16[T, 64], n: i32, p: f32, y: out f32[T, 4], z: inout i32[T]) {
    parallel t in tile(T) {
        var g: f32[t] = 0
        for s in tile(4) { g = f32(s) }
        var h: f32 = x[t, 0]
    }
}
