kernel k(x: f32[T, 4], q: bf16[T, 64], n: i32, p: f32, y: out f32[T, 4], z: inout i32[T]) {
    parallel t in tile(T) {
        let a = 1
        var b, a: f32[t] = 0
        for a in tile(4) { let a = 1 }
    }
}
