kernel k(x: f32[T], y: out f32[T]) {
    let a = (1 + 2
    for t in tile(T) {
        let b = x[t] +
        y[t] = a b
        if a == {
            y[t] = 3 *
        }
    }
    let c = 3 $ 4
}
kernel l(x f32[T]) {
    let a = 1
}
kernel m(x: f32[T]) {
    let a = &
}
