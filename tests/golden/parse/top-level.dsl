let a = 3
kernal k(x: f32[T]) { }

schedule k for a { }
func f() { }
type t = f32
