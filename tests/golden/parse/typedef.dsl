type = f32
type a f32
type b = 3
type c = f32 f16
