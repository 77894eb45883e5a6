kernel k(x: f32[T]) require { }
kernel l(x: f32[T]) require T % 8 == 0 T <= 4 { }
kernel m(x: f32[T]) requires T <= 4 { }
