kernel k(x: f32[T, 4], q: bf16[T, 64], n: i32, p: f32, y: out f32[T, 4], z: inout i32[T]) {
    parallel t in tile(T) {
        for s in tile(t) { }
        for i in each(1.5) { }
        for i in each(p) { }
        for s in tile(1, 2, 3) { }
    }
}
