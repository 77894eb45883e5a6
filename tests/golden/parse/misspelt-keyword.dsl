kernel k(x: f32[T], y: out f32[T]) {
    lett a = 3
    paralel t in tile(T) { }
    vra b: f32 = 1
}
