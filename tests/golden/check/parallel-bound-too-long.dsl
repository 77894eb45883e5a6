kernel k(y: out f32[T]) {
    let a = T + T
    let b = a + a
    let c = b + b
    let d = c + c
    let e = d + d
    parallel t in tile(d), s in tile(e) { y[t] = 1 }
}
