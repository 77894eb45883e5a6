kernel k(x: f32[T, 4], q: bf16[T, 64], n: i32, p: f32, y: out f32[T, 4], z: inout i32[T]) {
    parallel t in tile(T) {
        let e = range(4)
        let i = topk(x[t, e], e, e)
        let j = topk(x[t, e], e)
        for s in tile(2) { let r = topk(x[t, e], s, e) }
    }
}
