type a = bf16
type a = f32
type f32 = f16
type b = i99
