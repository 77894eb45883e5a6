kernel k(x: f32[T], y: out f32[T]) {
    var a = 3
    var b, : f32 = 3
    var c: f32[t]
}
