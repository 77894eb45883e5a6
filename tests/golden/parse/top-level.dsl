kernal k(x: f32[T]) { }

schedule k for a { }
let a = 3
type t = f32
func f() { }
