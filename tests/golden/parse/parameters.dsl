kernel k(x, y: f32) { }
kernel l(x: f32[T) { }
kernel m(x: f32[T + 1]) { }
kernel n(x: in f32[T]) { }
kernel o x: f32 { }
kernel (x: f32) { }
