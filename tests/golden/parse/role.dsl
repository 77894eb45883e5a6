kernel k(x: f32[T], y: out f32[T]) {
    role (0, 4) { }
    role a { }
    role a(0) { }
    role a(b, c) { }
}
