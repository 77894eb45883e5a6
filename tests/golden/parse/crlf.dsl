// doc
kernel k(x: f32[T]) {
    let a = 1
    let b = a +
        2
}
